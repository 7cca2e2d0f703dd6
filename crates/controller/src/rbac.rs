//! RBAC as a table in code, with a reason for each rule. Roles are rendered from it.

use std::fmt::Write;

mod guard;
mod rule;

pub use guard::COMPONENT_METADATA;
use rule::list;
pub use rule::{Check, Guard, Rule};

/// Returns the rules that every operator needs in the hub namespace for Pauses and the brake. `record` names the
/// `ConfigMap`s of both records: `brake-<operator>` and `pauses-<operator>`.
pub fn pauses(record: &'static [&'static str]) -> Vec<Rule> {
    vec![
        Rule::new(
            &["operator.kyma-project.io"],
            &["pauses"],
            &["list", "watch", "create"],
            "obey Pauses; the brake creates one",
        )
        .guarded(guard::BRAKE_PAUSE),
        Rule::new(
            &[""],
            &["configmaps"],
            &["create"],
            "records of the brake and of Pauses (an apply counts as create)",
        )
        .guarded(guard::BRAKE_RECORD),
        Rule::new(&[""], &["configmaps"], &["get"], "records of the brake and of Pauses").named(record),
        Rule::new(&[""], &["configmaps"], &["patch"], "records of the brake and of Pauses")
            .named(record)
            .guarded(guard::BRAKE_RECORD_METADATA),
    ]
}

/// All rules of one operator, by cluster and scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Name of the operator; roles and their bindings are named after it.
    pub operator: &'static str,
    /// Rules on the hub, in all namespaces or on cluster-scoped kinds. Never Secrets.
    pub hub_cluster: Vec<Rule>,
    /// Rules on the hub, in the hub namespace.
    pub hub_namespace: Vec<Rule>,
    /// Rules on targets; the access Secret's user has the rules of all operators.
    pub target: Vec<Rule>,
    /// Rules for the component's kind that are aggregated into kyma-operator's role.
    pub aggregated: Vec<Rule>,
    /// Rules of helm-component for the component's kind, in the hub namespace: HelmComponents may depend on it.
    pub dependents: Vec<Rule>,
}

/// ServiceAccount of helm-component, in the hub namespace.
const HELM_COMPONENT: &str = "helm-component";

/// Label of the ClusterRoles that aggregate into kyma-operator's.
pub const AGGREGATE_LABEL: &str = "component.kyma-project.io/aggregate-to-kyma-operator";

/// Selects the roles to render.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Roles on the hub, bound to the operator's ServiceAccount.
    Hub,
    /// The role on targets.
    Target,
    /// Roles on the hub, then the role on targets, which is named `<operator>-target` and has no binding.
    Both,
    /// All roles for one cluster: the role on targets is bound to the ServiceAccount too (single-cluster mode).
    SingleCluster,
}

impl Table {
    /// Returns the roles as YAML documents, each rule below a comment with its reason. For the hub with
    /// ServiceAccount (named after the operator) and bindings; for targets only the ClusterRole, since its subject
    /// depends on the access. The same table gives the same bytes.
    pub fn render(&self, namespace: &str, side: Side) -> String {
        let name = self.operator;
        let mut out = String::new();
        if side != Side::Target {
            service_account(&mut out, name, namespace);
            role(
                &mut out,
                &Role { kind: "ClusterRole", name, namespace: None, label: None },
                &self.hub_cluster,
            );
            binding(&mut out, "ClusterRoleBinding", ("ClusterRole", name), name, namespace);
            role(
                &mut out,
                &Role { kind: "Role", name, namespace: Some(namespace), label: None },
                &self.hub_namespace,
            );
            binding(&mut out, "RoleBinding", ("Role", name), name, namespace);
            let aggregate = format!("{name}-aggregate");
            let labelled =
                Role { kind: "ClusterRole", name: &aggregate, namespace: None, label: Some(AGGREGATE_LABEL) };
            role(&mut out, &labelled, &self.aggregated);
            if !self.dependents.is_empty() {
                let dependents = format!("{name}-dependents");
                let dependents_role =
                    Role { kind: "Role", name: &dependents, namespace: Some(namespace), label: None };
                role(&mut out, &dependents_role, &self.dependents);
                binding(&mut out, "RoleBinding", ("Role", &dependents), HELM_COMPONENT, namespace);
            }
        }
        if matches!(side, Side::Hub | Side::Both) {
            guard::render(&mut out, name, namespace, &self.hub_cluster, None);
            guard::render(&mut out, name, namespace, &self.hub_namespace, Some(namespace));
        }
        let target = format!("{name}-target");
        if side != Side::Hub {
            role(
                &mut out,
                &Role { kind: "ClusterRole", name: &target, namespace: None, label: None },
                &self.target,
            );
        }
        if side == Side::SingleCluster {
            binding(&mut out, "ClusterRoleBinding", ("ClusterRole", &target), name, namespace);
        }
        out
    }

    /// Returns the rules that allow writes on the hub and have no guard.
    pub fn unguarded(&self) -> Vec<&Rule> {
        let rules = self.hub_cluster.iter().chain(&self.hub_namespace);
        rules.filter(|rule| rule.writes() && rule.guard == Guard::Undecided).collect()
    }

    /// Reports whether the hub roles allow the verb in the hub namespace.
    pub fn hub_allows(&self, group: &str, resource: &str, verb: &str) -> bool {
        self.hub_cluster.iter().chain(&self.hub_namespace).any(|rule| rule.allows(group, resource, verb))
    }

    /// Reports whether the target role allows the verb.
    pub fn target_allows(&self, group: &str, resource: &str, verb: &str) -> bool {
        self.target.iter().any(|rule| rule.allows(group, resource, verb))
    }
}

/// Returns the role that aggregates the rules of components' roles ([`Table::aggregated`]), bound to `operator` in
/// the hub namespace only. kyma-operator has it; the hub's controller manager fills it.
pub fn render_collector(operator: &str, namespace: &str) -> String {
    let name = format!("{operator}-components");
    let mut out = format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {name}\n\
         aggregationRule:\n  clusterRoleSelectors:\n    - matchLabels:\n        {AGGREGATE_LABEL}: \"true\"\n\
         # Filled by the controller manager from the roles with this label.\nrules: []\n"
    );
    binding(&mut out, "RoleBinding", ("ClusterRole", &name), operator, namespace);
    out
}

struct Role<'a> {
    kind: &'a str,
    name: &'a str,
    namespace: Option<&'a str>,
    label: Option<&'a str>,
}

fn service_account(out: &mut String, name: &str, namespace: &str) {
    let _ = write!(
        out,
        "---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n  namespace: {namespace}\n"
    );
}

fn role(out: &mut String, role: &Role<'_>, rules: &[Rule]) {
    if rules.is_empty() && role.label.is_some() {
        return;
    }
    let Role { kind, name, .. } = role;
    let _ = write!(
        out,
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n"
    );
    if let Some(namespace) = role.namespace {
        let _ = writeln!(out, "  namespace: {namespace}");
    }
    if let Some(label) = role.label {
        let _ = writeln!(out, "  labels:\n    {label}: \"true\"");
    }
    if rules.is_empty() {
        let _ = writeln!(out, "rules: []");
        return;
    }
    let _ = writeln!(out, "rules:");
    for rule in rules {
        render_rule(out, rule);
    }
}

fn render_rule(out: &mut String, rule: &Rule) {
    let _ = writeln!(out, "  # {}", rule.why);
    if rule.paths.is_empty() {
        let _ = writeln!(out, "  - apiGroups: {}", list(rule.groups));
        let _ = writeln!(out, "    resources: {}", list(rule.resources));
        if !rule.names.is_empty() {
            let _ = writeln!(out, "    resourceNames: {}", list(rule.names));
        }
    } else {
        let _ = writeln!(out, "  - nonResourceURLs: {}", list(rule.paths));
    }
    let _ = writeln!(out, "    verbs: {}", list(rule.verbs));
}

fn binding(out: &mut String, kind: &str, (role_kind, role): (&str, &str), account: &str, namespace: &str) {
    let _ = write!(
        out,
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {role}\n"
    );
    if kind == "RoleBinding" {
        let _ = writeln!(out, "  namespace: {namespace}");
    }
    let _ = write!(
        out,
        "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {role_kind}\n  name: {role}\n\
         subjects:\n  - kind: ServiceAccount\n    name: {account}\n    namespace: {namespace}\n"
    );
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding};

    use super::*;

    fn table() -> Table {
        Table {
            operator: "x-operator",
            hub_cluster: vec![Rule::new(
                &["apiextensions.k8s.io"],
                &["customresourcedefinitions"],
                &["get"],
                "start",
            )],
            hub_namespace: vec![Rule::new(&[""], &["secrets"], &["get", "watch"], "access").named(&["a"])],
            target: vec![
                Rule::new(&["apps"], &["deployments"], &["patch"], "apply"),
                Rule::paths(&["/readyz"], &["get"], "probe"),
            ],
            aggregated: vec![Rule::new(&["x.io"], &["xs"], &["get"], "components")],
            dependents: vec![],
        }
    }

    fn documents(yaml: &str) -> Vec<serde_json::Value> {
        yaml.split("---\n").skip(1).map(|one| serde_saphyr::from_str(one).unwrap()).collect()
    }

    #[test]
    fn every_rule_arrives_in_the_role_of_its_place() {
        let hub = documents(&table().render("kcp-system", Side::Hub));
        let kinds: Vec<_> = hub.iter().map(|one| one["kind"].as_str().unwrap()).collect();
        assert_eq!(
            kinds,
            ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ClusterRole"]
        );
        let namespaced = PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["secrets".into()]),
            resource_names: Some(vec!["a".into()]),
            verbs: vec!["get".into(), "watch".into()],
            ..PolicyRule::default()
        };
        assert_eq!(serde_json::from_value::<Vec<PolicyRule>>(hub[3]["rules"].clone()).unwrap(), [namespaced]);
        assert_eq!(hub[5]["metadata"]["labels"][AGGREGATE_LABEL], "true");
        serde_json::from_value::<ClusterRoleBinding>(hub[2].clone()).unwrap();
        serde_json::from_value::<RoleBinding>(hub[4].clone()).unwrap();
    }

    #[test]
    fn helm_component_may_read_a_kind_that_it_may_depend_on() {
        let dependents = vec![Rule::new(&["x.io"], &["xs"], &["list", "watch"], "wait for xs")];
        for side in [Side::Hub, Side::Both, Side::SingleCluster] {
            let table = Table { dependents: dependents.clone(), ..table() };
            let all = documents(&table.render("kcp-system", side));
            let named: Vec<_> =
                all.iter().filter(|one| one["metadata"]["name"] == "x-operator-dependents").collect();
            assert_eq!(named.len(), 2, "{side:?}: {named:?}");
            assert_eq!(named[0]["metadata"]["namespace"], "kcp-system");
            assert_eq!(named[0]["rules"][0]["verbs"], serde_json::json!(["list", "watch"]));
            let binding: RoleBinding = serde_json::from_value(named[1].clone()).unwrap();
            assert_eq!(binding.metadata.namespace.as_deref(), Some("kcp-system"));
            assert_eq!(binding.role_ref.name, "x-operator-dependents");
            assert_eq!(binding.subjects.unwrap()[0].name, "helm-component");
        }
        let target = Table { dependents, ..table() }.render("kcp-system", Side::Target);
        assert!(!target.contains("dependents"));
    }

    #[test]
    fn targets_get_their_role_and_single_clusters_its_binding() {
        let target = documents(&table().render("kcp-system", Side::Target));
        assert_eq!(target.len(), 1);
        let role: ClusterRole = serde_json::from_value(target[0].clone()).unwrap();
        assert_eq!(role.rules.unwrap()[1].non_resource_urls, Some(vec!["/readyz".into()]));
        let single = documents(&table().render("kcp-system", Side::SingleCluster));
        assert_eq!(single.last().unwrap()["roleRef"]["name"], "x-operator-target");
    }

    #[test]
    fn what_components_aggregate_is_collected_for_one_namespace() {
        let collector = documents(&render_collector("kyma-operator", "kcp-system"));
        let role: ClusterRole = serde_json::from_value(collector[0].clone()).unwrap();
        let selectors = role.aggregation_rule.unwrap().cluster_role_selectors.unwrap();
        assert!(selectors[0].match_labels.as_ref().unwrap().contains_key(AGGREGATE_LABEL));
        let binding: RoleBinding = serde_json::from_value(collector[1].clone()).unwrap();
        assert_eq!(binding.metadata.namespace.as_deref(), Some("kcp-system"));
        assert_eq!(
            (binding.role_ref.kind.as_str(), &binding.role_ref.name),
            ("ClusterRole", role.metadata.name.as_ref().unwrap())
        );
    }

    #[test]
    fn reasons_stand_above_their_rules() {
        assert!(table().render("n", Side::Target).contains("  # apply\n  - apiGroups: [\"apps\"]"));
    }

    #[test]
    fn a_rule_covers_what_it_allows_and_no_more() {
        let covers = |wide: &Rule, narrow: Rule| wide.covers(&narrow);
        let maps = Rule::new(&[""], &["configmaps"], &["get", "list"], "content");
        assert!(covers(&maps, Rule::new(&[""], &["configmaps"], &["get"], "stamp").named(&["a"])));
        assert!(!covers(&maps, Rule::new(&[""], &["configmaps"], &["delete"], "stamp").named(&["a"])));
        assert!(!covers(&maps, Rule::new(&[""], &["configmaps", "secrets"], &["get"], "both")));
        assert!(!covers(&maps, Rule::paths(&["/readyz"], &["get"], "probe")));
        let any = Rule::new(&["*"], &["*"], &["get"], "all");
        assert!(!covers(&any, maps) && covers(&any, Rule::new(&["apps"], &["x"], &["get"], "")));
        let named = maps.named(&["a", "b"]);
        assert!(covers(&named, maps.named(&["a"])) && !covers(&named, maps.named(&["c"])));
        assert!(!covers(&named, maps), "all names are more than some");
    }

    #[test]
    fn what_is_allowed_is_found() {
        assert!(table().target_allows("apps", "deployments", "patch"));
        assert!(!table().target_allows("apps", "deployments", "delete"));
        assert!(!table().hub_allows("apps", "deployments", "patch"));
    }
}
