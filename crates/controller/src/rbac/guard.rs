//! Admission policies that limit what an operator's own token can write on the hub.
//!
//! Admission policies for writes on the hub. A role limits verbs and resources, not content: a right to create
//! Secrets allows to create a token of any ServiceAccount. Each rule that writes on the hub therefore has a
//! [`Guard`]. The policies are rendered beside the role, so that both are installed together. They need
//! ValidatingAdmissionPolicy v1 with `authorizer` (Kubernetes 1.30).

use std::fmt::Write;

use super::rule::{Check, Guard, Rule, list};

/// The brake's Pause.
pub(super) const BRAKE_PAUSE: Guard = Guard::Policy(&[
    Check::new(
        "object.metadata.name == 'brake-{operator}' && object.spec.scope == 'Deletes' && \
         has(object.spec.operators) && object.spec.operators == ['{operator}']",
        "{operator} creates only the Pause brake-{operator}, for its own deletions",
    ),
    Check::OWNERS,
    Check::FINALIZERS,
]);

/// The records of the brake and of Pauses, at their creation.
pub(super) const BRAKE_RECORD: Guard = Guard::Policy(&[
    Check::new(
        "object.metadata.name in ['brake-{operator}', 'brake-{operator}-mark', 'pauses-{operator}']",
        "{operator} creates only the ConfigMaps of its brake and of Pauses",
    ),
    Check::LABELS,
    Check::OWNERS,
    Check::FINALIZERS,
]);

/// The records of the brake and of Pauses. Without labels they are no ConfigMaps that a module may read.
pub(super) const BRAKE_RECORD_METADATA: Guard =
    Guard::Policy(&[Check::LABELS, Check::OWNERS, Check::FINALIZERS]);

/// Metadata that a component's operator writes on its components: a finalizer and annotations.
pub const COMPONENT_METADATA: Guard = Guard::Policy(&[
    Check::SPEC,
    Check::OWNERS,
    Check::LABELS,
    Check::new(
        "(has(object.metadata.finalizers) ? object.metadata.finalizers : [])\
         .filter(name, name != '{finalizer-component}') == \
         (has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : [])\
         .filter(name, name != '{finalizer-component}')",
        "{operator} changes only its own finalizers",
    ),
]);

/// Returns constants of `kyma_api` by their placeholders in a [`Check`].
fn constants() -> [(&'static str, String); 11] {
    use kyma_api::{COMPONENT_GROUP, OPERATOR_GROUP, finalizers, labels, release_store};
    let types = release_store::TYPES.map(|name| format!("'{name}'")).join(", ");
    [
        ("{finalizer-component}", finalizers::COMPONENT.to_owned()),
        ("{finalizer-kyma}", finalizers::KYMA.to_owned()),
        ("{finalizer-purge}", finalizers::LEGACY_PURGE.to_owned()),
        ("{finalizer-catalog}", finalizers::CATALOG.to_owned()),
        ("{finalizer-mandatory}", finalizers::MANDATORY_MODULE.to_owned()),
        ("{label-component-crd}", labels::COMPONENT_CRD.to_owned()),
        ("{label-mirror}", labels::MIRROR.to_owned()),
        ("{label-skip}", labels::SKIP_RECONCILIATION.to_owned()),
        ("{own-groups}", format!("['{OPERATOR_GROUP}', '{COMPONENT_GROUP}']")),
        ("{release-store-types}", format!("[{types}]")),
        ("{release-store-names}", release_store::name_pattern()),
    ]
}

/// Returns a text with its placeholders replaced.
fn filled(text: &str, operator: &str, namespace: &str) -> String {
    let text = text.replace("{operator}", operator).replace("{namespace}", namespace);
    constants().iter().fold(text, |text, (word, value)| text.replace(word, value))
}

/// Appends a policy and its binding for each rule that has one. `within`: the namespace in which the rules hold.
///
/// In single-cluster mode, where the operator is also bound to its role for targets, the policies allow everything.
pub(super) fn render(
    out: &mut String,
    operator: &str,
    namespace: &str,
    rules: &[Rule],
    within: Option<&str>,
) {
    for rule in rules {
        let Guard::Policy(checks) = rule.guard else { continue };
        let operations = operations(rule.verbs);
        let name = policy_name(operator, rule, &operations);
        let _ = write!(
            out,
            "---\n# Limits what the role above lets {operator} write: {}\n\
             apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata:\n  name: {name}\n\
             spec:\n  failurePolicy: Fail\n  matchConstraints:\n    resourceRules:\n",
            rule.why
        );
        let _ = writeln!(out, "      - apiGroups: {}", list(rule.groups));
        let _ = writeln!(out, "        apiVersions: [\"*\"]\n        operations: {}", list(&operations));
        let _ = writeln!(out, "        resources: {}", list(rule.resources));
        if !rule.names.is_empty() {
            let _ = writeln!(out, "        resourceNames: {}", list(rule.names));
        }
        let user = format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{operator}'");
        let _ = writeln!(out, "  matchConditions:");
        condition(out, "operator", &user);
        if let Some(within) = within {
            condition(out, "hub-namespace", &format!("request.namespace == '{within}'"));
        }
        condition(
            out,
            "no-single-cluster",
            "!authorizer.group('rbac.authorization.k8s.io').resource('clusterroles').check('escalate').allowed()",
        );
        let _ = writeln!(out, "  validations:");
        let filled = |text: &str| filled(text, operator, namespace);
        for check in checks {
            let _ = writeln!(out, "    - expression: {}", quoted(&filled(check.expression)));
            let _ =
                writeln!(out, "      message: {}\n      reason: Forbidden", quoted(&filled(check.message)));
        }
        let _ = write!(
            out,
            "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata:\n  \
             name: {name}\nspec:\n  policyName: {name}\n  validationActions: [\"Deny\"]\n"
        );
    }
}

fn condition(out: &mut String, name: &str, expression: &str) {
    let _ = writeln!(out, "    - name: {name}\n      expression: {}", quoted(expression));
}

/// Returns the admission operations of these verbs. A patch is an UPDATE, and a CREATE if it creates the object.
fn operations(verbs: &[&str]) -> Vec<&'static str> {
    let of = |operation, words: &[&str]| verbs.iter().any(|verb| words.contains(verb)).then_some(operation);
    [of("CREATE", &["create"]), of("UPDATE", &["update", "patch"]), of("DELETE", &["delete"])]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the name of a rule's policy. Unique, since no two rules of an operator have the same resource and
/// operations.
fn policy_name(operator: &str, rule: &Rule, operations: &[&str]) -> String {
    let resources = rule.resources.join("-").replace('/', "-");
    let group = match rule.groups {
        [""] | [] => "core",
        [group, ..] => *group,
    };
    format!("{operator}-{}-{resources}.{group}", operations.join("-").to_lowercase())
}

/// Returns a YAML double-quoted scalar, which has JSON's escapes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;

    use super::*;
    use crate::rbac::{Side, Table};

    fn table(rule: Rule) -> Table {
        Table { operator: "x-operator", hub_namespace: vec![rule], ..Table::default() }
    }

    fn policies(table: &Table, side: Side) -> Vec<ValidatingAdmissionPolicy> {
        let yaml = table.render("hub", side);
        let documents = yaml.split("---\n").filter(|text| text.contains("kind: ValidatingAdmissionPolicy\n"));
        documents.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
    }

    #[test]
    fn a_guarded_rule_is_rendered_with_its_policy() {
        let rule = Rule::new(&["x.io"], &["xs"], &["get", "create", "patch"], "apply")
            .guarded(Guard::Policy(&[Check::SPEC]));
        let rendered = policies(&table(rule), Side::Hub);
        assert_eq!(rendered.len(), 1);
        let spec = rendered[0].spec.clone().unwrap();
        assert_eq!(rendered[0].metadata.name.as_deref(), Some("x-operator-create-update-xs.x.io"));
        let conditions = spec.match_conditions.unwrap();
        assert!(conditions[0].expression.contains("'system:serviceaccount:hub:x-operator'"));
        assert_eq!(conditions[1].expression, "request.namespace == 'hub'");
        let validations = spec.validations.unwrap();
        assert_eq!(validations[0].message.as_deref(), Some("x-operator does not change the spec"));
        let matched = spec.match_constraints.unwrap().resource_rules.unwrap();
        assert_eq!(matched[0].operations, Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]));
    }

    #[test]
    fn targets_and_single_clusters_get_no_policy() {
        let rule = Rule::new(&["x.io"], &["xs"], &["patch"], "apply").guarded(Guard::Policy(&[Check::SPEC]));
        let table = table(rule);
        assert!(
            policies(&table, Side::Target).is_empty() && policies(&table, Side::SingleCluster).is_empty()
        );
    }

    #[test]
    fn a_rule_that_writes_has_to_say_what_limits_it() {
        let writes = Rule::new(&["x.io"], &["xs"], &["list", "delete"], "apply");
        assert_eq!(table(writes).unguarded().len(), 1);
        assert!(table(writes.guarded(Guard::Role("by name"))).unguarded().is_empty());
        assert!(table(Rule::new(&["x.io"], &["xs"], &["get"], "observe")).unguarded().is_empty());
    }
}
