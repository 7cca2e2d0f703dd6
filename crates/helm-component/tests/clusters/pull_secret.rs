//! Whose credentials open what is in the cache.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::chart::push;
use crate::source::config;
use crate::world::{HUB_NAMESPACE, LOGIN, World, ready_of};

#[tokio::test]
async fn a_chart_in_the_cache_is_only_for_components_whose_pull_secret_the_registry_accepts() -> Result<()> {
    let world = World::start().await?;
    let mut source =
        push(&world, "guarded", "1.0.0", &[("templates/config.yaml", &config("guarded", "one"))]).await?;
    source["chart"]["url"] = format!("oci://{}/charts/guarded", world.gate.address()).into();
    let secrets: Api<Secret> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    for (name, password) in [("right", LOGIN.1), ("wrong", "guessed")] {
        let auths = json!({"auths": {world.gate.address(): {"username": LOGIN.0, "password": password}}});
        let secret = json!({
            "metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": auths.to_string()},
        });
        secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    }
    let component = async |name: &str, secret: Option<&str>| {
        let mut source = source.clone();
        if let Some(secret) = secret {
            source["pullSecretRef"] = json!({"name": secret});
        }
        world.apply(name, json!({"source": source, "release": {"namespace": name}})).await
    };
    component("first", Some("right")).await?;
    world.ready("first", "True", "Ready").await?;
    component("second", Some("right")).await?;
    component("third", Some("wrong")).await?;
    component("fourth", None).await?;
    world.ready("second", "True", "Ready").await?;
    for refused in ["third", "fourth"] {
        let component = world.ready(refused, "False", "SourceUnauthorized").await?;
        let (_, _, message) = ready_of(&component).context("Ready")?;
        assert!(!message.contains("guessed"), "{message}");
        assert!(world.on_target("v1", "ConfigMap", refused, "guarded").await?.is_none());
    }
    Ok(())
}
