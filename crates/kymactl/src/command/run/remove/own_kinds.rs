//! Components of kinds that kymactl does not reconcile itself: their own operators have to remove them.

use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    discovery,
    error::DiscoveryError,
};
use kyma_api::{COMPONENT_GROUP, Kyma, ModuleTemplate, labels, names::label_selector};
use kyma_controller::is_crd_absent;

use crate::command::run::component::ComponentProgram;
use crate::error::Error;

/// Checks that `--component` names the operator of each component of the Kyma that waits for one.
///
/// # Errors
/// If a component of an own kind has finalizers and no program reconciles its kind.
pub(super) async fn check(client: &Client, kyma: &Kyma, programs: &[ComponentProgram]) -> Result<(), Error> {
    let namespace = kyma.namespace().unwrap_or_default();
    let of_kyma = ListParams::default().labels(&label_selector(labels::KYMA_NAME, &kyma.name_any()));
    for kind in kinds(client, &namespace).await? {
        if programs.iter().any(|program| program.reconciles(&kind.group, &kind.kind)) {
            continue;
        }
        // Without CRD the kind has no components.
        let Some(resource) = served(client, &kind).await? else { continue };
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
        let components = api.list_metadata(&of_kyma).await?;
        // A component without finalizer was never reconciled and disappears without its operator.
        if let Some(component) = components.iter().find(|component| !component.finalizers().is_empty()) {
            return Err(missing_program(&kind, &component.name_any()));
        }
    }
    Ok(())
}

/// Returns the kind in a version that the cluster serves; `None` if it serves none.
async fn served(client: &Client, kind: &GroupVersionKind) -> Result<Option<ApiResource>, Error> {
    let group = match discovery::group(client, &kind.group).await {
        Ok(group) => group,
        Err(kube::Error::Discovery(DiscoveryError::MissingApiGroup(_))) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let of_kind =
        |version| group.versioned_resources(version).into_iter().find(|(one, _)| one.kind == kind.kind);
    Ok(group.versions().find_map(of_kind).map(|(resource, _)| resource))
}

/// Returns the component kinds of the ModuleTemplates in the namespace, except HelmComponent.
async fn kinds(client: &Client, namespace: &str) -> Result<Vec<GroupVersionKind>, Error> {
    if is_crd_absent(client, &ApiResource::erase::<ModuleTemplate>(&())).await? {
        return Ok(Vec::new());
    }
    let api: Api<ModuleTemplate> = Api::namespaced(client.clone(), namespace);
    let templates = api.list(&ListParams::default()).await?;
    let mut kinds: Vec<GroupVersionKind> = Vec::new();
    for kind in templates.iter().filter_map(own_kind) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    Ok(kinds)
}

fn own_kind(template: &ModuleTemplate) -> Option<GroupVersionKind> {
    let component = template.spec.component.as_ref()?;
    let (group, version) = component.api_version.split_once('/')?;
    (group != COMPONENT_GROUP).then(|| GroupVersionKind::gvk(group, version, &component.kind))
}

fn missing_program(kind: &GroupVersionKind, component: &str) -> Error {
    let GroupVersionKind { group, kind, .. } = kind;
    let problem = format!(
        "{kind} {component} of {group} must be removed by the operator of its kind, which is missing: repeat with \
         --component <PROGRAM> for {kind}"
    );
    Error::input("--component", problem)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn template(component: &Value) -> ModuleTemplate {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
            "metadata": {"name": "greeting-1.0.0"},
            "spec": {"moduleName": "greeting", "version": "1.0.0", "descriptor": {}, "component": component},
        }))
        .unwrap()
    }

    #[test]
    fn only_kinds_of_other_groups_need_a_program() {
        let greeting = json!({"apiVersion": "demo.example.org/v1", "kind": "Greeting"});
        let expected = GroupVersionKind::gvk("demo.example.org", "v1", "Greeting");
        assert_eq!(own_kind(&template(&greeting)), Some(expected));
        let helm = json!({"apiVersion": format!("{COMPONENT_GROUP}/v1alpha1"), "kind": "HelmComponent"});
        assert_eq!(own_kind(&template(&helm)), None);
        assert_eq!(own_kind(&template(&Value::Null)), None);
    }

    #[test]
    fn the_error_names_the_component_and_the_flag() {
        let kind = GroupVersionKind::gvk("demo.example.org", "v1", "Greeting");
        let error = missing_program(&kind, "one-greeting");
        assert_eq!(format!("{:?}", error.exit_code()), format!("{:?}", std::process::ExitCode::from(2)));
        let text = error.to_string();
        assert!(text.contains("Greeting one-greeting") && text.contains("--component <PROGRAM>"), "{text}");
    }
}
