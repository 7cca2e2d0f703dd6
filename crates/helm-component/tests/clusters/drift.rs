//! What others change is put right; what nobody changes is left alone.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::until;

use crate::module::manifest;
use crate::world::{PATIENCE, world};

#[tokio::test]
async fn edits_and_deletions_on_the_target_are_put_right() -> Result<()> {
    let world = world().await?;
    let source = world.push("vase", "1.0.0", &manifest("vase", "low")).await?;
    world.apply("vase", json!({"source": source, "release": {"namespace": "vase-system"}})).await?;
    world.ready("vase", "True", "Ready").await?;
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, "vase-system");
    let level = async || -> Result<Option<String>> {
        let config = configs.get_opt("vase").await?;
        Ok(config.and_then(|config| config.data).and_then(|data| data.get("level").cloned()))
    };
    let edit = json!({"data": {"level": "edited", "theirs": "stays"}});
    configs.patch("vase", &PatchParams::default(), &Patch::Merge(edit)).await?;
    until("the edit is put right", PATIENCE, || async {
        Ok((level().await?.as_deref() == Some("low")).then_some(()))
    })
    .await?;
    let theirs = configs.get("vase").await?.data.and_then(|data| data.get("theirs").cloned());
    assert_eq!(theirs.as_deref(), Some("stays"), "fields of others are theirs");
    configs.delete("vase", &DeleteParams::default()).await?;
    until("it is made again", PATIENCE, || async {
        Ok((level().await?.as_deref() == Some("low")).then_some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn drift_is_only_reported_where_the_spec_says_so() -> Result<()> {
    let world = world().await?;
    let source = world.push("bowl", "1.0.0", &manifest("bowl", "low")).await?;
    let spec = json!({"source": source, "release": {"namespace": "bowl-system"}, "drift": {"mode": "Warn"}});
    world.apply("bowl", spec).await?;
    world.ready("bowl", "True", "Ready").await?;
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, "bowl-system");
    let edit = json!({"data": {"level": "edited"}});
    configs.patch("bowl", &PatchParams::default(), &Patch::Merge(edit)).await?;
    let components = world.components()?;
    until("the drift is reported", PATIENCE, || async {
        let component = components.get("bowl").await?;
        let applied = crate::world::condition_of(&component, "Applied");
        Ok(applied.filter(|(_, _, message)| message.contains("ConfigMap bowl-system/bowl")))
    })
    .await?;
    let config = configs.get("bowl").await?;
    assert_eq!(config.data.and_then(|data| data.get("level").cloned()).as_deref(), Some("edited"));
    Ok(())
}
