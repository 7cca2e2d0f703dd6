//! Reads the catalogue on a target.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Api;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};
use kyma_api::{Reason, labels};
use kyma_controller::{Failure, is_plausible};
use kyma_object_set::drift::fingerprint;
use kyma_targets::Target;

use crate::copy::{Copy, Key, Kind};
use crate::names::FIELD_MANAGER;
use crate::plan::{ExistingObject, Ownership};

/// Page size of lists.
const LIST_PAGE_SIZE: u32 = 100;
/// Maximum number of objects of one kind; a catalogue has some hundreds.
const MAX_OBJECTS_PER_KIND: usize = 5_000;
/// Maximum number of pages of one list.
const MAX_LIST_PAGES: usize = 100;
/// KLM's field manager for the same objects.
const KLM_MANAGER: &str = "catalog-sync";

/// Lists both kinds in the namespace, including objects of users. Returns `None` while a kind is not served.
pub(crate) async fn list_existing_objects(
    target: &Target,
    namespace: &str,
    owner: &str,
    desired: &BTreeMap<Key, Arc<Copy>>,
) -> Result<Option<BTreeMap<Key, ExistingObject>>, Failure> {
    let mut existing = BTreeMap::new();
    for kind in Kind::BOTH {
        let reduced = |object: &DynamicObject| {
            let key = Key { kind, name: object.name_any() };
            let copy = desired.get(&key).map(AsRef::as_ref);
            let reduced = reduce(object, owner, copy);
            (key, reduced)
        };
        let Some(found) = list(target, namespace, kind, reduced).await? else { return Ok(None) };
        existing.extend(found);
    }
    Ok(Some(existing))
}

/// Lists all objects of a kind and reduces them page by page. Returns `None` while the kind is not served.
pub(crate) async fn list<T>(
    target: &Target,
    namespace: &str,
    kind: Kind,
    reduced: impl Fn(&DynamicObject) -> T,
) -> Result<Option<Vec<T>>, Failure> {
    let api: Api<DynamicObject> = Api::namespaced_with(target.client(), namespace, &kind.resource());
    let mut params = ListParams::default().limit(LIST_PAGE_SIZE);
    let mut objects = vec![];
    for _ in 0..MAX_LIST_PAGES {
        let page = match api.list(&params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(None),
            page => page,
        };
        let page =
            page.map_err(|error| Failure::target(&format!("list the target's {}s", kind.word()), &error))?;
        for object in &page.items {
            is_plausible(&object.metadata).map_err(|what| too_much(kind, &what.to_string()))?;
        }
        objects.extend(page.items.iter().map(&reduced));
        if objects.len() > MAX_OBJECTS_PER_KIND {
            return Err(too_much(kind, &format!("more than {MAX_OBJECTS_PER_KIND} objects")));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(Some(objects)),
        }
    }
    Err(too_much(kind, &format!("more than {MAX_LIST_PAGES} pages of one list")))
}

fn too_much(kind: Kind, what: &str) -> Failure {
    Failure::new(Reason::TargetAnswerInvalid, format!("the target's {}s: {what}", kind.word()))
}

/// Reduces an object.
pub(crate) fn reduce(object: &DynamicObject, owner: &str, copy: Option<&Copy>) -> ExistingObject {
    ExistingObject {
        uid: object.uid().unwrap_or_default(),
        fingerprint: fingerprint(&object.metadata, FIELD_MANAGER),
        ownership: ownership(object, owner),
        content: copy.filter(|copy| copy.is_applied(object, owner)).map(|copy| copy.hash.clone()),
    }
}

/// Returns the owner of an object by label and managedFields. The label alone proves nothing: any user can copy or
/// remove it.
fn ownership(object: &DynamicObject, owner: &str) -> Ownership {
    let label = |name: &str| object.labels().get(name).map(String::as_str);
    let made_by =
        |manager: &str| object.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(manager));
    let ours = !fingerprint(&object.metadata, FIELD_MANAGER).is_empty();
    match label(labels::OWNER) {
        None if ours => Ownership::Ours,
        Some(labelled) if ours && labelled == owner && object.metadata.deletion_timestamp.is_some() => {
            Ownership::Deleting
        }
        Some(labelled) if ours && labelled == owner => Ownership::Ours,
        Some(_) if ours => Ownership::Adoptable,
        _ if made_by(KLM_MANAGER) && label(labels::MANAGED_BY) == Some(labels::MANAGED_BY_KYMA) => {
            Ownership::Adoptable
        }
        _ => Ownership::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(labels: &Value, manager: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
            "metadata": {"name": "a", "uid": "u", "labels": labels, "managedFields": [{
                "manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {}},
            }]},
        }))
        .unwrap()
    }

    #[test]
    fn ownership_depends_on_creator_and_not_on_labels_alone() {
        let ours = json!({labels::OWNER: "us", labels::MANAGED_BY: "kyma"});
        let other = json!({labels::OWNER: "other", labels::MANAGED_BY: "kyma"});
        let klm = json!({labels::MANAGED_BY: "kyma"});
        let rows = [
            (&ours, FIELD_MANAGER, Ownership::Ours),
            (&json!({}), FIELD_MANAGER, Ownership::Ours),
            (&other, FIELD_MANAGER, Ownership::Adoptable),
            (&klm, KLM_MANAGER, Ownership::Adoptable),
            (&json!({}), KLM_MANAGER, Ownership::Foreign),
            (&ours, "kubectl", Ownership::Foreign),
            (&json!({}), "kubectl", Ownership::Foreign),
        ];
        for (labels, manager, expected) in rows {
            assert_eq!(ownership(&object(labels, manager), "us"), expected, "{labels} by {manager}");
        }
    }
}
