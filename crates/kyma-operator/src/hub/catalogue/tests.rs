use std::sync::Arc;

use kyma_api::ModuleTemplateSpec;

use super::*;

fn key(name: &str) -> KymaKey {
    KymaKey::new("kcp-system", name)
}

fn kymas(names: &[&str]) -> AffectedKymas {
    AffectedKymas::from(names.iter().map(|name| key(name)).collect::<BTreeSet<_>>())
}

fn release(channels: &[(&str, &str)], versions: &[(&str, &str)]) -> Release {
    let listed = |(version, message): &(&str, &str)| release::ListedVersion {
        version: (*version).to_owned(),
        deprecation_date: None,
        deprecation_message: Some((*message).to_owned()),
    };
    Release {
        module: "keda".to_owned(),
        channels: channels
            .iter()
            .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()))
            .collect(),
        versions: (!versions.is_empty()).then(|| versions.iter().map(listed).collect()),
        ..Release::default()
    }
}

fn template(name: &str, module: Option<&str>, version: Option<&str>) -> Template {
    Template {
        name: name.to_owned(),
        namespace: "kcp-system".to_owned(),
        generation: Some(1),
        module: module.map(str::to_owned),
        version: version.map(str::to_owned),
        audience: kyma_api::visibility::Audience::default(),
        uid: String::new(),
        digest: String::new(),
        cluster_scoped: false,
        spec: Arc::new(ModuleTemplateSpec::default()),
    }
}

fn subscription(channel: Option<&str>, versions: &[&str]) -> Vec<Subscription> {
    vec![Subscription {
        module: "keda".to_owned(),
        channel: channel.map(str::to_owned),
        versions: versions.iter().map(|version| (*version).to_owned()).collect(),
    }]
}

/// Returns a catalogue with channels regular at 1.0.0 and fast at 1.1.0, one Kyma on each, and one pinned to 1.0.0.
fn followed() -> Catalogue {
    let mut catalogue = Catalogue::default();
    catalogue.apply_release(release(&[("regular", "1.0.0"), ("fast", "1.1.0")], &[("1.0.0", "")]));
    catalogue.subscribe(&key("on-regular"), &subscription(Some("regular"), &["1.0.0"]));
    catalogue.subscribe(&key("on-fast"), &subscription(Some("fast"), &["1.1.0"]));
    catalogue.subscribe(&key("pinned"), &subscription(None, &["1.0.0"]));
    catalogue
}

#[test]
fn a_moved_channel_concerns_its_followers_and_no_pin() {
    let moved = release(&[("regular", "1.2.0"), ("fast", "1.1.0")], &[("1.0.0", "")]);
    assert_eq!(followed().apply_release(moved), kymas(&["on-regular"]));
}

#[test]
fn a_channel_that_comes_or_goes_concerns_its_followers() {
    let without = release(&[("fast", "1.1.0")], &[("1.0.0", "")]);
    let mut catalogue = followed();
    assert_eq!(catalogue.apply_release(without), kymas(&["on-regular"]));
    let with = release(&[("fast", "1.1.0"), ("regular", "1.0.0")], &[("1.0.0", "")]);
    assert_eq!(catalogue.apply_release(with), kymas(&["on-regular"]));
}

#[test]
fn an_edited_version_concerns_those_that_run_it() {
    let edited = release(&[("regular", "1.0.0"), ("fast", "1.1.0")], &[("1.0.0", "use 1.1.0")]);
    assert_eq!(followed().apply_release(edited), kymas(&["on-regular", "pinned"]));
    let added =
        release(&[("regular", "1.0.0"), ("fast", "1.1.0")], &[("1.0.0", ""), ("1.1.0", ""), ("2.0.0", "")]);
    assert_eq!(followed().apply_release(added), kymas(&["on-fast"]));
}

#[test]
fn the_same_again_concerns_nobody() {
    let same = release(&[("regular", "1.0.0"), ("fast", "1.1.0")], &[("1.0.0", "")]);
    assert_eq!(followed().apply_release(same), AffectedKymas::None);
}

#[test]
fn visibility_and_content_concern_all_users_of_the_module() {
    let mut restricted = release(&[("regular", "1.0.0"), ("fast", "1.1.0")], &[("1.0.0", "")]);
    restricted.selector = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector::default());
    assert_eq!(followed().apply_release(restricted), kymas(&["on-fast", "on-regular", "pinned"]));
    assert_eq!(followed().delete_release("keda"), kymas(&["on-fast", "on-regular", "pinned"]));
    assert_eq!(followed().delete_release("nats"), AffectedKymas::None);
}

#[test]
fn a_mandatory_module_concerns_everybody() {
    let mut catalogue = followed();
    let mandatory = Release { mandatory: Some("1.0.0".into()), ..release(&[], &[]) };
    assert_eq!(catalogue.apply_release(mandatory), AffectedKymas::All);
    assert_eq!(catalogue.mandatory().count(), 1);
    assert_eq!(catalogue.apply_template(template("keda-1.0.0", None, None)), AffectedKymas::All);
    assert_eq!(catalogue.delete_release("keda"), AffectedKymas::All);
    assert_eq!(catalogue.mandatory().count(), 0);
}

#[test]
fn withdrawal_affects_all_kymas_once_and_ends_with_new_release() {
    let mandatory =
        |uid: &str| Release { mandatory: Some("1.0.0".into()), uid: uid.into(), ..release(&[], &[]) };
    let mut catalogue = Catalogue::default();
    catalogue.apply_release(mandatory("a"));
    assert_eq!(catalogue.withdraw("keda", "a"), AffectedKymas::All);
    assert_eq!(catalogue.withdraw("keda", "a"), AffectedKymas::None);
    catalogue.apply_release(Release { rollout: true, ..mandatory("a") });
    assert!(catalogue.is_withdrawn("keda"), "a late event of the deleted one");
    catalogue.delete_release("keda");
    assert!(catalogue.is_withdrawn("keda"), "a component may just have been written");
    assert_eq!(catalogue.apply_release(mandatory("b")), AffectedKymas::All);
    assert!(!catalogue.is_withdrawn("keda"));
}

#[test]
fn a_template_concerns_those_that_run_or_miss_its_version() {
    let mut catalogue = followed();
    let named = template("keda-1.1.0", Some("keda"), Some("1.1.0"));
    assert_eq!(catalogue.apply_template(named), kymas(&["on-fast"]));
    let by_name_only = template("keda-1.0.0", None, None);
    assert_eq!(catalogue.apply_template(by_name_only), kymas(&["on-regular", "pinned"]));
    assert_eq!(catalogue.delete_template("keda-1.0.0"), kymas(&["on-regular", "pinned"]));
    assert_eq!(catalogue.delete_template("keda-1.0.0"), AffectedKymas::None);
}

#[test]
fn a_template_is_found_by_its_name_or_by_its_spec() {
    let mut catalogue = Catalogue::default();
    catalogue.apply_template(template("keda-fast", Some("keda"), Some("1.1.0")));
    catalogue.apply_template(template("keda-1.0.0", None, None));
    assert!(catalogue.template("keda", "1.1.0").is_some());
    assert!(catalogue.template("keda", "1.0.0").is_some());
    assert!(catalogue.template("keda", "2.0.0").is_none());
    catalogue.delete_template("keda-fast");
    assert!(catalogue.template("keda", "1.1.0").is_none());
}

#[test]
fn a_template_of_another_module_does_not_pass_by_its_name() {
    let mut catalogue = Catalogue::default();
    catalogue.apply_template(template("keda-1.0.0", Some("nats"), Some("1.0.0")));
    assert!(catalogue.template("keda", "1.0.0").is_none());
    assert!(catalogue.template("nats", "1.0.0").is_some());
}

#[test]
fn a_forgotten_kyma_is_no_longer_concerned() {
    let mut catalogue = followed();
    catalogue.forget(&key("on-regular"));
    let moved = release(&[("regular", "1.2.0"), ("fast", "1.1.0")], &[("1.0.0", "")]);
    assert_eq!(catalogue.apply_release(moved), AffectedKymas::None);
}
