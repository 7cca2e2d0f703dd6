//! RBAC table of a component: the driver's rules and the component's own.

use kube::{CustomResourceExt, Resource, ResourceExt};
use kyma_controller::rbac::{COMPONENT_METADATA, Table, pauses};
use kyma_controller::{Guard, Rule};

use crate::component::Component;
use crate::dependencies::Kind;

/// Leaks a text, since tables hold `&'static str`.
fn word(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn words(texts: Vec<&'static str>) -> &'static [&'static str] {
    Box::leak(texts.into_boxed_slice())
}

/// Returns the table of one component. Call it once: it leaks the names of the kind.
pub(crate) fn component_table<C: Component>() -> Table {
    let group = words(vec![word(C::Resource::group(&()).into_owned())]);
    let plural = word(C::Resource::plural(&()).into_owned());
    let status = words(vec![word(format!("{plural}/status"))]);
    let plural = words(vec![plural]);
    let crd = word(C::Resource::crd().name_any());
    let own = words(vec![crd]);
    let awaited = words(vec![crd, "pauses.operator.kyma-project.io"]);
    let records = ["brake-{}", "brake-{}-mark", "pauses-{}"].map(|name| word(name.replace("{}", C::NAME)));
    let records = words(records.to_vec());
    let mut hub = hub_namespace(group, plural, status);
    hub.extend(others::<C::Resource>());
    hub.extend(pauses(records));
    Table {
        operator: C::NAME,
        hub_cluster: hub_cluster(own, awaited),
        hub_namespace: with_own(hub, C::HUB_RULES),
        target: with_own(target(), C::TARGET_RULES),
        aggregated: aggregated(group, plural),
        dependents: dependents::<C::Resource>(group, plural).into_iter().collect(),
    }
}

/// Returns the rule to watch HelmComponents, on which any component may depend; `None` if the component is one
/// itself.
fn others<R: Resource<DynamicType = ()>>() -> Option<Rule> {
    let base = Kind::helm();
    let rule = Rule::new(
        &["component.kyma-project.io"],
        &["helmcomponents"],
        &["list", "watch"],
        "wait for HelmComponents that its components depend on",
    );
    (Kind::of::<R>() != base).then_some(rule)
}

/// Returns the component's rules, and those of the driver that they do not cover.
fn with_own(mut rules: Vec<Rule>, own: &[Rule]) -> Vec<Rule> {
    rules.retain(|rule| !own.iter().any(|wider| wider.covers(rule)));
    rules.extend_from_slice(own);
    rules
}

fn hub_cluster(own: &'static [&'static str], awaited: &'static [&'static str]) -> Vec<Rule> {
    const APIEXTENSIONS: &[&str] = &["apiextensions.k8s.io"];
    const CRDS: &[&str] = &["customresourcedefinitions"];
    let (start, end) = (
        "start: wait for its own CRD and that of Pauses",
        "end: a CRD that is being deleted is no deletion request",
    );
    vec![
        Rule::new(APIEXTENSIONS, CRDS, &["list", "watch"], start).named(awaited),
        Rule::new(APIEXTENSIONS, CRDS, &["get"], end).named(own),
        Rule::new(
            &[""],
            &["namespaces"],
            &["get"],
            "identity of the hub (kube-system); end: a namespace that is being deleted is no deletion request",
        ),
    ]
}

fn hub_namespace(
    group: &'static [&'static str],
    plural: &'static [&'static str],
    status: &'static [&'static str],
) -> Vec<Rule> {
    vec![
        Rule::new(group, plural, &["list", "watch"], "watch its own components"),
        Rule::new(group, plural, &["patch"], "finalizer, and the record of the target's identity")
            .guarded(COMPONENT_METADATA),
        Rule::new(group, status, &["patch"], "report").guarded(Guard::Role("the status of its own kind")),
        Rule::new(
            &[""],
            &["secrets"],
            &["get", "list", "watch"],
            "access Secrets, and other Secrets that components name; the watch has only metadata and requeues waiting components",
        ),
        Rule::new(
            &["operator.kyma-project.io"],
            &["kymas"],
            &["list", "watch"],
            "Pauses that select Kymas by labels (metadata only)",
        ),
        Rule::new(
            &["operator.kyma-project.io"],
            &["kymas"],
            &["get"],
            "the fencing generation of a target whose stamp is later than the last known one",
        ),
        Rule::new(&["events.k8s.io"], &["events"], &["create", "patch"], "events on its components")
            .guarded(Guard::Role("no operator reads events")),
    ]
}

fn target() -> Vec<Rule> {
    vec![
        Rule::new(&[""], &["namespaces"], &["get"], "identity of the target").named(&["kube-system"]),
        Rule::new(&[""], &["configmaps"], &["get"], "identity: the stamp").named(&["kyma-target-stamp"]),
        Rule::new(
            &["apiextensions.k8s.io"],
            &["customresourcedefinitions"],
            &["list", "watch"],
            "notice when the target serves a kind that its components depend on (metadata only)",
        ),
    ]
}

fn aggregated(group: &'static [&'static str], plural: &'static [&'static str]) -> Vec<Rule> {
    vec![Rule::new(
        group,
        plural,
        &["get", "list", "watch", "create", "patch", "delete"],
        "kyma-operator creates, changes and removes components of this kind",
    )]
}

/// HelmComponents may depend on components of any other kind: the other direction of [`others`].
fn dependents<R: Resource<DynamicType = ()>>(
    group: &'static [&'static str],
    plural: &'static [&'static str],
) -> Option<Rule> {
    let why = "helm-component waits for components of this kind that HelmComponents depend on";
    (Kind::of::<R>() != Kind::helm()).then(|| Rule::new(group, plural, &["list", "watch"], why))
}
