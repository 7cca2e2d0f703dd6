//! The module's default custom resource (`spec.resource`): the next action, its record in the status, and whether an
//! existing object is the component's. Pure.

use kube::api::ObjectMeta;
use kyma_api::{CreatedResource, FreeForm, Reason, ResourcePolicy, annotations, labels};
use serde::Deserialize;

use crate::failure::Failure;

/// Status field that records the default custom resource.
pub const RESOURCE: &str = "resource";

/// Reports whether `creator` created the object for this owner. Any user can copy a label; only the creator of an
/// object has its entry in `managedFields`.
pub fn is_created_for(live: &ObjectMeta, owner: &str, creator: &str) -> bool {
    let mut entries = live.managed_fields.iter().flatten();
    has_owner(live, owner) && entries.any(|entry| entry.manager.as_deref() == Some(creator))
}

/// Reports whether the default custom resource was created for an earlier component of the module: if it does not
/// exist, the user deleted it.
pub fn had_default_resource(component: &ObjectMeta) -> bool {
    let annotations = component.annotations.as_ref();
    let created = annotations.and_then(|all| all.get(annotations::DEFAULT_RESOURCE_CREATED));
    created.is_some_and(|value| value == "true")
}

/// Reports whether the object carries the label of this owner.
pub fn has_owner(live: &ObjectMeta, owner: &str) -> bool {
    live.labels.as_ref().and_then(|all| all.get(labels::OWNER)).is_some_and(|held| held == owner)
}

/// Next action for the default custom resource of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Do nothing: no default custom resource is desired or recorded.
    Skip,
    /// Read whether the recorded one exists.
    Confirm(CreatedResource),
    /// Record the one that an earlier component created; do not create it.
    Find,
    /// Create it.
    Create,
}

impl Action {
    /// Returns the action for a component. A recorded default custom resource is never created again.
    pub fn next(
        policy: ResourcePolicy,
        is_desired: bool,
        recorded: Option<CreatedResource>,
        had_before: bool,
    ) -> Self {
        match recorded {
            Some(recorded) => Self::Confirm(recorded),
            None if !is_desired || policy == ResourcePolicy::Ignore => Self::Skip,
            None if had_before => Self::Find,
            None => Self::Create,
        }
    }
}

/// Reads the record in a status.
///
/// # Errors
/// `ContractViolated`: the record has another form. Then it is unknown whether the user deleted the resource.
pub fn recorded_resource(status: &FreeForm) -> Result<Option<CreatedResource>, Failure> {
    let Some(value) = status.get(RESOURCE).filter(|value| !value.is_null()) else { return Ok(None) };
    let recorded = CreatedResource::deserialize(value);
    recorded.map(Some).map_err(|_| {
        let message = "status.resource is not a record of the default custom resource; correct or remove it";
        Failure::new(Reason::ContractViolated, message)
    })
}

/// Returns the record after a read of the target: `absent` unless the object exists with the recorded uid.
pub fn confirmed(recorded: CreatedResource, live: Option<&ObjectMeta>) -> CreatedResource {
    let exists = live.is_some_and(|live| recorded.uid.is_none() || live.uid == recorded.uid);
    CreatedResource { absent: (!exists).then_some(true), ..recorded }
}

/// Returns the record of a resource that this pass did not create. It has a uid only if an earlier pass created the
/// resource; any other one is the user's.
pub fn found(
    identity: CreatedResource,
    live: Option<&ObjectMeta>,
    owner: &str,
    creator: &str,
) -> CreatedResource {
    let created = live.filter(|live| is_created_for(live, owner, creator));
    CreatedResource {
        uid: created.and_then(|live| live.uid.clone()),
        absent: live.is_none().then_some(true),
        ..identity
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CREATOR: &str = "greeting-component-create";

    fn live(uid: &str, owner: &str, manager: &str, operation: &str) -> ObjectMeta {
        let entries = json!([
            {"manager": "kubectl", "operation": "Update"},
            {"manager": manager, "operation": operation},
        ]);
        let meta = json!({"uid": uid, "labels": {labels::OWNER: owner}, "managedFields": entries});
        serde_json::from_value(meta).unwrap()
    }

    fn record(uid: Option<&str>, absent: bool) -> CreatedResource {
        CreatedResource {
            api_version: "example.org/v1".to_owned(),
            kind: "Lamp".to_owned(),
            namespace: Some("kyma-system".to_owned()),
            name: "default".to_owned(),
            uid: uid.map(ToOwned::to_owned),
            absent: absent.then_some(true),
        }
    }

    fn status(resource: &Value) -> FreeForm {
        FreeForm::from_iter([(RESOURCE.to_owned(), resource.clone())])
    }

    #[test]
    fn an_object_is_created_for_its_owner_by_label_and_manager() {
        let is_ours = |live: &ObjectMeta| is_created_for(live, "us", CREATOR);
        for operation in ["Apply", "Update"] {
            assert!(is_ours(&live("u", "us", CREATOR, operation)));
        }
        assert!(!is_ours(&live("u", "others", CREATOR, "Update")));
        assert!(!is_ours(&live("u", "us", "greeting-component", "Apply")), "a copied label");
        assert!(!is_ours(&ObjectMeta::default()));
    }

    #[test]
    fn a_default_resource_is_created_once() {
        let next =
            |recorded, had_before| Action::next(ResourcePolicy::CreateAndDelete, true, recorded, had_before);
        assert_eq!(next(None, false), Action::Create);
        assert_eq!(next(None, true), Action::Find, "created for an earlier component");
        for recorded in [record(Some("u"), false), record(Some("u"), true), record(None, true)] {
            assert_eq!(next(Some(recorded.clone()), false), Action::Confirm(recorded));
        }
    }

    #[test]
    fn ignored_default_resource_is_not_created_and_keeps_record() {
        let next = |recorded| Action::next(ResourcePolicy::Ignore, true, recorded, false);
        assert_eq!(next(None), Action::Skip);
        assert_eq!(Action::next(ResourcePolicy::Ignore, true, None, true), Action::Skip);
        assert_eq!(next(Some(record(Some("u"), true))), Action::Confirm(record(Some("u"), true)));
        let undesired = Action::next(ResourcePolicy::CreateAndDelete, false, None, false);
        assert_eq!(undesired, Action::Skip);
    }

    #[test]
    fn a_record_is_absent_unless_its_uid_exists() {
        let ours = live("u", "us", CREATOR, "Apply");
        let recreated = live("v", "them", "kubectl", "Update");
        let created = || record(Some("u"), false);
        assert_eq!(confirmed(created(), Some(&ours)), created());
        assert_eq!(confirmed(created(), None), record(Some("u"), true), "deleted by the user");
        assert_eq!(confirmed(created(), Some(&recreated)), record(Some("u"), true), "recreated by the user");
        assert_eq!(confirmed(record(Some("u"), true), Some(&ours)), created(), "restored");
        assert_eq!(confirmed(record(None, false), Some(&recreated)), record(None, false), "the user's");
        assert_eq!(confirmed(record(None, false), None), record(None, true));
    }

    #[test]
    fn a_found_resource_is_the_components_only_if_it_created_it() {
        let found = |live: Option<&ObjectMeta>| found(record(None, false), live, "us", CREATOR);
        assert_eq!(found(Some(&live("u", "us", CREATOR, "Apply"))), record(Some("u"), false));
        assert_eq!(found(Some(&live("u", "us", "kubectl", "Update"))), record(None, false));
        assert_eq!(found(None), record(None, true));
    }

    #[test]
    fn an_unreadable_record_is_not_taken_for_none() {
        assert_eq!(recorded_resource(&FreeForm::new()).unwrap(), None);
        assert_eq!(recorded_resource(&status(&Value::Null)).unwrap(), None);
        let held = record(Some("u"), true);
        assert_eq!(recorded_resource(&status(&json!(held))).unwrap(), Some(held));
        let unreadable = recorded_resource(&status(&json!({"name": "default"}))).unwrap_err();
        assert_eq!(unreadable.reason, Reason::ContractViolated);
    }

    #[test]
    fn the_annotation_of_an_earlier_component_counts_only_if_true() {
        let component = |value: &str| ObjectMeta {
            annotations: Some([(annotations::DEFAULT_RESOURCE_CREATED.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        };
        assert!(had_default_resource(&component("true")));
        assert!(!had_default_resource(&component("false")));
        assert!(!had_default_resource(&ObjectMeta::default()));
    }
}
