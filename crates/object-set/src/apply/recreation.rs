//! Deletes and recreates objects with changed immutable fields, if the user allowed that.

use std::sync::Arc;

use super::context::{ApplyContext, DesiredObject};
use super::dry_run::record_without_dry_run;
use super::outcome::{ObjectResult, Outcome};
use crate::cluster::dry_run::NoDryRunReason;
use crate::error::{CallError, Failure};
use crate::inventory::Entry;
use crate::object::{Identity, Object, selects};
use crate::prune::holds_data;
use crate::remove::{ReplacementState, delete_for_replacement};

/// Deletes an object whose immutable field would change, so that it can be created again. Returns any other error, and
/// this one if the user did not allow it.
pub(super) async fn recreate(
    context: &ApplyContext<'_>,
    desired: &DesiredObject<'_>,
    error: CallError,
) -> ObjectResult {
    let DesiredObject { object, target, recorded, options } = *desired;
    let recorded = recorded.filter(|entry| entry.was_sent());
    let Some(entry) = recorded.filter(|entry| may_replace(options.recreate, object, entry)) else {
        return Err(error.into());
    };
    if !matches!(error.failure, Failure::Immutable(_)) {
        return Err(error.into());
    }
    if let Some(dry_run) = &target.cluster.dry_run {
        return Ok(record_without_dry_run(dry_run, desired, NoDryRunReason::Recreation).await);
    }
    let kinds = Arc::clone(&context.kinds);
    let (ownership, protection) = (options.ownership, options.protection);
    let inventory = context.recorded;
    match delete_for_replacement(target.cluster, kinds, inventory, ownership, protection, target.identity)
        .await?
    {
        ReplacementState::Free => {
            // Keeps the uid, since the object may exist until its deletion ends, and counts it as not sent.
            let entry = Entry { hash: String::new(), fingerprint: String::new(), ..entry.clone() };
            Ok((Outcome::Waiting("the old object is being deleted and will be recreated"), Some(entry)))
        }
        ReplacementState::Blocked => Err(error.into()),
    }
}

/// Reports whether a selector matches the object. Kinds that others may rely on must be named by the selector and
/// created by this owner.
fn may_replace(selectors: &[kyma_api::ObjectSelector], object: &Object, entry: &Entry) -> bool {
    let precious = is_precious(&object.identity());
    (entry.created || !precious)
        && selectors
            .iter()
            .any(|selector| selects(selector, object) && (selector.kind.is_some() || !precious))
}

fn is_precious(object: &Identity) -> bool {
    object.is_namespace() || object.is_crd() || holds_data(object)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn shared_kinds_are_replaced_only_by_kind_and_if_created() {
        let may = |selector: &Value, api_version: &str, kind: &str, created: bool| {
            let object =
                json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "n"}});
            let object = Object::from_value(object).unwrap();
            let selectors = [serde_json::from_value(selector.clone()).unwrap()];
            may_replace(&selectors, &object, &Entry { created, ..Entry::default() })
        };
        assert!(may(&json!({}), "apps/v1", "Deployment", false));
        assert!(may(&json!({"kind": "Job"}), "batch/v1", "Job", true));
        assert!(!may(&json!({"kind": "Job"}), "apps/v1", "Deployment", true));
        let precious = [
            ("v1", "Namespace"),
            ("v1", "PersistentVolumeClaim"),
            ("v1", "PersistentVolume"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ];
        for (api_version, kind) in precious {
            assert!(!may(&json!({}), api_version, kind, true), "{kind}");
            assert!(!may(&json!({"name": "a"}), api_version, kind, true), "{kind}");
            assert!(may(&json!({"kind": kind}), api_version, kind, true), "{kind}");
            assert!(!may(&json!({"kind": kind}), api_version, kind, false), "{kind} was there before");
        }
        assert!(!may_replace(
            &[],
            &Object::from_value(json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}})).unwrap(),
            &Entry::default()
        ));
    }
}
