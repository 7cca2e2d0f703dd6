//! From Flux to helm-component: the release is suspended, then the component is created.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use kyma_api::{HelmComponent, condition};
use serde_json::{Value, json};

use super::convert::{Converted, MIGRATED};
use super::facts::{is_set, text};
use super::read::Flux;
use crate::{error::Error, hub::MANAGER};

/// What was done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The release is suspended, the component there.
    TakenOver(String),
    /// Nothing was written.
    Left(String),
    /// The release is suspended, and there is no component.
    Open(String),
}

impl Outcome {
    pub(super) fn is_left(&self) -> bool {
        matches!(self, Self::Left(_) | Self::Open(_))
    }

    pub(super) fn says(&self) -> String {
        match self {
            Self::TakenOver(component) => format!(
                "suspended, and taken over by HelmComponent {component}; delete the HelmRelease while it is suspended once \
                 that is Ready"
            ),
            Self::Left(why) => format!("left to Flux: {why}"),
            Self::Open(why) => format!(
                "suspended, and nothing looks after it yet: {why}; run the same command again, or resume the HelmRelease"
            ),
        }
    }
}

/// Why Flux should keep a release for now.
fn obstacle(release: &Value, converted: &Converted) -> Option<String> {
    if !converted.is_clean() {
        return Some(
            "see above what has to be looked at first; without --apply the component is printed".to_owned(),
        );
    }
    if release["metadata"]["deletionTimestamp"].is_string() {
        return Some("it is being deleted".to_owned());
    }
    // Its status says nothing new any more once it is suspended.
    if is_set(release, "/spec/suspend") {
        return None;
    }
    let conditions: Vec<Condition> =
        serde_json::from_value(release["status"]["conditions"].clone()).unwrap_or_default();
    let is = |type_: &str| condition::get(&conditions, type_).is_some_and(|found| found.status == "True");
    let observed = release["status"]["observedGeneration"] == release["metadata"]["generation"];
    let settled = observed && is("Ready") && !is("Reconciling");
    (!settled).then(|| "Flux has not finished with it, or it is not Ready there".to_owned())
}

impl Flux {
    /// Suspends the release as it was read, and creates its component.
    pub(super) async fn take_over(&self, release: &Value, converted: &Converted) -> Result<Outcome, Error> {
        if let Some(why) = obstacle(release, converted) {
            return Ok(Outcome::Left(why));
        }
        let Some(component) = &converted.component else {
            return Ok(Outcome::Left("nothing comes of it".to_owned()));
        };
        let (namespace, name) = (component.namespace().unwrap_or_default(), component.name_any());
        let components: Api<HelmComponent> = Api::namespaced(self.client.clone(), &namespace);
        let there = components.get_opt(&name).await?;
        let made = there.as_ref().is_some_and(|there| there.spec == component.spec);
        if there.is_some() && !made {
            return Ok(Outcome::Left(format!("there is another HelmComponent {namespace}/{name}")));
        }
        let place = format!("{namespace}/{name}");
        if !made && let Err(error) = create(&components, component, true).await {
            let hint = "is the namespace there, are the CRDs installed, and may you create it?";
            return Ok(Outcome::Left(format!("HelmComponent {place} cannot be made ({hint}): {error}")));
        }
        match self.suspend(release, &place).await {
            Ok(()) => {}
            Err(error) if error.is_conflict() => {
                return Ok(Outcome::Left("it changed meanwhile: run the command again".to_owned()));
            }
            Err(error) => return Err(error),
        }
        if !made && let Err(error) = create(&components, component, false).await {
            return Ok(Outcome::Open(format!("HelmComponent {place}: {error}")));
        }
        Ok(Outcome::TakenOver(place))
    }

    /// In the state in which it was read: a write of Flux in between is a conflict.
    async fn suspend(&self, release: &Value, component: &str) -> Result<(), Error> {
        let metadata = &release["metadata"];
        if is_set(release, "/spec/suspend") && metadata["annotations"][MIGRATED] == component {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": {MIGRATED: component}},
            "spec": {"suspend": true},
        });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.release(text(release, "/metadata/namespace").unwrap_or_default());
        api.patch(text(release, "/metadata/name").unwrap_or_default(), &params, &Patch::Merge(patch)).await?;
        Ok(())
    }
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
        let clean = Converted { release: String::new(), component: None, findings: vec![] };
        obstacle(release, &clean).is_some()
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
