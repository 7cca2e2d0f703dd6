//! Permissions of release-meta-syncer and their reasons.

use kyma_controller::rbac::{Check, Table};
use kyma_controller::{Guard, Rule};

use crate::names::FIELD_MANAGER;

const KYMA_GROUP: &[&str] = &["operator.kyma-project.io"];
const CRD_GROUP: &[&str] = &["apiextensions.k8s.io"];
const CRDS: &[&str] = &["customresourcedefinitions"];
/// The CRDs of the catalogue, by name.
pub(crate) const CATALOGUE_CRDS: [&str; 2] =
    ["moduletemplates.operator.kyma-project.io", "modulereleasemetas.operator.kyma-project.io"];

const CATALOGUE: &[&str] = &["moduletemplates", "modulereleasemetas"];

pub(crate) fn table() -> Table {
    Table {
        operator: FIELD_MANAGER,
        hub_cluster: hub_cluster(),
        hub_namespace: hub_namespace(),
        target: target(),
        aggregated: vec![],
        dependents: vec![],
    }
}

fn hub_cluster() -> Vec<Rule> {
    let start = "start: wait for the hub's CRDs; deletion: whether the CRD is being deleted";
    let identity = "identity: uid of kube-system; deletion: whether the namespace is being deleted";
    vec![
        Rule::new(CRD_GROUP, CRDS, &["get", "list", "watch"], start),
        Rule::new(&[""], &["namespaces"], &["get"], identity),
    ]
}

fn hub_namespace() -> Vec<Rule> {
    let kymas =
        "the Kymas to serve; the operator's finalizer; in a hand-over, record that the operator stopped";
    let status = "report: condition ModuleCatalog; first contact: record the target";
    let catalogue = "the catalogue; a live read before a copy is removed";
    let secrets = "access to targets; lists are of metadata only";
    let mut rules = kyma_controller::rbac::pauses(&[
        "brake-release-meta-syncer",
        "brake-release-meta-syncer-mark",
        "pauses-release-meta-syncer",
    ]);
    rules.extend([
        Rule::new(KYMA_GROUP, &["kymas"], &["get", "list", "watch", "patch"], kymas).guarded(METADATA),
        Rule::new(KYMA_GROUP, &["kymas/status"], &["patch"], status)
            .guarded(Guard::Role("the status subresource changes neither spec nor metadata")),
        Rule::new(KYMA_GROUP, CATALOGUE, &["get", "list", "watch"], catalogue),
        Rule::new(&[""], &["secrets"], &["get", "list", "watch"], secrets),
        Rule::new(&["events.k8s.io"], &["events"], &["create", "patch"], "report: events")
            .guarded(Guard::Role("no operator reads events")),
    ]);
    rules
}

/// Limits writes on Kymas to annotations and the finalizer of release-meta-syncer.
const METADATA: Guard = Guard::Policy(&[
    Check::SPEC,
    Check::OWNERS,
    Check::LABELS,
    Check::new(
        "(has(object.metadata.finalizers) ? object.metadata.finalizers : [])\
         .filter(name, name != '{finalizer-catalog}') == \
         (has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : [])\
         .filter(name, name != '{finalizer-catalog}')",
        "{operator} changes only its own finalizers",
    ),
]);

fn target() -> Vec<Rule> {
    let namespace = "identity: uid of kube-system; the catalogue's namespace";
    let stamp = "identity: read and renew the stamp";
    let copies = "the copies: write, watch, remove";
    let ends = "install and update the CRDs, and remove them at the end";
    let stamp_verbs = &["get", "patch"];
    vec![
        Rule::new(&[""], &["namespaces"], &["get", "create"], namespace),
        Rule::new(&[""], &["configmaps"], &["create"], "identity: the first stamp"),
        Rule::new(&[""], &["configmaps"], stamp_verbs, stamp).named(&[kyma_targets::STAMP_NAME]),
        Rule::new(CRD_GROUP, CRDS, &["create", "list", "watch"], "install the CRDs and watch their changes"),
        Rule::new(CRD_GROUP, CRDS, &["get", "patch", "delete"], ends).named(&CATALOGUE_CRDS),
        Rule::new(KYMA_GROUP, CATALOGUE, &["list", "watch", "create", "patch", "delete"], copies),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_on_the_hub_is_limited() {
        assert_eq!(table().unguarded(), Vec::<&Rule>::new());
    }
}
