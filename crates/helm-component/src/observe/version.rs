//! Detects whether the hub or the target was restored to an earlier state, by the version that objects carry.

use std::collections::BTreeSet;

use kyma_object_set::{Identity, Object};
use semver::Version;

use crate::actions::rollback;
use crate::confirmed::{ALLOW_DOWNGRADE, is_confirmed};
use crate::content::Inputs;
use crate::pass::Pass;
use crate::plan::DriftMode;
use crate::target_cache::Snapshot;

/// Returns the version on the target if it is newer than the desired one and than one whose installation was not
/// completed. Then the hub is older than the target, as after a restore from its backup.
pub(super) fn newer(pass: &Pass<'_>, snapshot: &Snapshot) -> Option<String> {
    let component = &pass.context.resource;
    if !is_judged(pass) {
        return None;
    }
    let status = component.status.as_ref();
    let back = rollback::active_target(pass).map(|target| target.version.as_str());
    let known = [
        back,
        component.spec.module.as_ref().map(|module| module.version.as_str()),
        status.and_then(|status| status.attempted_version.as_deref()),
    ];
    newest_above(known.into_iter().flatten(), versions(pass, snapshot).map(|(_, version)| version))
}

/// Reports whether versions on the target may block the desired one.
pub(super) fn is_judged(pass: &Pass<'_>) -> bool {
    pass.inputs.as_ref().is_ok_and(Inputs::are_versioned)
        && !is_confirmed(&pass.context.resource, ALLOW_DOWNGRADE)
}

/// Reports whether the target has an older version than the applied one: it was restored from a backup, so no later
/// apply is reliable, even if the operator still owns the same fields.
pub(super) fn is_set_back(pass: &Pass<'_>, snapshot: &Snapshot) -> bool {
    let Ok(inputs) = &pass.inputs else { return false };
    let corrects = super::drift_mode(pass) == DriftMode::Correct;
    let is_applied = corrects && pass.state.recorded.digests.inputs.as_ref() == Some(&inputs.digest);
    let Some(desired) = inputs.marks.version.as_deref().filter(|_| is_applied) else { return false };
    let older = versions(pass, snapshot).filter(|(_, found)| is_older(found, desired));
    let older: BTreeSet<&Identity> = older.map(|(identity, _)| identity).collect();
    let loaded = pass.state.loaded.as_ref().filter(|loaded| loaded.inputs == inputs.digest);
    concerns(&older, loaded.map(|loaded| &*loaded.prepared.objects))
}

/// Reports whether one of these objects belongs to the content; surplus objects of an earlier version carry that
/// version rightly. Without loaded content each of them may belong to it, so the content is loaded.
fn concerns(older: &BTreeSet<&Identity>, content: Option<&[Object]>) -> bool {
    let is_wanted = |content: &[Object]| content.iter().any(|object| older.contains(&object.identity()));
    !older.is_empty() && content.is_none_or(is_wanted)
}

fn is_older(version: &str, than: &str) -> bool {
    let order = Version::parse(version).ok().zip(Version::parse(than).ok());
    order.is_some_and(|(version, than)| version.cmp_precedence(&than).is_lt())
}

/// Returns the versions that the component's objects carry. Excludes CRDs, which another owner may have written, and
/// objects that were handed over, which carry the version of another module.
fn versions<'a>(pass: &'a Pass<'_>, snapshot: &'a Snapshot) -> impl Iterator<Item = (&'a Identity, &'a str)> {
    let owner = &*pass.key.owner;
    let ours = snapshot.objects.iter().filter(move |(identity, seen)| {
        seen.observed.owner.as_deref() == Some(owner) && !seen.observed.deleting && !identity.is_crd()
    });
    let ours = ours.filter(|(identity, _)| !pass.received.contains_key(*identity));
    ours.filter_map(|(identity, seen)| Some((identity, seen.version.as_deref()?)))
}

/// Returns the newest version found, if it is newer than every known one. Invalid versions do not count.
fn newest_above<'a>(
    known: impl Iterator<Item = &'a str>,
    found: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let (known, found) = (newest(known)?, newest(found)?);
    found.cmp_precedence(&known).is_gt().then(|| found.to_string())
}

fn newest<'a>(versions: impl Iterator<Item = &'a str>) -> Option<Version> {
    versions.filter_map(|text| Version::parse(text).ok()).max_by(Version::cmp_precedence)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_version_above_all_known_ones_is_newer() {
        let newer = |known: &[&'static str], found: &[&'static str]| {
            newest_above(known.iter().copied(), found.iter().copied())
        };
        assert_eq!(newer(&["1.0.0"], &["1.0.0", "1.1.0"]).as_deref(), Some("1.1.0"));
        assert_eq!(newer(&["1.0.0", "1.1.0"], &["1.1.0"]), None, "the hub knows of it");
        assert_eq!(newer(&["1.10.0"], &["1.9.0"]), None);
        assert_eq!(newer(&["1.0.0"], &["latest"]), None);
        assert_eq!(newer(&["latest"], &["1.0.0"]), None, "nothing to compare with");
    }

    #[test]
    fn remaining_objects_of_an_older_version_do_not_count() {
        let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "new", "namespace": "n"}});
        let content = [Object::from_value(body).unwrap()];
        let new = content[0].identity();
        let left = Identity::new("apps", "Deployment", Some("n"), "old");
        assert!(!concerns(&[&left].into(), Some(&content)));
        assert!(concerns(&[&left, &new].into(), Some(&content)));
        assert!(concerns(&[&left].into(), None), "what the content has is not known");
        assert!(!concerns(&BTreeSet::new(), None));
    }

    #[test]
    fn only_a_lower_version_is_older() {
        assert!(is_older("1.0.0", "1.0.1") && !is_older("1.1.0", "1.1.0") && !is_older("latest", "1.0.0"));
    }
}
