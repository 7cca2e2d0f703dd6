//! Installs the CRDs on a cluster.

use std::{cmp::Ordering, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Crd;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use kyma_api::{annotations, crds, labels};
use kyma_controller::{create_new, missing_fields};
use kyma_object_set::remove::unblock_creation;
use semver::Version;
use tokio::time::{error::Elapsed, timeout};

use super::{
    component::ComponentProgram,
    input::RunInput,
    mark::{is_marked, mark},
};
use crate::{error::Error, hub::MANAGER};

/// Deadline for all CRDs to be served.
const DEADLINE: Duration = Duration::from_mins(1);

/// Installs missing CRDs and updates older ones that lack fields. `marks` sets whether created CRDs get the mark of
/// `run --once`; an existing mark always stays.
///
/// # Errors
/// If a CRD of a newer version lacks fields.
pub(super) async fn install(client: &Client, marks: bool) -> Result<(), Error> {
    timeout(DEADLINE, Box::pin(install_all(client, marks))).await.map_err(late)?
}

/// Installs the CRDs of component programs. kyma-operator installs and updates those that a module brings, so they are
/// left out.
///
/// # Errors
/// If a CRD that no run created lacks fields.
pub(super) async fn install_of_programs(
    client: &Client,
    programs: &[ComponentProgram],
    input: &RunInput,
) -> Result<(), Error> {
    timeout(DEADLINE, Box::pin(install_all_of_programs(client, programs, input))).await.map_err(late)?
}

fn late(_: Elapsed) -> Error {
    Error::CrdsLate { waited: format!("{}s", DEADLINE.as_secs()) }
}

async fn install_all_of_programs(
    client: &Client,
    programs: &[ComponentProgram],
    input: &RunInput,
) -> Result<(), Error> {
    let api: Api<Crd> = Api::all(client.clone());
    release_marked(client).await?;
    for crd in programs.iter().flat_map(ComponentProgram::crds) {
        let (group, kind) = (&crd.spec.group, &crd.spec.names.kind);
        let name = crd.name_any();
        let live = api.get_opt(&name).await?;
        if input.brings_crd(group, kind) || !needs_apply(live.as_ref(), crd)? {
            continue;
        }
        let mut crd = crd.clone();
        mark(&mut crd.metadata, live.as_ref().map(|live| &live.metadata));
        match live {
            None => create_new(&api, MANAGER, &crd).await?,
            Some(live) => {
                crd.metadata.uid = live.metadata.uid;
                crd.metadata.resource_version = live.metadata.resource_version;
                api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&crd)).await?
            }
        };
        await_condition(api.clone(), &name, is_crd_established()).await?;
    }
    Ok(())
}

/// Lets the kinds of marked CRDs accept objects again, which an interrupted removal can have stopped.
async fn release_marked(client: &Client) -> Result<(), Error> {
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<Crd>(&()));
    let listed = definitions.list_metadata(&ListParams::default()).await?;
    for name in listed.iter().filter(|crd| is_marked(&crd.metadata)).map(kube::ResourceExt::name_any) {
        if let Some(live) = definitions.get_opt(&name).await? {
            unblock_creation(client, &live, MANAGER).await?;
        }
    }
    Ok(())
}

/// Reports whether the CRD of a program has to be created or updated.
fn needs_apply(live: Option<&Crd>, needed: &Crd) -> Result<bool, Error> {
    let Some(live) = live else { return Ok(true) };
    let missing = missing_fields(live, needed);
    if missing.is_empty() || live.labels().contains_key(labels::COMPONENT_CRD) {
        return Ok(false);
    }
    if is_marked(&live.metadata) {
        return Ok(true);
    }
    let problem = format!(
        "it existed before run --once and lacks {}, which its --component program needs; update it",
        missing.join(", ")
    );
    Err(Error::input(format!("CRD {}", needed.name_any()), problem))
}

async fn install_all(client: &Client, marks: bool) -> Result<(), Error> {
    let api: Api<Crd> = Api::all(client.clone());
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<Crd>(&()));
    for mut crd in crds::all() {
        let name = crd.name_any();
        if let Some(live) = definitions.get_opt(&name).await? {
            // After an interrupted removal the CRD may refuse new objects.
            unblock_creation(client, &live, MANAGER).await?;
        }
        let installed = api.get_opt(&name).await?;
        match judge(installed.as_ref(), &crd) {
            CrdAction::Keep => {}
            CrdAction::Refuse { version } => return Err(Error::NewerCrd { name, version }),
            CrdAction::Apply => {
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

/// Action for one CRD.
#[derive(Debug, PartialEq, Eq)]
enum CrdAction {
    /// Keep it: it has all required fields.
    Keep,
    /// Apply it: it is missing, or older and lacks fields.
    Apply,
    /// Refuse: it lacks fields but comes from a later version, which an apply would downgrade.
    Refuse { version: String },
}

fn judge(installed: Option<&Crd>, ours: &Crd) -> CrdAction {
    let Some(installed) = installed else { return CrdAction::Apply };
    if missing_fields(installed, ours).is_empty() {
        return CrdAction::Keep;
    }
    let version = |crd: &Crd| crd.annotations().get(annotations::CRD_VERSION).cloned();
    let parsed = |crd: &Crd| version(crd).and_then(|version| Version::parse(&version).ok());
    let is_newer = |(theirs, ours): (Version, Version)| theirs.cmp_precedence(&ours) == Ordering::Greater;
    match version(installed) {
        Some(version) if parsed(installed).zip(parsed(ours)).is_some_and(is_newer) => {
            CrdAction::Refuse { version }
        }
        _ => CrdAction::Apply,
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
        assert_eq!(judge(None, &ours), CrdAction::Apply);
        assert_eq!(judge(Some(&crd(Some("1.3.0"), &["a", "b", "c"])), &ours), CrdAction::Keep);
        let refused = CrdAction::Refuse { version: "1.3.0".to_owned() };
        assert_eq!(judge(Some(&crd(Some("1.3.0"), &["a", "c"])), &ours), refused);
        for older in [Some("1.1.9"), Some("1.2.0"), Some("no version"), None] {
            assert_eq!(judge(Some(&crd(older, &["a", "c"])), &ours), CrdAction::Apply, "{older:?}");
        }
    }

    #[test]
    fn the_crd_of_a_program_is_updated_only_if_a_run_created_it() {
        let (old, needed) = (crd(None, &["a"]), crd(None, &["a", "b"]));
        assert!(needs_apply(None, &needed).unwrap());
        assert!(!needs_apply(Some(&needed), &old).unwrap(), "it has all fields");
        let refused = needs_apply(Some(&old), &needed).unwrap_err().to_string();
        assert!(refused.starts_with("CRD xs.x.io: it existed before run --once and lacks "), "{refused}");
        let mut created = old.clone();
        mark(&mut created.metadata, None);
        assert!(needs_apply(Some(&created), &needed).unwrap());
        created.metadata.labels = Some([(labels::COMPONENT_CRD.to_owned(), "true".to_owned())].into());
        assert!(!needs_apply(Some(&created), &needed).unwrap(), "kyma-operator updates it");
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
