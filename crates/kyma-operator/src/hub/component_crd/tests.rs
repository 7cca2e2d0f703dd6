use serde_json::{Value, json};

use super::*;

fn crd(versions: &[(&str, bool, bool)], colour: &str) -> CustomResourceDefinition {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema =
        json!({ "type": "object", "description": colour, "properties": { "spec": any, "status": any } });
    let version = |(name, served, storage): &(&str, bool, bool)| -> Value {
        json!({ "name": name, "served": served, "storage": storage, "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": schema } })
    };
    serde_json::from_value(json!({
        "metadata": { "name": "widgets.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced", "names": { "kind": "Widget", "plural": "widgets" },
            "versions": versions.iter().map(version).collect::<Vec<_>>() },
    }))
    .unwrap()
}

fn installed(module: &str, version: &str, crd: &CustomResourceDefinition) -> CustomResourceDefinition {
    let kind = ComponentKind::new("example.com/v1", "Widget");
    let offer = Offer { module, version, kind: &kind, crd };
    install(&offer, None).unwrap().unwrap()
}

fn offer(
    module: &str,
    version: &str,
    crd: &CustomResourceDefinition,
    live: &CustomResourceDefinition,
) -> Result<Option<CustomResourceDefinition>, Reason> {
    let kind = ComponentKind::new("example.com/v1", "Widget");
    install(&Offer { module, version, kind: &kind, crd }, Some(live)).map_err(|problem| problem.reason)
}

#[test]
fn versions_are_only_added_and_none_stops_being_served() {
    let live = installed("own", "1.0.0", &crd(&[("v1", true, true), ("v1beta1", true, false)], "red"));
    let desired = crd(&[("v1", false, false), ("v2", true, true)], "blue");
    let offered = Offer {
        module: "own",
        version: "1.1.0",
        kind: &ComponentKind::new("example.com/v2", "Widget"),
        crd: &desired,
    };
    let merged = install(&offered, Some(&live)).unwrap().unwrap();
    let versions: Vec<_> = merged
        .spec
        .versions
        .iter()
        .map(|version| (version.name.as_str(), version.served, version.storage))
        .collect();
    assert_eq!(versions, [("v1", true, false), ("v2", true, true), ("v1beta1", true, false)]);
}

#[test]
fn the_highest_module_version_wins() {
    let live = installed("own", "1.1.0", &crd(&[("v1", true, true)], "red"));
    for (version, wins) in [("1.0.0", false), ("1.1.0", false), ("1.2.0-rc1", true), ("1.2.0", true)] {
        let result = offer("own", version, &crd(&[("v1", true, true)], "blue"), &live).unwrap();
        assert_eq!(result.is_some(), wins, "{version}");
    }
}

#[test]
fn a_crd_of_others_is_never_taken_over() {
    let unmarked = crd(&[("v1", true, true)], "red");
    let of_another = installed("another", "1.0.0", &unmarked);
    for live in [unmarked, of_another] {
        let result = offer("own", "9.0.0", &crd(&[("v1", true, true)], "blue"), &live);
        assert_eq!(result, Err(Reason::CrdConflict));
    }
}

#[test]
fn crd_that_breaks_contract_or_of_other_kind_is_not_installed() {
    let live = installed("own", "1.0.0", &crd(&[("v1", true, true)], "red"));
    let mut cluster_scoped = crd(&[("v1", true, true)], "blue");
    cluster_scoped.spec.scope = "Cluster".to_owned();
    let mut renamed = crd(&[("v1", true, true)], "blue");
    renamed.metadata.name = Some("secrets.example.com".to_owned());
    let mut hooked = crd(&[("v1", true, true)], "blue");
    hooked.spec.conversion = serde_json::from_value(json!({ "strategy": "Webhook" })).ok();
    let mut shadowing = crd(&[("v1", true, true)], "blue");
    shadowing.spec.names.categories = Some(vec!["kyma".to_owned()]);
    for crd in [cluster_scoped, renamed, hooked, shadowing] {
        assert_eq!(offer("own", "2.0.0", &crd, &live), Err(Reason::ContractViolated));
    }
}

#[test]
fn groups_must_be_allowed_and_some_never_are() {
    let allowed = ["example.com", "operator.kyma-project.io", "apps.k8s.io", "k8s.io", "core"]
        .map(str::to_owned)
        .into();
    let is_allowed =
        |api_version: &str, kind: &str| check_group(&ComponentKind::new(api_version, kind), &allowed).is_ok();
    assert!(is_allowed("example.com/v1", "Widget"));
    assert!(is_allowed("component.kyma-project.io/v1alpha1", "HelmComponent"));
    for api_version in
        ["other.com/v1", "operator.kyma-project.io/v1beta2", "apps.k8s.io/v1", "k8s.io/v1", "core/v1", "v1"]
    {
        assert!(!is_allowed(api_version, "Widget"), "{api_version}");
    }
}

#[test]
fn the_mark_of_run_once_is_set_at_creation_only_and_stays() {
    let plain = installed("own", "1.0.0", &crd(&[("v1", true, true)], "red"));
    let marked = |live: Option<&CustomResourceDefinition>, marks_created: bool| {
        let mut desired = plain.clone();
        mark_created(&mut desired, live, marks_created);
        desired
    };
    let mark = |crd: &CustomResourceDefinition| {
        crd.metadata.annotations.as_ref().and_then(|all| all.get(annotations::CREATED_BY_RUN)).cloned()
    };
    assert_eq!(marked(None, false), plain);
    let created = marked(None, true);
    assert_eq!(mark(&created).as_deref(), Some("true"));
    assert_eq!(marked(Some(&plain), true), plain, "it existed before the run");
    assert_eq!(marked(Some(&created), false), created, "an operator that stays keeps the mark");
}

#[test]
fn a_category_must_not_name_another_component_kind() {
    let mut desired = crd(&[("v1", true, true)], "red");
    desired.spec.names.categories = Some(vec!["gadgets".to_owned()]);
    let mut other = crd(&[("v1", true, true)], "red");
    other.spec.names.kind = "Gadget".to_owned();
    other.spec.names.plural = "gadgets".to_owned();
    let kind = ComponentKind::new("example.com/v1", "Widget");
    let offered = Offer { module: "own", version: "1.0.0", kind: &kind, crd: &desired };
    let refused = check_categories(&offered, [&desired, &other]).map_err(|problem| problem.reason);
    assert_eq!(refused, Err(Reason::ContractViolated));
    assert_eq!(check_categories(&offered, [&desired]).map_err(|problem| problem.reason), Ok(()));
}
