use serde_json::{Value, json};

use super::deletions::MAX_REMEMBERED_DELETIONS;
use super::*;

fn template(name: &str, version: &str, more: &Value) -> Template {
    let mut object = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": format!("{name}-{version}"), "labels": {}},
        "spec": {"moduleName": name, "version": version, "descriptor": {}},
    });
    json_patch::merge(&mut object, more);
    Template::of(serde_json::from_value(object).unwrap())
}

fn release(name: &str, spec: &Value) -> Release {
    let mut object = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"name": name},
        "spec": {"moduleName": name, "ocmComponentName": "kyma-project.io/module/x"},
    });
    json_patch::merge(&mut object["spec"], spec);
    Release::of(serde_json::from_value(object).unwrap())
}

fn channels(pairs: &[(&str, &str)]) -> Value {
    let list = pairs.iter().map(|(channel, version)| json!({"channel": channel, "version": version}));
    json!({"channels": list.collect::<Vec<_>>()})
}

fn labelled(label: &str) -> Value {
    json!({"metadata": {"labels": {label: "true"}}})
}

fn catalogue(templates: Vec<Template>, releases: Vec<Release>) -> Catalogue {
    let mut catalogue = Catalogue::default();
    for template in templates {
        catalogue.apply_template(template);
    }
    for release in releases {
        catalogue.apply_release(release);
    }
    catalogue
}

fn seen_by(catalogue: &Catalogue, kyma: &[(&str, &str)], restricted: &[&str]) -> Vec<String> {
    let labels = kyma.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let restricted = restricted.iter().map(|name| (*name).into()).collect();
    let viewer = Viewer { labels: &labels, restricted: &restricted };
    catalogue.visible_to(&viewer).keys().map(|key| key.name.clone()).collect()
}

fn spec_of(catalogue: &Catalogue, name: &str) -> Value {
    let (labels, restricted) = (BTreeMap::new(), BTreeSet::new());
    let copies = catalogue.visible_to(&Viewer { labels: &labels, restricted: &restricted });
    let (key, copy) = copies.iter().find(|(key, _)| key.name == name).unwrap();
    copy.body(key, "kyma-system", "owner", None)["spec"].clone()
}

#[test]
fn everything_public_is_copied() {
    let catalogue = catalogue(
        vec![template("keda", "1.0.0", &json!({})), template("keda", "1.1.0", &json!({}))],
        vec![release("keda", &channels(&[("regular", "1.0.0"), ("fast", "1.1.0")]))],
    );
    assert_eq!(seen_by(&catalogue, &[], &[]), ["keda-1.0.0", "keda-1.1.0", "keda"]);
}

#[test]
fn e23_beta_and_internal_versions_and_channels_need_their_label() {
    for label in [labels::BETA, labels::INTERNAL] {
        let catalogue = catalogue(
            vec![template("keda", "1.0.0", &json!({})), template("keda", "2.0.0", &labelled(label))],
            vec![release("keda", &channels(&[("regular", "1.0.0"), ("fast", "2.0.0")]))],
        );
        assert_eq!(seen_by(&catalogue, &[], &[]), ["keda-1.0.0", "keda"]);
        let channels = spec_of(&catalogue, "keda")["channels"].clone();
        assert_eq!(channels, json!([{"channel": "regular", "version": "1.0.0"}]));
        assert_eq!(seen_by(&catalogue, &[(label, "true")], &[]), ["keda-1.0.0", "keda-2.0.0", "keda"]);
        assert_eq!(seen_by(&catalogue, &[(label, "false")], &[]), ["keda-1.0.0", "keda"]);
    }
}

#[test]
fn e23_a_module_without_a_visible_version_is_not_shown_at_all() {
    let hidden = catalogue(
        vec![template("keda", "2.0.0", &labelled(labels::BETA))],
        vec![release("keda", &channels(&[("fast", "2.0.0")]))],
    );
    assert!(seen_by(&hidden, &[], &[]).is_empty());
    let missing = catalogue(vec![], vec![release("keda", &channels(&[("fast", "2.0.0")]))]);
    assert!(seen_by(&missing, &[], &[]).is_empty());
}

#[test]
fn e19_mandatory_modules_are_not_in_the_targets_catalogue() {
    let catalogue = catalogue(
        vec![
            template("warden", "1.0.0", &json!({})),
            template("old", "1.0.0", &json!({"spec": {"mandatory": true}})),
        ],
        vec![release("warden", &json!({"mandatory": {"version": "1.0.0"}}))],
    );
    assert!(seen_by(&catalogue, &[], &[]).is_empty());
}

#[test]
fn e44_restricted_modules_are_visible_where_selector_matches() {
    let with = |selector: Value| {
        let mut spec = channels(&[("regular", "1.0.0")]);
        spec["kymaSelector"] = selector;
        catalogue(vec![template("keda", "1.0.0", &json!({}))], vec![release("keda", &spec)])
    };
    let gold = json!({"matchLabels": {"tier": "gold"}});
    let rows = [
        ("nil", Value::Null, &["keda"][..], false),
        ("empty", json!({}), &["keda"], false),
        ("matching", gold.clone(), &["keda"], true),
        ("other", json!({"matchLabels": {"tier": "silver"}}), &["keda"], false),
        (
            "expression",
            json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}),
            &["keda"],
            true,
        ),
        ("selector on a module that is not listed", gold, &[], false),
        ("neither", Value::Null, &[], true),
    ];
    for (name, selector, restricted, visible) in rows {
        let seen = seen_by(&with(selector), &[("tier", "gold")], restricted);
        assert_eq!(!seen.is_empty(), visible, "{name}: {seen:?}");
    }
}

#[test]
fn versions_that_may_be_pinned_are_kept_as_far_as_visible() {
    let versions =
        json!({"versions": [{"version": "1.0.0"}, {"version": "2.0.0"}], "rollout": {"maxUnavailable": 1}});
    let catalogue = catalogue(
        vec![template("keda", "1.0.0", &json!({})), template("keda", "2.0.0", &labelled(labels::BETA))],
        vec![release("keda", &versions)],
    );
    let spec = spec_of(&catalogue, "keda");
    assert_eq!(spec["versions"], json!([{"version": "1.0.0"}]));
    assert_eq!(spec["channels"], json!([]), "Busola reads the list without asking whether there is one");
    assert!(spec.get("rollout").is_none());
}

#[test]
fn what_only_the_hub_needs_of_a_template_stays_there() {
    let more = json!({"spec": {
        "component": {"apiVersion": "x.io/v1", "kind": "X", "crd": {"kind": "CustomResourceDefinition"}},
        "chart": {"url": "oci://registry/chart"},
        "managedResources": [{"group": "x.io", "kind": "X"}, {"group": "x.io", "version": "v1", "kind": "Y"}],
        "data": {"apiVersion": "x.io/v1", "kind": "X"},
    }});
    let catalogue = catalogue(vec![template("keda", "1.0.0", &more)], vec![]);
    let spec = spec_of(&catalogue, "keda-1.0.0");
    let fields: Vec<_> = spec.as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        BTreeSet::from_iter(fields),
        ["associatedResources", "data", "descriptor", "managedResources", "moduleName", "version"]
            .map(String::from)
            .into()
    );
    assert_eq!(spec["associatedResources"], json!([{"group": "x.io", "version": "v1", "kind": "Y"}]));
}

#[test]
fn an_older_name_of_a_template_counts_by_its_spec() {
    let old = json!({"metadata": {"name": "keda-regular"}});
    let catalogue = catalogue(
        vec![template("keda", "1.0.0", &old)],
        vec![release("keda", &channels(&[("regular", "1.0.0")]))],
    );
    assert_eq!(seen_by(&catalogue, &[], &[]), ["keda-regular", "keda"]);
}

#[test]
fn nothing_is_complete_before_both_kinds_were_listed() {
    let mut catalogue = catalogue(vec![template("keda", "1.0.0", &json!({}))], vec![]);
    assert!(catalogue.retain_listed(Kind::Template, &["keda-1.0.0".to_owned()].into()));
    assert!(!catalogue.is_complete());
    assert!(catalogue.retain_listed(Kind::Release, &BTreeSet::new()));
    assert!(catalogue.is_complete() && !catalogue.is_too_incomplete_to_delete(Kind::Template));
    assert!(catalogue.is_too_incomplete_to_delete(Kind::Release), "there is no release at all");
    assert!(!catalogue.retain_listed(Kind::Template, &["keda-1.0.0".to_owned()].into()), "no news");
    assert!(catalogue.retain_listed(Kind::Template, &BTreeSet::new()));
    assert!(Kind::BOTH.iter().all(|kind| catalogue.is_too_incomplete_to_delete(*kind)));
}

#[test]
fn the_same_object_again_is_no_news() {
    let mut catalogue = Catalogue::default();
    assert!(catalogue.apply_template(template("keda", "1.0.0", &json!({}))));
    assert!(!catalogue.apply_template(template("keda", "1.0.0", &json!({}))));
    assert!(catalogue.apply_template(template("keda", "1.0.0", &labelled(labels::BETA))));
}

#[test]
fn the_name_of_a_release_identifies_its_module() {
    let mut other = release("a", &channels(&[("regular", "1.0.0")]));
    other = Release {
        spec: ModuleReleaseMetaSpec {
            kyma_selector: serde_json::from_value(json!({"matchLabels": {"tier": "none"}})).unwrap(),
            ..other.spec
        },
        ..other
    };
    let object = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta", "metadata": {"name": "a"},
        "spec": {"moduleName": "b", "mandatory": {"version": "1.0.0"}},
    });
    let claims_b = Release::of(serde_json::from_value(object).unwrap());
    for foreign in [other, claims_b] {
        let catalogue = catalogue(
            vec![template("b", "1.0.0", &json!({}))],
            vec![release("b", &channels(&[("regular", "1.0.0")])), foreign],
        );
        assert_eq!(seen_by(&catalogue, &[], &["a"]), ["b-1.0.0", "b"]);
    }
}

#[test]
fn the_selector_of_a_release_is_not_copied() {
    let mut spec = channels(&[("regular", "1.0.0")]);
    spec["kymaSelector"] = json!({"matchLabels": {"kyma-project.io/global-account-id": "secret-account"}});
    let catalogue = catalogue(vec![template("keda", "1.0.0", &json!({}))], vec![release("keda", &spec)]);
    let labels = BTreeMap::from([("kyma-project.io/global-account-id".into(), "secret-account".into())]);
    let restricted = BTreeSet::from(["keda".into()]);
    for (key, copy) in catalogue.visible_to(&Viewer { labels: &labels, restricted: &restricted }) {
        let body = copy.body(&key, "kyma-system", "owner", None).to_string();
        assert!(!body.contains("secret-account") && !body.contains("kymaSelector"), "{body}");
    }
}

#[test]
fn release_with_lost_templates_differs_from_a_hidden_one() {
    let keys = ["keda", "gone"].map(|name| Key { kind: Kind::Release, name: name.into() });
    let mut catalogue = catalogue(
        vec![template("keda", "1.0.0", &labelled(labels::BETA)), template("gone", "1.0.0", &json!({}))],
        vec![
            release("keda", &channels(&[("regular", "1.0.0")])),
            release("gone", &channels(&[("regular", "1.0.0")])),
        ],
    );
    let lost = |catalogue: &Catalogue| keys.clone().map(|key| catalogue.has_lost_templates(&key));
    assert_eq!(lost(&catalogue), [false, false]);
    let template = Key { kind: Kind::Template, name: "gone-1.0.0".into() };
    catalogue.remove(&template, false);
    assert_eq!(lost(&catalogue), [false, true]);
    catalogue.remove(&template, true);
    assert_eq!(lost(&catalogue), [false, false], "its deletion was requested");
}

fn key(kind: Kind, name: &str) -> Key {
    Key { kind, name: name.into() }
}

/// Returns a template that only its name assigns to a module and version.
fn unlabelled(name: &str, version: &Value) -> Template {
    let spec = json!({"moduleName": null, "version": version});
    template("keda", "1.0.0", &json!({"metadata": {"name": name}, "spec": spec}))
}

fn restricted_to_gold() -> Value {
    let mut spec = channels(&[("regular", "1.0.0")]);
    spec["versions"] = json!([{"version": "1.1.0"}]);
    spec["kymaSelector"] = json!({"matchLabels": {"tier": "gold"}});
    spec
}

#[test]
fn restricted_release_hides_templates_assigned_only_by_name() {
    let templates = || {
        vec![
            unlabelled("keda-1.0.0", &Value::Null),
            unlabelled("keda-1.1.0", &json!("1.1.0")),
            template("keda", "1.0.0", &json!({"metadata": {"name": "keda-regular"}})),
        ]
    };
    let restricted = catalogue(templates(), vec![release("keda", &restricted_to_gold())]);
    assert!(seen_by(&restricted, &[("tier", "silver")], &["keda"]).is_empty());
    let all = ["keda-1.0.0", "keda-1.1.0", "keda-regular", "keda"];
    assert_eq!(seen_by(&restricted, &[("tier", "gold")], &["keda"]), all);
}

#[test]
fn mandatory_release_hides_template_assigned_only_by_name() {
    let mandatory = json!({"mandatory": {"version": "1.0.0"}});
    let catalogue =
        catalogue(vec![unlabelled("keda-1.0.0", &Value::Null)], vec![release("keda", &mandatory)]);
    assert!(seen_by(&catalogue, &[], &[]).is_empty());
}

#[test]
fn restricted_release_hides_no_template_with_contradicting_spec() {
    let other_module = json!({"metadata": {"name": "keda-1.0.0"}});
    let catalogue = catalogue(
        vec![template("other", "1.0.0", &other_module), unlabelled("keda-1.1.0", &json!("3.0.0"))],
        vec![release("keda", &restricted_to_gold())],
    );
    assert_eq!(seen_by(&catalogue, &[], &["keda"]), ["keda-1.0.0", "keda-1.1.0"]);
}

#[test]
fn restricted_release_hides_unlisted_versions_assigned_by_name() {
    let templates = vec![
        unlabelled("keda-2.0.0", &Value::Null),
        unlabelled("keda-3.0.0", &json!("3.0.0")),
        unlabelled("keda-addons-1.0.0", &Value::Null),
    ];
    let catalogue = catalogue(templates, vec![release("keda", &restricted_to_gold())]);
    assert_eq!(seen_by(&catalogue, &[], &["keda"]), ["keda-addons-1.0.0"], "of another module");
    let all = ["keda-2.0.0", "keda-3.0.0", "keda-addons-1.0.0"];
    assert_eq!(seen_by(&catalogue, &[("tier", "gold")], &["keda"]), all);
}

#[test]
fn template_is_hidden_if_two_hidden_releases_assign_its_name() {
    for version in ["1.0.0", "x-1.0.0"] {
        let catalogue = catalogue(
            vec![unlabelled("keda-x-1.0.0", &json!(version))],
            vec![
                release("keda", &channels(&[("regular", "x-1.0.0")])),
                release("keda-x", &channels(&[("regular", "1.0.0")])),
            ],
        );
        assert!(seen_by(&catalogue, &[], &["keda", "keda-x"]).is_empty(), "{version}");
    }
}

#[test]
fn empty_module_label_assigns_no_module() {
    let empty = json!({
        "metadata": {"labels": {labels::MODULE_NAME: ""}}, "spec": {"moduleName": "", "version": ""},
    });
    let catalogue =
        catalogue(vec![template("keda", "1.0.0", &empty)], vec![release("keda", &restricted_to_gold())]);
    assert!(seen_by(&catalogue, &[], &["keda"]).is_empty());
}

fn with_custom_names(names: &[&str]) -> Catalogue {
    let templates = names.iter().map(|name| template("keda", "1.0.0", &json!({"metadata": {"name": name}})));
    catalogue(templates.collect(), vec![release("keda", &channels(&[("regular", "1.0.0")]))])
}

#[test]
fn requested_deletion_of_custom_named_template_is_recognised() {
    let keda = key(Kind::Release, "keda");
    let regular = key(Kind::Template, "keda-regular");
    let mut catalogue = with_custom_names(&["keda-regular"]);
    assert!(!catalogue.has_lost_templates(&keda));
    assert!(catalogue.remove(&regular, true));
    assert!(catalogue.is_deleted(&regular) && !catalogue.has_lost_templates(&keda));
    // Recreate it, then lose it.
    catalogue.apply_template(template("keda", "1.0.0", &json!({"metadata": {"name": "keda-fast"}})));
    assert!(catalogue.remove(&key(Kind::Template, "keda-fast"), false));
    assert!(catalogue.has_lost_templates(&keda));
}

#[test]
fn version_that_another_template_still_has_is_not_deleted() {
    let keda = key(Kind::Release, "keda");
    let mut catalogue = with_custom_names(&["keda-regular", "keda-fast"]);
    catalogue.remove(&key(Kind::Template, "keda-regular"), true);
    assert!(!catalogue.has_lost_templates(&keda));
    catalogue.retain_listed(Kind::Template, &BTreeSet::new());
    assert!(catalogue.has_lost_templates(&keda), "no deletion of the last template was requested");
}

#[test]
fn unclassified_deletion_keeps_copies_until_it_is_classified() {
    let keda = key(Kind::Release, "keda");
    let regular = key(Kind::Template, "keda-regular");
    for is_requested in [true, false] {
        let mut catalogue = with_custom_names(&["keda-regular"]);
        let origin = catalogue.origin(&regular).unwrap();
        assert!(catalogue.remove_unclassified(&regular));
        assert!(!catalogue.has(&regular) && !catalogue.is_deleted(&regular));
        assert!(catalogue.has_lost_templates(&keda));
        assert_eq!(catalogue.unclassified_deletions(Kind::Template), [(regular.clone(), origin)]);
        assert!(catalogue.unclassified_deletions(Kind::Release).is_empty());
        assert_eq!(catalogue.classify_deletion(&regular, is_requested), is_requested);
        assert_eq!(catalogue.is_deleted(&regular), is_requested);
        assert_eq!(catalogue.has_lost_templates(&keda), !is_requested);
        assert!(catalogue.unclassified_deletions(Kind::Template).is_empty());
    }
}

#[test]
fn object_that_exists_again_is_not_classified() {
    let keda = key(Kind::Release, "keda");
    let mut catalogue = with_custom_names(&["keda-regular"]);
    assert!(catalogue.remove_unclassified(&keda));
    catalogue.apply_release(release("keda", &channels(&[("regular", "1.0.0")])));
    assert!(catalogue.unclassified_deletions(Kind::Release).is_empty());
    assert!(!catalogue.classify_deletion(&keda, true) && !catalogue.is_deleted(&keda));
    assert!(!catalogue.remove_unclassified(&key(Kind::Release, "unknown")));
    assert!(catalogue.unclassified_deletions(Kind::Release).is_empty());
}

#[test]
fn oldest_requested_deletion_is_forgotten_first() {
    let name = |number: usize| key(Kind::Release, &format!("module-{number}"));
    let mut catalogue = Catalogue::default();
    for number in 0..MAX_REMEMBERED_DELETIONS {
        catalogue.remove(&name(number), true);
    }
    assert!(catalogue.is_deleted(&name(0)));
    // A repeated deletion becomes the newest and evicts nothing.
    catalogue.remove(&name(0), true);
    assert!(catalogue.is_deleted(&name(1)));
    catalogue.remove(&name(MAX_REMEMBERED_DELETIONS), true);
    assert!(!catalogue.is_deleted(&name(1)));
    for number in [0, 2, MAX_REMEMBERED_DELETIONS] {
        assert!(catalogue.is_deleted(&name(number)), "{number}");
    }
}

#[test]
fn catalogue_change_is_noticed_by_next_lost_template_check() {
    let keda = key(Kind::Release, "keda");
    let mut catalogue = with_custom_names(&[]);
    assert!(catalogue.has_lost_templates(&keda));
    catalogue.apply_template(template("keda", "1.0.0", &json!({})));
    assert!(!catalogue.has_lost_templates(&keda));
    catalogue.apply_release(release("keda", &channels(&[("regular", "2.0.0")])));
    assert!(catalogue.has_lost_templates(&keda));
    assert!(!catalogue.has_lost_templates(&key(Kind::Template, "keda")));
    catalogue.retain_listed(Kind::Release, &BTreeSet::new());
    assert!(!catalogue.has_lost_templates(&keda));
}
