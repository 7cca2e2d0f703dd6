//! Default release names that two components of a target would share: release names have no dots, so the components
//! `a.b` and `a-b` both get the release `a-b`.

use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, ResourceExt};
use kyma_api::{HelmComponent, Reason, condition};
use kyma_controller::{Failure, Index};
use kyma_sdk::Context;
use parking_lot::Mutex;

use crate::component_key::ComponentKey;
use crate::plan::Operation;
use crate::release;

/// Page size for lists of components.
const PAGE: u32 = 500;
/// Interval at which a refused component is checked again: the other one may be deleted.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// End of the message for a refused component.
const REMEDY: &str = "and this component would get the same name; set spec.release.name";

/// Components whose default release name differs from their own name, by hub namespace and release name. Bounded by the
/// number of components.
#[derive(Debug, Default)]
pub(crate) struct AlteredNames {
    components: Mutex<Index<(Arc<str>, String), ComponentKey>>,
}

impl AlteredNames {
    /// Removes a component that is gone, or whose spec names its release.
    pub(crate) fn forget(&self, component_key: &ComponentKey) {
        self.components.lock().remove(component_key);
    }

    fn add(&self, component_key: &ComponentKey, name: &str) {
        let key = (Arc::clone(&component_key.namespace), name.to_owned());
        self.components.lock().set(component_key.clone(), [key]);
    }

    fn contains(&self, namespace: &Arc<str>, name: &str) -> bool {
        let key = (Arc::clone(namespace), name.to_owned());
        self.components.lock().dependents(&key).next().is_some()
    }
}

/// Checks the release name of a component that is to be installed for the first time. An installed release keeps its
/// name.
///
/// # Errors
/// If another component has the same default name on the target, or the hub does not answer.
pub(crate) async fn check(
    altered: &AlteredNames,
    context: &Context<HelmComponent>,
    component_key: &ComponentKey,
    operation: Operation,
) -> Result<(), Failure> {
    let component = &*context.resource;
    let Some(name) = release::default_name(component) else {
        altered.forget(component_key);
        return Ok(());
    };
    if *component_key.name != *name && without_dots(&component_key.name) == name {
        altered.add(component_key, &name);
    } else {
        altered.forget(component_key);
    }
    if operation == Operation::Remove || is_installed(component) {
        return Ok(());
    }
    // Without such a name nothing is listed: a first installation of a fleet would list it for each component.
    if !altered.contains(&component_key.namespace, &name) && !is_refused(component) {
        return Ok(());
    }
    let components: Api<HelmComponent> = Api::namespaced(context.hub.clone(), &component_key.namespace);
    for other in components_of(&components, &name).await? {
        // The role allows lists, but no get.
        let only = ListParams::default().fields(&format!("metadata.name={other}"));
        let found = components.list(&only).await.map_err(unlisted)?;
        let default_namespace = &context.settings.target_namespace;
        if found.items.iter().any(|other| takes_precedence(other, component, default_namespace)) {
            return Err(shared(&name, &component_key.namespace, &other));
        }
    }
    Ok(())
}

/// Returns the name of a component as releases have it.
fn without_dots(component: &str) -> String {
    component.replace('.', "-")
}

/// Returns the names of the components with this default release name.
async fn components_of(components: &Api<HelmComponent>, release: &str) -> Result<Vec<String>, Failure> {
    let mut parameters = ListParams::default().limit(PAGE);
    let mut names = Vec::new();
    loop {
        let page = components.list_metadata(&parameters).await.map_err(unlisted)?;
        let listed = page.items.iter().map(ResourceExt::name_any);
        names.extend(listed.filter(|name| without_dots(name) == release));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(names),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn unlisted(error: kube::Error) -> Failure {
    Failure::hub("list components", &error)
}

/// Reports whether another component keeps the default release name that `own` would get too: it is installed, or it
/// is older.
fn takes_precedence(other: &HelmComponent, own: &HelmComponent, default_namespace: &str) -> bool {
    let place = |one: &HelmComponent| {
        let namespace = one.spec.release.as_ref().and_then(|release| release.namespace.clone());
        (one.spec.target.clone(), namespace.unwrap_or_else(|| default_namespace.to_owned()))
    };
    let age = |one: &HelmComponent| (one.metadata.creation_timestamp.clone(), one.metadata.name.clone());
    release::default_name(other) == release::default_name(own)
        && other.metadata.name != own.metadata.name
        && place(other) == place(own)
        && (is_installed(other) || age(other) < age(own))
}

fn is_installed(component: &HelmComponent) -> bool {
    component.status.as_ref().is_some_and(release::is_installed)
}

/// Reports whether the component was refused here, perhaps before the operator was restarted.
fn is_refused(component: &HelmComponent) -> bool {
    let conditions = component.status.as_ref().and_then(|status| status.conditions.as_deref());
    let ready = condition::get(conditions.unwrap_or_default(), condition::types::READY);
    ready.is_some_and(|ready| ready.reason == Reason::SpecInvalid.as_str() && ready.message.contains(REMEDY))
}

fn shared(release: &str, namespace: &str, other: &str) -> Failure {
    let message = format!(
        "the release {release} on this target belongs to HelmComponent {namespace}/{other}, {REMEDY}"
    );
    Failure::new(Reason::SpecInvalid, message).retry_after(CHECK_INTERVAL)
}

#[cfg(test)]
impl AlteredNames {
    /// Reports whether no component is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.components.lock().dependencies() == 0
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;
    use axum::{Json, Router};
    use kube::Client;
    use serde_json::{Value, json};

    use super::*;

    fn component(name: &str, second: u8, spec: &Value, status: &Value) -> HelmComponent {
        let mut spec = spec.clone();
        spec["source"] = json!({});
        let created = format!("2026-01-01T00:00:{second:02}Z");
        serde_json::from_value(json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "metadata": {"name": name, "namespace": "hub", "creationTimestamp": created},
            "spec": spec, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn the_installed_or_older_component_keeps_a_shared_name() {
        let (new, installed) = (json!({}), json!({"digests": {"source": "sha256:1"}}));
        let own = component("a-b", 1, &json!({}), &new);
        let precedes = |other: &HelmComponent| takes_precedence(other, &own, "kyma-system");
        assert!(precedes(&component("a.b", 0, &json!({}), &new)));
        assert!(precedes(&component("a.b", 2, &json!({}), &installed)));
        assert!(!precedes(&component("a.b", 2, &json!({}), &new)), "the other one is refused");
        assert!(!precedes(&own), "a component does not share its name with itself");
    }

    #[test]
    fn named_releases_and_those_of_other_places_are_not_shared() {
        let own = component("a-b", 1, &json!({}), &json!({}));
        let elsewhere = [
            json!({"release": {"name": "a-b"}}),
            json!({"release": {"namespace": "other"}}),
            json!({"target": {"kubeconfigSecretRef": {"name": "other", "key": "config"}}}),
            json!({"module": {"name": "a-b", "version": "1.0.0"}}),
        ];
        for spec in elsewhere {
            let other = component("a.b", 0, &spec, &json!({}));
            assert!(!takes_precedence(&other, &own, "kyma-system"), "{spec}");
        }
        let default = json!({"release": {"namespace": "kyma-system"}});
        assert!(takes_precedence(&component("a.b", 0, &default, &json!({})), &own, "kyma-system"));
    }

    #[test]
    fn a_shared_name_is_a_reason_to_name_the_release() {
        let failure = shared("a-b", "hub", "a.b");
        assert_eq!((failure.reason, failure.retry_after), (Reason::SpecInvalid, Some(CHECK_INTERVAL)));
        assert!(failure.message.contains("HelmComponent hub/a.b"), "{failure}");
        assert!(failure.message.ends_with("set spec.release.name"), "{failure}");
    }

    #[test]
    fn only_components_with_shared_name_are_checked_after_restart() {
        let refused_with = |message: &str| {
            let ready = json!({
                "type": "Ready", "status": "False", "reason": "SpecInvalid", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            is_refused(&component("a-b", 1, &json!({}), &json!({"conditions": [ready]})))
        };
        assert!(refused_with(&shared("a-b", "hub", "a.b").message));
        assert!(!refused_with("spec.source has no content"));
    }

    #[test]
    fn altered_names_are_known_until_their_component_is_gone() {
        let (altered, dotted) = (AlteredNames::default(), ComponentKey::of("hub", "a.b"));
        altered.add(&dotted, "a-b");
        assert!(altered.contains(&dotted.namespace, "a-b") && !altered.contains(&dotted.namespace, "a.b"));
        assert!(!altered.contains(&"other".into(), "a-b"), "of another namespace");
        altered.forget(&dotted);
        assert!(!altered.contains(&dotted.namespace, "a-b"));
    }

    #[tokio::test]
    async fn components_of_a_name_are_found_on_all_pages() {
        let list = |uri: Uri| async move {
            let is_second = uri.query().unwrap_or_default().contains("continue=next");
            let (names, token) = if is_second { (["a-b", "a-c"], "") } else { (["a.b", "b"], "next") };
            let items = names.map(|name| json!({"metadata": {"name": name}}));
            Json(json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {"continue": token}, "items": items,
            }))
        };
        let server: Router = Router::new().fallback(list);
        let components = Api::namespaced(Client::new(server, "default"), "hub");
        assert_eq!(components_of(&components, "a-b").await.unwrap(), ["a.b", "a-b"]);
    }
}
