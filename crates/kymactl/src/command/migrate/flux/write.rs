//! Migrates a release: suspends it, then creates its component.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use kyma_api::{HelmComponent, HelmComponentSpec, condition};
use serde_json::{Value, json};

use super::convert::{Conversion, MIGRATED};
use super::facts::{is_set, text};
use super::read::Flux;
use crate::{error::Error, hub::MANAGER};

/// Result of a migration.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MigrationOutcome {
    /// The release is suspended and the component exists.
    Migrated(String),
    /// Nothing was written.
    NotMigrated(String),
    /// The release is suspended, but the component does not exist.
    OnlySuspended(String),
    /// The component does not exist, and it is unknown whether the release is suspended.
    Unknown(String),
}

impl MigrationOutcome {
    pub(super) fn is_unfinished(&self) -> bool {
        !matches!(self, Self::Migrated(_))
    }

    pub(super) fn says(&self) -> String {
        match self {
            Self::Migrated(component) => format!(
                "suspended, and adopted by HelmComponent {component}; once that is Ready, delete the \
                 HelmRelease while it is suspended"
            ),
            Self::NotMigrated(why) => format!("stays with Flux: {why}"),
            Self::OnlySuspended(why) => format!(
                "suspended, and nothing reconciles it yet: {why}; run the same command again, or resume the HelmRelease"
            ),
            Self::Unknown(why) => format!(
                "it may be suspended, and nothing reconciles it then: {why}; run the same command again, or \
                 check that the HelmRelease is not suspended"
            ),
        }
    }
}

/// Returns the reason why Flux has to keep a release for now.
fn obstacle(release: &Value, converted: &Conversion) -> Option<String> {
    if !converted.is_clean() {
        return Some("resolve the findings above first; without --apply the component is printed".to_owned());
    }
    if release["metadata"]["deletionTimestamp"].is_string() {
        return Some("it is being deleted".to_owned());
    }
    // The status of a suspended release no longer changes.
    if is_set(release, "/spec/suspend") {
        return None;
    }
    let conditions: Vec<Condition> =
        serde_json::from_value(release["status"]["conditions"].clone()).unwrap_or_default();
    let is = |type_: &str| condition::get(&conditions, type_).is_some_and(|found| found.status == "True");
    let observed = release["status"]["observedGeneration"] == release["metadata"]["generation"];
    let settled = observed && is("Ready") && !is("Reconciling");
    (!settled).then(|| "Flux has not finished its reconciliation, or it is not Ready".to_owned())
}

impl Flux {
    /// Suspends the release in the state that was read, and creates its component.
    pub(super) async fn take_over(
        &self,
        release: &Value,
        converted: &Conversion,
    ) -> Result<MigrationOutcome, Error> {
        if let Some(why) = obstacle(release, converted) {
            return Ok(MigrationOutcome::NotMigrated(why));
        }
        let Some(component) = &converted.component else {
            return Ok(MigrationOutcome::NotMigrated("it cannot be converted".to_owned()));
        };
        let (namespace, name) = (component.namespace().unwrap_or_default(), component.name_any());
        let components: Api<HelmComponent> = Api::namespaced(self.client.clone(), &namespace);
        let there = components.get_opt(&name).await?;
        let made = there.as_ref().is_some_and(|there| is_made(&there.spec, &component.spec));
        if there.is_some() && !made {
            return Ok(MigrationOutcome::NotMigrated(format!(
                "another HelmComponent {namespace}/{name} exists"
            )));
        }
        let place = format!("{namespace}/{name}");
        if !made && let Err(error) = create(&components, component, true).await {
            let hint = "does the namespace exist, are the CRDs installed, and may you create it?";
            return Ok(MigrationOutcome::NotMigrated(format!(
                "HelmComponent {place} cannot be created ({hint}): {error}"
            )));
        }
        match self.suspend(release, &place).await {
            Ok(()) => {}
            Err(error) if error.is_conflict() => {
                return Ok(MigrationOutcome::NotMigrated(
                    "it changed in the meantime: run the command again".to_owned(),
                ));
            }
            Err(error) if is_answered(&error) || made => return Err(error),
            Err(error) => return Ok(MigrationOutcome::Unknown(error.to_string())),
        }
        if !made && let Err(error) = create(&components, component, false).await {
            return Ok(MigrationOutcome::OnlySuspended(format!("HelmComponent {place}: {error}")));
        }
        Ok(MigrationOutcome::Migrated(place))
    }

    /// Fails with a conflict if Flux wrote the release since it was read.
    async fn suspend(&self, release: &Value, component: &str) -> Result<(), Error> {
        let Some(patch) = suspending(release, component) else { return Ok(()) };
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.release(text(release, "/metadata/namespace").unwrap_or_default());
        api.patch(text(release, "/metadata/name").unwrap_or_default(), &params, &Patch::Merge(patch)).await?;
        Ok(())
    }
}

/// Returns the patch for the release; `None` if it is already suspended by kymactl.
fn suspending(release: &Value, component: &str) -> Option<Value> {
    let metadata = &release["metadata"];
    let (is_suspended, ours) = (is_set(release, "/spec/suspend"), &metadata["annotations"][MIGRATED]);
    if is_suspended && ours == component {
        return None;
    }
    let mut patch =
        json!({"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": {"suspend": true}});
    // A release that a user suspended must not count as suspended by kymactl in a second run.
    if !is_suspended || ours.is_string() {
        patch["metadata"]["annotations"] = json!({MIGRATED: component});
    }
    Some(patch)
}

/// Reports whether the existing component is the desired one. One that was created suspended may have been resumed.
fn is_made(there: &HelmComponentSpec, wished: &HelmComponentSpec) -> bool {
    let works = there.suspend != Some(true);
    let suspend = if works { wished.suspend } else { there.suspend };
    HelmComponentSpec { suspend, ..there.clone() } == *wished
}

/// Reports whether the API server answered that it did nothing. After a timeout the write may have succeeded.
fn is_answered(error: &Error) -> bool {
    matches!(error, Error::Cluster(kube::Error::Api(status)) if status.code < 500)
}

async fn create(
    components: &Api<HelmComponent>,
    component: &HelmComponent,
    dry_run: bool,
) -> Result<HelmComponent, kube::Error> {
    let params = PostParams { dry_run, field_manager: Some(MANAGER.to_owned()) };
    components.create(&params, component).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release() -> Value {
        json!({
            "metadata": {"generation": 2},
            "spec": {},
            "status": {"observedGeneration": 2, "conditions": [{
                "type": "Ready", "status": "True", "reason": "UpgradeSucceeded", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        })
    }

    fn left(release: &Value) -> bool {
        let clean = Conversion { release: String::new(), component: None, findings: vec![] };
        obstacle(release, &clean).is_some()
    }

    #[test]
    fn an_annotation_shows_who_suspended_a_release() {
        let mut release = release();
        release["metadata"]["resourceVersion"] = json!("7");
        let patch = suspending(&release, "apps/shop").unwrap();
        assert_eq!(
            patch["metadata"],
            json!({"resourceVersion": "7", "annotations": {MIGRATED: "apps/shop"}})
        );
        release["spec"]["suspend"] = json!(true);
        let patch = suspending(&release, "apps/shop").unwrap();
        assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}), "it was others");
        release["metadata"]["annotations"] = json!({MIGRATED: "apps/shop"});
        assert_eq!(suspending(&release, "apps/shop"), None);
        let patch = suspending(&release, "hub/apps-shop").unwrap();
        assert_eq!(patch["metadata"]["annotations"], json!({MIGRATED: "hub/apps-shop"}));
    }

    #[test]
    fn unsuspended_component_matches_its_suspended_conversion() {
        let spec = |suspend: Option<bool>| HelmComponentSpec { suspend, ..HelmComponentSpec::default() };
        let (works, waits) = (spec(None), spec(Some(true)));
        assert!(is_made(&works, &works) && is_made(&waits, &waits) && is_made(&works, &waits));
        assert!(!is_made(&waits, &works), "somebody stopped it");
        let other = HelmComponentSpec { service_account_name: Some("a".to_owned()), ..waits.clone() };
        assert!(!is_made(&works, &other));
    }

    #[test]
    fn a_release_is_left_until_flux_has_settled_it() {
        assert!(!left(&release()));
        let mut observes = release();
        observes["metadata"]["generation"] = json!(3);
        assert!(left(&observes));
        let mut works = release();
        works["status"]["conditions"][0]["type"] = json!("Reconciling");
        assert!(left(&works));
        let mut fails = release();
        fails["status"]["conditions"][0]["status"] = json!("False");
        assert!(left(&fails));
        fails["spec"]["suspend"] = json!(true);
        assert!(!left(&fails));
        fails["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(left(&fails));
    }
}
