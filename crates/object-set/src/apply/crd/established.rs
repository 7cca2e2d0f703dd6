//! Waits for CRDs, and reads from them the kinds that API servers serve.

use std::cmp::Reverse;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ApiResource;
use kube::runtime::wait::{await_condition, conditions};

use super::versions::priority;
use crate::cluster::Cluster;
use crate::cluster::discovery::{CRD_VERBS, Mapping};
use crate::object::{Gvk, Object};

/// Time for which one run waits for its CRDs. Nearly all are established within it, which saves the caller another
/// run; for the rest the caller waits for an event.
pub(super) const CRD_ESTABLISH_TIMEOUT: Duration = Duration::from_millis(1500);

/// Result of the wait for CRDs.
pub(in super::super) struct CrdWait<'a> {
    /// CRDs that were not established in time.
    pub(in super::super) late: Vec<&'a Object>,
    /// Mappings of the kind of each CRD; `None` if only a discovery shows them.
    pub(in super::super) mappings: Option<Vec<Vec<Mapping>>>,
}

/// Waits until the CRDs among these objects are established, each for at most [`CRD_ESTABLISH_TIMEOUT`].
pub(in super::super) async fn wait_for_crds<'a>(cluster: &Cluster, objects: &'a [Object]) -> CrdWait<'a> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let crds = objects.iter().filter(|object| object.identity().is_crd());
    let wait = |crd: &'a Object| {
        let established = await_condition(api.clone(), crd.name(), conditions::is_crd_established());
        async move {
            match tokio::time::timeout(CRD_ESTABLISH_TIMEOUT, established).await {
                Ok(Ok(live)) => (crd, true, live.as_ref().and_then(served_mappings)),
                _ => (crd, false, None),
            }
        }
        .boxed()
    };
    let results: Vec<(&Object, bool, Option<Vec<Mapping>>)> =
        futures::stream::iter(crds.map(wait).collect::<Vec<_>>()).buffer_unordered(8).collect().await;
    let late = results.iter().filter(|(_, is_established, _)| !is_established).map(|(crd, ..)| *crd);
    CrdWait { late: late.collect(), mappings: results.into_iter().map(|(_, _, mappings)| mappings).collect() }
}

/// Returns the mappings with which API servers serve the kind of an established CRD, in their order of preference.
/// `None` if the CRD is being deleted, has no accepted names, or serves no version.
pub(super) fn served_mappings(crd: &CustomResourceDefinition) -> Option<Vec<Mapping>> {
    // Discovery shows the accepted names, which differ from those in the spec after a conflict.
    let names = crd.status.as_ref()?.accepted_names.as_ref()?;
    if crd.metadata.deletion_timestamp.is_some() || names.kind.is_empty() || names.plural.is_empty() {
        return None;
    }
    let mut served: Vec<&str> = crd
        .spec
        .versions
        .iter()
        .filter(|version| version.served)
        .map(|version| version.name.as_str())
        .collect();
    served.sort_by_key(|version| (Reverse(priority(version)), *version));
    let mapping = |version: &&str| {
        let gvk = Gvk::new(&crd.spec.group, *version, &names.kind);
        let resource = ApiResource {
            api_version: gvk.api_version(),
            group: gvk.group,
            version: gvk.version,
            kind: gvk.kind,
            plural: names.plural.clone(),
        };
        let verbs = CRD_VERBS.map(ToOwned::to_owned).to_vec();
        Mapping { resource, namespaced: crd.spec.scope == "Namespaced", verbs }
    };
    (!served.is_empty()).then(|| served.iter().map(mapping).collect())
}
