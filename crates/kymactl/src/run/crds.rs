//! Installs the CRDs on a cluster.

use std::{cmp::Ordering, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Crd;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use kyma_api::{annotations, crds};
use kyma_object_set::remove::release_creation;
use kyma_sdk::missing;
use semver::Version;
use tokio::time::timeout;

use super::mark::mark;
use crate::{error::Error, hub::MANAGER};

/// Deadline for all CRDs to be served.
const DEADLINE: Duration = Duration::from_mins(1);

/// Installs missing CRDs and updates older ones that lack fields. `marks` sets whether created CRDs get the mark of
/// `run --once`; an existing mark always stays.
///
/// # Errors
/// If a CRD of a newer version lacks fields.
pub(super) async fn install(client: &Client, marks: bool) -> Result<(), Error> {
    let late = |_| Error::CrdsLate { waited: format!("{}s", DEADLINE.as_secs()) };
    timeout(DEADLINE, Box::pin(install_all(client, marks))).await.map_err(late)?
}

async fn install_all(client: &Client, marks: bool) -> Result<(), Error> {
    let api: Api<Crd> = Api::all(client.clone());
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<Crd>(&()));
    for mut crd in crds::all() {
        let name = crd.name_any();
        if let Some(live) = definitions.get_opt(&name).await? {
            // After an interrupted removal the CRD may refuse new objects.
            release_creation(client, &live, MANAGER).await?;
        }
        let installed = api.get_opt(&name).await?;
        match judge(installed.as_ref(), &crd) {
            Step::Keep => {}
            Step::Refuse { version } => return Err(Error::NewerCrd { name, version }),
            Step::Apply => {
                if marks || installed.is_some() {
                    mark(&mut crd.metadata, installed.as_ref().map(|live| &live.metadata));
                }
                api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&crd)).await?;
                await_condition(api.clone(), &name, is_crd_established()).await?;
            }
        }
    }
    Ok(())
}

/// What to do with one CRD.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Keep it: it has all required fields.
    Keep,
    /// Apply it: it is missing, or older and lacks fields.
    Apply,
    /// Refuse: it lacks fields but comes from a later version, which an apply would downgrade.
    Refuse { version: String },
}

fn judge(installed: Option<&Crd>, ours: &Crd) -> Step {
    let Some(installed) = installed else { return Step::Apply };
    if missing(installed, ours).is_empty() {
        return Step::Keep;
    }
    let version = |crd: &Crd| crd.annotations().get(annotations::CRD_VERSION).cloned();
    let parsed = |crd: &Crd| version(crd).and_then(|version| Version::parse(&version).ok());
    let is_newer = |(theirs, ours): (Version, Version)| theirs.cmp_precedence(&ours) == Ordering::Greater;
    match version(installed) {
        Some(version) if parsed(installed).zip(parsed(ours)).is_some_and(is_newer) => {
            Step::Refuse { version }
        }
        _ => Step::Apply,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(version: Option<&str>, fields: &[&str]) -> Crd {
        let properties: serde_json::Map<_, _> =
            fields.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        let notes = version.map(|version| json!({ annotations::CRD_VERSION: version }));
        serde_json::from_value(json!({
            "metadata": {"name": "xs.x.io", "annotations": notes},
            "spec": {"group": "x.io", "scope": "Namespaced", "names": {"kind": "X", "plural": "xs"}, "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "properties": properties}}}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_newer_crd_is_never_applied_over() {
        let ours = crd(Some("1.2.0"), &["a", "b"]);
        assert_eq!(judge(None, &ours), Step::Apply);
        assert_eq!(judge(Some(&crd(Some("1.3.0"), &["a", "b", "c"])), &ours), Step::Keep);
        let refused = Step::Refuse { version: "1.3.0".to_owned() };
        assert_eq!(judge(Some(&crd(Some("1.3.0"), &["a", "c"])), &ours), refused);
        for older in [Some("1.1.9"), Some("1.2.0"), Some("no version"), None] {
            assert_eq!(judge(Some(&crd(older, &["a", "c"])), &ours), Step::Apply, "{older:?}");
        }
    }

    #[test]
    fn our_crds_say_which_version_they_are_of() {
        for crd in crds::all() {
            assert!(
                Version::parse(&crd.annotations()[annotations::CRD_VERSION]).is_ok(),
                "{}",
                crd.name_any()
            );
        }
    }
}
