//! CRDs on the target, and their API versions: the order, and the versions that must stay.

use std::cmp::Ordering;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::object::Object;
use crate::ownership::SET_VERSION;
use crate::remove::remove_required_property;

/// Maximum number of stored versions that are read from a CRD.
const MAX_STORED_VERSIONS: usize = 16;

/// A CRD as it is on the target.
pub(super) struct LiveCrd {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: Value,
    /// API versions in which objects may be stored.
    pub(super) stored: Vec<String>,
}

impl LiveCrd {
    pub(super) fn of(mut found: DynamicObject) -> Self {
        let stored = found.data["status"]["storedVersions"].as_array().into_iter().flatten();
        // The versions come from the target and appear in messages, so their form and number are limited.
        let stored =
            stored.filter_map(Value::as_str).filter(|version| is_label(version)).take(MAX_STORED_VERSIONS);
        let stored = stored.map(str::to_owned).collect();
        let mut spec = found.data.get_mut("spec").map(Value::take).unwrap_or_default();
        // An interrupted removal may have left the property.
        remove_required_property(&mut spec);
        Self { spec, stored, metadata: found.metadata }
    }
}

/// Compares the desired CRD with the live one: by their highest API versions, then by the versions of their sets.
pub(super) fn compare(ours: &Object, live: &LiveCrd) -> Ordering {
    let theirs = live.metadata.annotations.as_ref().and_then(|all| all.get(SET_VERSION));
    let version = ours.annotation(SET_VERSION).unwrap_or_default();
    highest_api_version(ours.body().get("spec"))
        .cmp(&highest_api_version(Some(&live.spec)))
        .then_with(|| compare_versions(version, theirs.map_or("", String::as_str)))
}

/// Adds the needed versions of the live CRD that the desired one lacks; without them, stored objects could not be
/// read.
pub(super) fn keep_versions(ours: &mut Object, live_spec: &Value, needed: impl Fn(&str) -> bool) {
    let Some(live) = live_spec.get("versions").and_then(Value::as_array) else { return };
    let spec = ours.body_mut().get_mut("spec");
    let Some(versions) = spec.and_then(|spec| spec.get_mut("versions")).and_then(Value::as_array_mut) else {
        return;
    };
    for version in live {
        let known = versions.iter().any(|own| own["name"] == version["name"]);
        if !known && version["name"].as_str().is_some_and(&needed) {
            let mut version = version.clone();
            version["storage"] = false.into();
            versions.push(version);
        }
    }
}

fn versions(spec: Option<&Value>) -> impl Iterator<Item = &Value> {
    spec.and_then(|spec| spec.get("versions")?.as_array()).into_iter().flatten()
}

fn serves(spec: Option<&Value>, version: &str) -> bool {
    versions(spec).any(|one| one["name"] == version && one["served"] == true)
}

/// Returns the versions in which objects may be stored and that the desired CRD lacks or no longer serves.
pub(super) fn lost_versions(ours: &Object, live: &LiveCrd) -> Vec<String> {
    let spec = ours.body().get("spec");
    let is_lost = |version: &&String| {
        let has = versions(spec).any(|one| one["name"] == **version);
        !has || serves(Some(&live.spec), version) && !serves(spec, version)
    };
    live.stored.iter().filter(is_lost).cloned().collect()
}

/// Keeps serving the versions that the live CRD serves, since others may use them.
pub(super) fn keep_serving(ours: &mut Object, live_spec: &Value) {
    let spec = ours.body_mut().get_mut("spec").and_then(|spec| spec.get_mut("versions"));
    for version in spec.and_then(Value::as_array_mut).into_iter().flatten() {
        if version["name"].as_str().is_some_and(|name| serves(Some(live_spec), name)) {
            version["served"] = true.into();
        }
    }
}

/// Kubernetes' priority of API versions: `v2` over `v1` over `v1beta2` over `v1beta1` over `v1alpha1` over
/// anything else.
pub(super) fn priority(version: &str) -> (u8, u32, u32) {
    let parse = || -> Option<(u8, u32, u32)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let major = rest[..digits].parse().ok()?;
        let (level, minor) = match &rest[digits..] {
            "" => (3, "0"),
            rest if rest.starts_with("beta") => (2, &rest["beta".len()..]),
            rest => (1, rest.strip_prefix("alpha")?),
        };
        Some((level, major, minor.parse().ok()?))
    };
    parse().unwrap_or_default()
}

fn highest_api_version(spec: Option<&Value>) -> (u8, u32, u32) {
    versions(spec).filter_map(|version| version["name"].as_str()).map(priority).max().unwrap_or_default()
}

/// Compares semantic versions by their precedence; any other text is lower.
fn compare_versions(ours: &str, theirs: &str) -> Ordering {
    let parse = |text: &str| semver::Version::parse(text.trim_start_matches('v')).ok();
    parse(ours).cmp(&parse(theirs)).then_with(|| ours.cmp(theirs))
}

/// Reports whether a text can be the name of an API version.
fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}
