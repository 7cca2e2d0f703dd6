//! `kymactl target adopt`.

use clap::Args;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use kyma_api::{HelmComponent, Kyma, TargetIdentity, annotations, labels};
use kyma_sdk::targets::{
    Found, Recorded, STAMP_NAMESPACE, Stamp, Target, Verdict, adopt, classify, compare, record,
    recorded as recorded_on,
};
use kyma_sdk::{is_conflict, refusal};
use serde_json::{Value, json};

use super::way::{Start, Way, uid_of};
use crate::{error::Error, output};

/// Flags of `kymactl target adopt`.
#[derive(Args)]
pub(crate) struct Adopt {
    #[command(flatten)]
    way: Way,
    /// Uid of the cluster's Namespace `kube-system`: says that this very cluster is meant. Without it nothing is written.
    #[arg(long, value_name = "UID")]
    cluster_uid: Option<String>,
}

impl Adopt {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let start = self.way.start().await?;
        let target = start.target(&start.secret().await?).await?;
        let found = target.identify().await.map_err(kyma_sdk::Failure::from)?;
        let (claim, recorded) = start.sides();
        let verdict = compare(&claim, &recorded, &found);
        if matches!(verdict, Verdict::Match { .. }) {
            // An adoption may have been broken off before it came to all of them.
            let late = components_follow(&start, &recorded).await?;
            if late > 0 {
                return Ok(output::result(&format!("the cluster is the Kyma's; {late} components follow"))?);
            }
        }
        if matches!(verdict, Verdict::Match { .. } | Verdict::FirstContact { .. }) {
            return Ok(output::result("nothing to adopt: the cluster is not refused")?);
        }
        let why = refusal(&verdict);
        let uid = uid_of(&found)?;
        let Some((recorded, stamp)) = adopt(&claim, &recorded, &found) else {
            // Whose it is says more than that it is another one.
            return Err(refusal(&compare(&claim, &Recorded::default(), &found)).into());
        };
        match self.cluster_uid.as_deref() {
            Some(meant) if meant == uid => {}
            Some(_) => {
                return Err(Error::input(
                    "--cluster-uid",
                    format!("the access Secret leads to cluster {uid}"),
                ));
            }
            None => {
                let problem = format!(
                    "refused for {}: {}. If cluster {uid} is meant, repeat with --cluster-uid={uid}",
                    why.reason, why.message
                );
                return Err(Error::input("--cluster-uid", problem));
            }
        }
        let epoch = recorded.epoch;
        let components = Adoption { start, target, found: found.clone(), recorded, stamp }.write().await?;
        let done = format!("cluster {uid} adopted with epoch {epoch}; {components} components follow");
        Ok(output::result(&done)?)
    }
}

/// A decision that is carried out.
struct Adoption {
    start: Start,
    target: Target,
    found: Found,
    recorded: Recorded,
    stamp: Stamp,
}

impl Adoption {
    /// The stamp first: until the hub has it on record, the cluster is still refused. Tells how many components there
    /// are.
    async fn write(&self) -> Result<usize, Error> {
        self.namespace().await?;
        self.target.put_stamp(&self.stamp, &self.found).await.map_err(kyma_sdk::Failure::from)?;
        let kyma = &self.start.kyma;
        let (namespace, name) = (kyma.namespace().unwrap_or_default(), kyma.name_any());
        let params = PatchParams { field_manager: Some("kymactl".to_owned()), ..PatchParams::default() };
        let kymas: Api<Kyma> = Api::namespaced(self.start.hub.clone(), &namespace);
        let identity = TargetIdentity {
            cluster_uid: self.recorded.target_uid.clone().unwrap_or_default(),
            epoch: i64::try_from(self.recorded.epoch).ok(),
        };
        let status = json!({"metadata": {"uid": kyma.uid()}, "status": {"target": identity}});
        kymas.patch_status(&name, &params, &Patch::Merge(&status)).await?;
        let count = components_follow(&self.start, &self.recorded).await?;
        let adopted = format!("{}/{}", identity.cluster_uid, self.recorded.epoch);
        let notes: Value = json!({"metadata": {
            "uid": kyma.uid(), "annotations": {annotations::TARGET_ADOPTED: adopted},
        }});
        kymas.patch_metadata(&name, &params, &Patch::Merge(&notes)).await?;
        Ok(count)
    }

    /// Where the stamp lives. Nobody's afterwards.
    async fn namespace(&self) -> Result<(), Error> {
        let namespaces: Api<Namespace> = Api::all(self.target.client());
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(STAMP_NAMESPACE.to_owned());
        let params = PostParams { field_manager: Some("kymactl-create".to_owned()), ..PostParams::default() };
        match namespaces.create(&params, &namespace).await {
            Err(error) if !is_conflict(&error) => Err(kyma_sdk::Failure::from(classify(&error)).into()),
            _ => Ok(()),
        }
    }
}

/// Brings the Kyma's components to this record of its target; tells how many had another one.
async fn components_follow(start: &Start, recorded: &Recorded) -> Result<usize, Error> {
    let (namespace, name) = (start.kyma.namespace().unwrap_or_default(), start.kyma.name_any());
    let params = PatchParams { field_manager: Some("kymactl".to_owned()), ..PatchParams::default() };
    let mut count = 0;
    for resource in kinds_of(&start.kyma) {
        let api: Api<DynamicObject> = Api::namespaced_with(start.hub.clone(), &namespace, &resource);
        let labelled = ListParams::default().labels(&format!("{}={name}", labels::KYMA_NAME));
        for component in api.list_metadata(&labelled).await?.items {
            if recorded_on(component.metadata.annotations.as_ref()) == *recorded {
                continue;
            }
            let notes = json!({"metadata": {"uid": component.metadata.uid, "annotations": record(recorded)}});
            api.patch_metadata(&component.name_any(), &params, &Patch::Merge(&notes)).await?;
            count += 1;
        }
    }
    Ok(count)
}

/// The kinds of the Kyma's components: ours, and those that its status tracks.
fn kinds_of(kyma: &Kyma) -> Vec<ApiResource> {
    let mut kinds = vec![ApiResource::erase::<HelmComponent>(&())];
    let modules = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
    for tracked in modules.filter_map(|module| module.manifest.as_ref()) {
        let (Some(version), Some(kind)) = (&tracked.api_version, &tracked.kind) else { continue };
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk(&gvk);
        if !kinds.iter().any(|known| known.group == resource.group && known.kind == resource.kind) {
            kinds.push(resource);
        }
    }
    kinds
}
