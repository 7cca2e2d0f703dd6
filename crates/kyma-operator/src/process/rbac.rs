//! Permissions of kyma-operator and their reasons.

use kyma_controller::rbac::{Check, Table};
use kyma_controller::{Guard, Rule};

const OPERATOR: &[&str] = &["operator.kyma-project.io"];
const CORE: &[&str] = &[""];
const CRDS: &[&str] = &["apiextensions.k8s.io"];
const ADMISSION: &[&str] = &["admissionregistration.k8s.io"];

/// Returns the table from which all roles are rendered.
pub fn table() -> Table {
    Table {
        operator: crate::FIELD_MANAGER,
        hub_cluster: hub_cluster(),
        hub_namespace: hub_namespace(),
        target: target(),
        aggregated: Vec::new(),
        dependents: Vec::new(),
    }
}

fn hub_cluster() -> Vec<Rule> {
    vec![
        Rule::new(
            CORE,
            &["namespaces"],
            &["get"],
            "start: the identity of the hub; deletion: whether the namespace is being deleted",
        ),
        Rule::new(
            CRDS,
            &["customresourcedefinitions"],
            &["get", "list", "watch"],
            "observe: the component kinds; deletion: whether the CRD of a Kyma or ModuleReleaseMeta is being deleted",
        ),
        Rule::new(
            CRDS,
            &["customresourcedefinitions"],
            &["create", "patch"],
            "apply: install and extend the CRDs in modules for their components",
        )
        .guarded(COMPONENT_CRDS),
    ]
}

/// CRDs of component kinds in groups that the hub's administrator permits. Roles of their reconcilers aggregate into
/// kyma-operator's role.
const COMPONENT_CRDS: Guard = Guard::Policy(&[
    Check::new(
        "has(object.metadata.labels) && '{label-component-crd}' in object.metadata.labels && \
         object.metadata.labels['{label-component-crd}'] == 'true' && (oldObject == null || \
         has(oldObject.metadata.labels) && '{label-component-crd}' in oldObject.metadata.labels && \
         oldObject.metadata.labels['{label-component-crd}'] == 'true')",
        "{operator} writes only CustomResourceDefinitions with its label",
    ),
    Check::new(
        "!(object.spec.group in {own-groups}) && object.spec.group.contains('.') && \
         !(('.' + object.spec.group).endsWith('.k8s.io'))",
        "{operator} writes no CustomResourceDefinition of a reserved group",
    ),
    Check::new(
        "authorizer.group(object.spec.group).resource(object.spec.names.plural).namespace('{namespace}')\
         .check('create').allowed()",
        "{operator} writes only CustomResourceDefinitions of kinds that it may create: install the role of the \
         component's reconciler first",
    ),
    Check::new(
        "!has(object.spec.conversion) || object.spec.conversion.strategy == 'None'",
        "{operator} writes no CustomResourceDefinition with a conversion webhook",
    ),
    Check::new(
        "oldObject == null || oldObject.spec.versions.all(old, object.spec.versions.exists(new, \
         new.name == old.name && (new.served || !old.served)))",
        "{operator} removes no version of a CustomResourceDefinition",
    ),
    Check::OWNERS,
    Check::FINALIZERS,
]);

/// Limits writes on Kymas and ModuleReleaseMetas to labels, annotations and a finalizer.
const METADATA: Guard = Guard::Policy(&[
    Check::SPEC,
    Check::OWNERS,
    Check::new(
        "(has(object.metadata.finalizers) ? object.metadata.finalizers : []).filter(name, \
         !(name in ['{finalizer-kyma}', '{finalizer-purge}', '{finalizer-mandatory}'])) == \
         (has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : []).filter(name, \
         !(name in ['{finalizer-kyma}', '{finalizer-purge}', '{finalizer-mandatory}']))",
        "{operator} changes only its own finalizers",
    ),
]);

/// A Manifest without the label that makes Kyma Lifecycle Manager skip it could install anything.
const MIRRORS: Guard = Guard::Policy(&[Check::new(
    "has(object.metadata.labels) && ['{label-mirror}', '{label-skip}'].all(name, \
     name in object.metadata.labels && object.metadata.labels[name] == 'true') && (oldObject == null || \
     has(oldObject.metadata.labels) && '{label-mirror}' in oldObject.metadata.labels)",
    "{operator} writes only Manifests that are read-only copies of components",
)]);

const STATUS: Guard = Guard::Role("the status subresource changes neither spec nor metadata");

/// Returns the rules in the hub namespace. Rules for components come from aggregated roles.
fn hub_namespace() -> Vec<Rule> {
    let mut rules = kyma_controller::rbac::pauses(&[
        "brake-kyma-operator",
        "brake-kyma-operator-mark",
        "pauses-kyma-operator",
    ]);
    rules.extend([
        Rule::new(OPERATOR, &["kymas"], &["list", "watch"], "observe: the Kymas"),
        Rule::new(OPERATOR, &["kymas"], &["get"], "session: the fencing generation of a target"),
        Rule::new(
            OPERATOR,
            &["kymas"],
            &["patch"],
            "claim: the operator's label and finalizer; hand-over: record that the operator stopped",
        )
        .guarded(METADATA),
        Rule::new(OPERATOR, &["kymas/status"], &["patch"], "report: the status").guarded(STATUS),
        Rule::new(
            OPERATOR,
            &["moduleconfigs/status", "pauses/status"],
            &["patch"],
            "report: the Kymas that a ModuleConfig selects; whether a Pause is in force",
        )
        .guarded(STATUS),
        Rule::new(
            OPERATOR,
            &["manifests"],
            &["list", "watch", "create", "patch"],
            "mirror: read-only copies of components for readers of KLM's Manifests, with --manifest-mirror",
        )
        .guarded(MIRRORS),
        Rule::new(
            OPERATOR,
            &["manifests/status"],
            &["patch"],
            "mirror: their status, and that of Manifests that KLM handed over",
        )
        .guarded(STATUS),
        Rule::new(
            CORE,
            &["secrets"],
            &["get"],
            "observe: kubeconfigs; deletion: whether the access Secret was deleted",
        ),
        Rule::new(
            CORE,
            &["secrets"],
            &["list", "watch"],
            "observe: changes of access Secrets (metadata only)",
        ),
        Rule::new(&["events.k8s.io"], &["events"], &["create", "patch"], "report: events for people")
            .guarded(Guard::Role("no operator reads events")),
    ]);
    rules.extend(catalogue());
    rules
}

/// Returns the rules for the catalogue: ModuleTemplates, ModuleReleaseMetas and ModuleConfigs.
fn catalogue() -> [Rule; 3] {
    [
        Rule::new(
            OPERATOR,
            &["moduletemplates", "modulereleasemetas"],
            &["list", "watch"],
            "observe: the catalogue",
        ),
        Rule::new(
            OPERATOR,
            &["modulereleasemetas"],
            &["patch"],
            "mandatory: the operator's finalizer, which keeps a deleted one until no Kyma has its module",
        )
        .guarded(METADATA),
        Rule::new(
            OPERATOR,
            &["moduleconfigs"],
            &["get", "list", "watch"],
            "observe: central configuration, and whether one that is missing was deleted",
        ),
    ]
}

fn target() -> Vec<Rule> {
    vec![
        Rule::new(CORE, &["namespaces"], &["get"], "session: the identity of the cluster (uid of kube-system)"),
        Rule::new(
            CORE,
            &["namespaces"],
            &["create", "patch"],
            "session: ensure the namespace of the target's Kyma",
        ),
        Rule::new(CORE, &["configmaps"], &["create"], "session: create the stamp with the owner of the target"),
        Rule::new(
            CORE,
            &["configmaps"],
            &["get", "patch", "delete"],
            "session: the stamp; deletion: remove it",
        )
        .named(&[kyma_targets::STAMP_NAME]),
        Rule::new(CRDS, &["customresourcedefinitions"], &["create"], "session: install the Kyma CRD"),
        Rule::new(
            CRDS,
            &["customresourcedefinitions"],
            &["get", "patch", "delete"],
            "session: whether the Kyma CRD exists and is the operator's; deletion: remove it once no Kyma is left",
        )
        .named(&["kymas.operator.kyma-project.io"]),
        Rule::new(
            OPERATOR,
            &["kymas"],
            &["get", "list", "watch", "create", "patch", "delete"],
            "observe: the user's selection; creation, labels and deletion of the target's Kyma",
        ),
        Rule::new(OPERATOR, &["kymas/status"], &["patch"], "report: the status, for the target's users"),
        Rule::new(
            CORE,
            &["secrets"],
            &["get", "list", "watch", "create", "patch"],
            "pull secret: the copy of the hub's, if --skr-image-pull-secret gives it this name; another \
             name needs its own rule",
        )
        .named(&[crate::target::pull_secret::DEFAULT_SECRET_NAME]),
        Rule::new(
            ADMISSION,
            &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
            &["get", "list", "watch", "create", "patch", "delete"],
            "admission: the rules of ModuleConfigs on modules' objects",
        ),
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
