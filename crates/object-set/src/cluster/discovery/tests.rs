use kube::core::discovery::v2::APIGroupDiscoveryList;
use serde_json::json;
use testbed::ScriptedServer;

use super::kinds::mapping_of;
use super::*;
use crate::object::{GroupKind, Identity};

fn list(value: serde_json::Value) -> APIGroupDiscoveryList {
    serde_json::from_value(value).unwrap()
}

fn resource(plural: &str, kind: &str, scope: &str) -> serde_json::Value {
    json!({"resource": plural, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": scope,
        "verbs": ["get", "list"], "subresources": [{"subresource": "status", "responseKind": {"kind": kind}, "verbs": ["get"]}]})
}

fn kinds() -> Kinds {
    let mut kinds = Kinds::default();
    kinds.add(list(json!({"items": [{"versions": [{"version": "v1", "freshness": "Current", "resources": [
        resource("configmaps", "ConfigMap", "Namespaced"), resource("namespaces", "Namespace", "Cluster")]}]}]})));
    kinds.add(list(json!({"items": [
        {"metadata": {"name": "x.io"}, "versions": [
            {"version": "v2", "freshness": "Current", "resources": [resource("things", "Thing", "Namespaced")]},
            {"version": "v1", "freshness": "Current", "resources": [resource("things", "Thing", "Namespaced")]}]},
        {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale", "resources": []}]}]})));
    kinds
}

#[test]
fn kinds_are_found_in_their_own_and_in_the_preferred_version() {
    let kinds = kinds();
    let thing = |version: &str| Gvk::new("x.io", version, "Thing");
    assert_eq!(kinds.get(&thing("v1")).unwrap().resource.plural, "things");
    assert!(kinds.get(&thing("v3")).is_none());
    assert_eq!(kinds.any(&thing("v3")).unwrap().resource.version, "v2");
    assert_eq!(kinds.versions(&GroupKind::new("x.io", "Thing")).len(), 2);
}

#[test]
fn a_group_whose_backend_is_down_is_unknown_and_not_empty() {
    let kinds = kinds();
    assert!(kinds.is_unknown("metrics.k8s.io"));
    assert!(!kinds.is_unknown("x.io") && !kinds.is_unknown(""));
    assert_eq!(kinds.unknown().collect::<Vec<_>>(), ["metrics.k8s.io/v1beta1"]);
}

#[test]
fn group_with_failed_backend_is_unknown_like_a_silent_one() {
    let with = |freshness: &str| {
        let pods = resource("pods", "PodMetrics", "Namespaced");
        let version = json!({"version": "v1beta1", "freshness": freshness, "resources": [pods]});
        let mut kinds = Kinds::default();
        kinds.add(list(json!({"items": [{"metadata": {"name": "metrics.k8s.io"}, "versions": [version]}]})));
        kinds
    };
    let (up, down) = (with("Current"), with("Stale"));
    let kind = GroupKind::new("metrics.k8s.io", "PodMetrics");
    assert!(up.preferred(&kind).is_some() && !up.is_unknown("metrics.k8s.io"));
    assert!(down.preferred(&kind).is_none() && down.is_unknown("metrics.k8s.io"));
    assert_eq!(down.all().count(), 0, "nobody asks for its objects");
    assert_eq!(down.api_versions(), ["metrics.k8s.io/v1beta1", "metrics.k8s.io/v1beta1/PodMetrics"]);
    assert_eq!(down.api_versions(), up.api_versions(), "no chart is rendered anew for that");
}

#[test]
fn api_versions_have_the_form_that_helm_takes() {
    let expected = [
        "metrics.k8s.io/v1beta1",
        "v1",
        "v1/ConfigMap",
        "v1/Namespace",
        "x.io/v1",
        "x.io/v1/Thing",
        "x.io/v2",
        "x.io/v2/Thing",
    ];
    assert_eq!(kinds().api_versions(), expected);
}

#[test]
fn namespaces_are_defaulted_by_scope() {
    let kinds = kinds();
    let scoped = |group: &str, kind: &str, namespace| {
        kinds.scoped(&Identity::new(group, kind, namespace, "n"), "d").namespace
    };
    assert_eq!(scoped("", "ConfigMap", None), Some("d".into()));
    assert_eq!(scoped("", "ConfigMap", Some("own")), Some("own".into()));
    assert_eq!(scoped("", "Namespace", Some("own")), None);
    assert_eq!(scoped("unknown.io", "Thing", None), None);
}

/// Returns the mappings of the kind of a CRD.
fn crd(group: &str, plural: &str, kind: &str, versions: &[&str]) -> Vec<Mapping> {
    let mapping = |version: &&str| {
        let found = serde_json::from_value(resource(plural, kind, "Namespaced")).unwrap();
        mapping_of(group, version, found).unwrap()
    };
    versions.iter().map(mapping).collect()
}

fn cached(kinds: Kinds) -> Discovery {
    Discovery { cached: Mutex::new(Some(Arc::new(kinds))) }
}

#[tokio::test]
async fn kinds_of_crds_are_added_without_a_request() {
    let server = ScriptedServer::start().await.unwrap();
    let client = server.access().client().unwrap();
    let discovery = cached(kinds());
    let seen = discovery.kinds(&client).await.unwrap();
    discovery.add_crds(&[crd("x.io", "things", "Thing", &["v2", "v1"])]).await;
    assert!(Arc::ptr_eq(&seen, &discovery.kinds(&client).await.unwrap()), "the CRD has no new version");

    let gadgets = crd("y.io", "gadgets", "Gadget", &["v1", "v1beta1"]);
    discovery.add_crds(&[gadgets, crd("x.io", "things", "Thing", &["v3", "v2", "v1"])]).await;
    let extended = discovery.kinds(&client).await.unwrap();
    let thing = GroupKind::new("x.io", "Thing");
    assert_eq!(extended.preferred(&thing).unwrap().resource.version, "v3");
    assert!(extended.get(&Gvk::new("y.io", "v1beta1", "Gadget")).is_some());
    assert!(extended.api_versions().contains(&"y.io/v1beta1".to_owned()));
    assert_eq!(seen.preferred(&thing).unwrap().resource.version, "v2", "an earlier result stays");
    assert!(server.requests().is_empty(), "{:?}", server.requests());

    // The added kinds do not prove that another kind is absent.
    assert!(discovery.newer_than(&seen, &client).await.is_err(), "the server has no discovery");
    assert!(!server.requests().is_empty());
}

#[tokio::test]
async fn a_crd_that_may_remove_something_needs_a_new_discovery() {
    let other_scope = || {
        let mut crd = crd("x.io", "things", "Thing", &["v2", "v1"]);
        for mapping in &mut crd {
            mapping.namespaced = false;
        }
        crd
    };
    let cases = [
        ("a version less", crd("x.io", "things", "Thing", &["v3", "v2"])),
        ("another kind", crd("x.io", "things", "Item", &["v2", "v1"])),
        ("another plural", crd("x.io", "items", "Thing", &["v2", "v1"])),
        ("another scope", other_scope()),
        ("a group that does not answer", crd("metrics.k8s.io", "things", "Thing", &["v1"])),
        ("no version", vec![]),
    ];
    for (case, crd) in cases {
        let discovery = cached(kinds());
        discovery.add_crds(&[crd]).await;
        assert!(discovery.cached.lock().await.is_none(), "{case}");
    }
}
