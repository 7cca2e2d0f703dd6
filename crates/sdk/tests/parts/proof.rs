//! The hub's record of a target and the target's stamp, read at different times.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use kyma_sdk::api::{Kyma, Reason, crds};
use kyma_sdk::{
    Runtime,
    targets::{STAMP_NAMESPACE, Stamp, Target},
    verify_target,
};
use serde_json::json;

use crate::{cluster, runtime, serve, target};

/// A Kyma whose target has its stamp.
struct Stage {
    runtime: Runtime,
    kymas: Api<Kyma>,
    target: Target,
    /// The same target, as another operator has it.
    theirs: Target,
}

impl Stage {
    async fn new(name: &str) -> Result<Self> {
        let cluster = cluster().await?;
        let client = cluster.client()?;
        serve(&client, &crds::kyma()).await?;
        let namespace = cluster.namespace(name).await?;
        let mut runtime = runtime(&cluster, &namespace).await?;
        // One cluster is both hub and target here; a hub uid of its own hides that.
        runtime.hub_uid = name.into();
        let kymas: Api<Kyma> = Api::namespaced(client.clone(), &namespace);
        let kyma = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": "sample"},
            "spec": {"channel": "regular"},
        });
        kymas.create(&PostParams::default(), &serde_json::from_value(kyma)?).await?;
        let place = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STAMP_NAMESPACE}});
        let namespaces: Api<Namespace> = Api::all(client);
        let apply = PatchParams::apply("test").force();
        namespaces.patch(STAMP_NAMESPACE, &apply, &Patch::Apply(&place)).await?;
        let (ours, theirs) = (target("access", cluster.admin())?, target("theirs", cluster.admin())?);
        Ok(Self { runtime, kymas, target: ours, theirs })
    }

    async fn kyma(&self) -> Result<Kyma> {
        Ok(self.kymas.get("sample").await?)
    }

    /// Makes the first contact, after which hub and target have a record of each other.
    async fn contact(&self) -> Result<Stamp> {
        let proof = verify_target(&self.runtime, &self.kyma().await?, &self.target).await?;
        let stamp = proof.stamp.context("a stamp")?;
        self.target.put_stamp(&stamp, &proof.found).await?;
        Ok(stamp)
    }

    /// Advances the fencing generation as another operator, and records it in `field`.
    async fn takes(&self, stamp: &Stamp, field: &str, generation: &str) -> Result<()> {
        let status = json!({"status": {"target": {field: generation}}});
        self.kymas.patch_status("sample", &PatchParams::default(), &Patch::Merge(status)).await?;
        let found = self.theirs.identify_anew().await?;
        self.theirs
            .put_stamp(&Stamp { fencing_generation: Some(generation.parse()?), ..stamp.clone() }, &found)
            .await?;
        Ok(())
    }

    async fn on_record(&self) -> Result<Option<String>> {
        Ok(self.kyma().await?.status.and_then(|status| status.target?.fencing_generation))
    }
}

/// Both cases are in one test, since they share the target and so its stamp.
#[tokio::test]
async fn a_hub_that_is_not_behind_is_not_taken_for_one() -> Result<()> {
    let stage = Stage::new("proof").await?;
    let before = stage.kyma().await?;
    let stamp = stage.contact().await?;
    // An operator of an earlier version wrote the deprecated field.
    stage.takes(&stamp, "turn", "4-a").await?;
    let contacted = stage.kyma().await?;
    assert_eq!(stage.on_record().await?.as_deref(), Some("4-a"));
    stage.takes(&stamp, "fencingGeneration", "5-b").await?;

    let proof = verify_target(&stage.runtime, &contacted, &stage.target).await?;
    let proven = proof.identity.fencing_generation.as_deref();
    assert_eq!(proven, Some("5-b"), "an earlier Kyma and the present stamp");
    let proof = verify_target(&stage.runtime, &before, &stage.target).await?;
    let proven = proof.identity.fencing_generation.as_deref();
    assert_eq!(proven, Some("5-b"), "a Kyma from before the first contact");
    assert_eq!(stage.on_record().await?.as_deref(), Some("5-b"));

    let look = stage.target.identify().await?;
    stage.takes(&stamp, "fencingGeneration", "6-c").await?;
    let stripped = json!({"status": {"target": null}});
    stage.kymas.patch_status("sample", &PatchParams::default(), &Patch::Merge(stripped)).await?;
    let proof = verify_target(&stage.runtime, &stage.kyma().await?, &stage.target).await?;
    assert_ne!(look.fencing_generation(), proof.found.fencing_generation(), "an earlier look at the target");
    assert_eq!(stage.on_record().await?.as_deref(), Some("6-c"));

    let behind = json!({"status": {"target": {"fencingGeneration": "5-b"}}});
    stage.kymas.patch_status("sample", &PatchParams::default(), &Patch::Merge(behind)).await?;
    let refused = verify_target(&stage.runtime, &stage.kyma().await?, &stage.target).await.unwrap_err();
    assert_eq!(refused.reason, Reason::StampMismatch, "{refused:?}");
    Ok(())
}
