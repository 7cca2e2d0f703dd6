//! Waits until the kind of a CRD is served.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::discovery::{ApiCapabilities, pinned_kind};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use tokio::process::Child;

use crate::wait::{until, until_or_why};

/// Deadline until a CRD is established, and then until its kind is served. It is long, since two test suites may
/// compete for two cores.
const DEADLINE: Duration = Duration::from_mins(2);
/// Deadline until a program has installed its CRDs.
const INSTALL_DEADLINE: Duration = Duration::from_mins(2);

/// Waits until objects of this CRD can be read. An apiserver reports it as Established before it serves the kind,
/// and responds with 429 while its watch cache for the kind fills.
///
/// # Errors
/// The CRD is not established within two minutes, or its kind is not served two minutes later.
pub async fn crd_is_served(client: &Client, name: &str) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let established = tokio::time::timeout(DEADLINE, await_condition(crds, name, is_crd_established()));
    let crd = established.await.with_context(|| format!("{name} is not established"))??;
    let spec = crd.context("an established CRD exists")?.spec;
    let version = spec.versions.iter().find(|version| version.served).context("a version is served")?;
    let kind = GroupVersionKind::gvk(&spec.group, &version.name, &spec.names.kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    // Reads from the cache, as watches do when they begin.
    let any = ListParams::default().match_any();
    until(&format!("{name} is served"), DEADLINE, || async {
        match objects.list(&any).await {
            Ok(_) => Ok(Some(())),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 429 | 503) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

/// Returns the resource of a kind once discovery shows it, which may be some time after the kind is served.
///
/// # Errors
/// Discovery does not show the kind within two minutes, or the cluster does not answer.
pub async fn until_discovered(
    client: &Client,
    kind: &GroupVersionKind,
) -> Result<(ApiResource, ApiCapabilities)> {
    let what = format!("{} of {} is discovered", kind.kind, kind.api_version());
    let waiting = until_or_why(&what, DEADLINE, || async {
        match pinned_kind(client, kind).await {
            Ok(found) => Ok(Ok(found)),
            Err(kube::Error::Discovery(error)) => Ok(Err(error.to_string())),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 503) => {
                Ok(Err(status.message.clone()))
            }
            Err(error) => Err(error.into()),
        }
    });
    // Boxed, since the compiler's proof that a deep future is `Send` has a limit.
    waiting.boxed().await
}

/// Does the same as [`crd_is_served`] for a CRD that `program` installs.
///
/// # Errors
/// The program ended, the CRD does not exist within two minutes, or as for [`crd_is_served`].
pub async fn crd_is_brought(program: &mut Child, client: &Client, name: &str) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    until(&format!("{name} is there"), INSTALL_DEADLINE, || {
        let (ended, look) = (program.try_wait(), crds.get_opt(name));
        async {
            ensure!(ended?.is_none(), "the program that brings {name} ended");
            Ok(look.await?)
        }
    })
    .await?;
    crd_is_served(client, name).await
}

/// Waits until `kubectl explain` finds a kind: API servers publish the schemas of CRDs some time after they serve
/// the kinds.
///
/// # Errors
/// The schema is not published within two minutes.
pub async fn kind_is_explained(client: &Client, api_version: &str, plural: &str) -> Result<()> {
    let path = format!("/openapi/v3/apis/{api_version}");
    let own = format!("/{plural}\"");
    until(&format!("{plural} can be explained"), DEADLINE, || async {
        let request = http::Request::get(&path).body(vec![])?;
        match client.request_text(request).await {
            Ok(text) => Ok(text.contains(&own).then_some(())),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 429 | 503) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await
}
