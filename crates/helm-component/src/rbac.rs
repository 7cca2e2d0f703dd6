//! RBAC table of helm-component, with a reason for each rule.

use kyma_controller::rbac::Check;
use kyma_controller::{Guard, Rule};

/// Rules on the hub, in the operator's namespace.
pub(crate) const HUB_RULES: &[Rule] = &[
    Rule::new(
        &[""],
        &["configmaps"],
        &["get", "list", "watch"],
        "values that components take from ConfigMaps; the watch has only metadata and requeues waiting components",
    ),
    Rule::new(
        &[""],
        &["secrets"],
        &["create", "patch"],
        "store rollback targets, hooks of removals and renders that are not deterministic (an apply counts as create)",
    )
    .guarded(RELEASE_STORE),
];

/// Secrets of the release store only. Another type could hold the token of any ServiceAccount, another name or label
/// an access Secret.
const RELEASE_STORE: Guard = Guard::Policy(&[
    Check::new(
        "object.type in {release-store-types} && object.metadata.name.matches('{release-store-names}')",
        "{operator} writes only Secrets of its release store",
    ),
    Check::new(
        "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.all(owner, \
         owner.kind == 'HelmComponent' && owner.apiVersion.startsWith('component.kyma-project.io/'))",
        "a Secret of the release store belongs to a HelmComponent",
    ),
    Check::LABELS,
    Check::FINALIZERS,
]);

/// Rules on targets. Modules bring objects of any kind, including roles, so the rules cannot be narrower.
pub(crate) const TARGET_RULES: &[Rule] = &[
    Rule::new(
        &["*"],
        &["*"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "apply, watch, prune and remove objects of modules, of any kind, and Helm's records of releases",
    ),
    Rule::new(
        &["rbac.authorization.k8s.io"],
        &["roles", "clusterroles"],
        &["escalate", "bind"],
        "write roles and bindings of modules: the apiserver requires these verbs from their writer",
    ),
    Rule::new(
        &[""],
        &["serviceaccounts"],
        &["impersonate"],
        "act as the ServiceAccount that a component names; the names are not known in advance",
    ),
];
