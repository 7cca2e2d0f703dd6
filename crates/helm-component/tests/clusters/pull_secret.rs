//! Credentials with which cached content may be used.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kyma_api::labels;
use serde_json::{Value, json};

use crate::chart::push;
use crate::source::config;
use crate::world::{ACCESS, HUB_NAMESPACE, LOGIN, World, ready_of};

#[tokio::test]
async fn cached_chart_is_served_only_if_registry_accepts_credentials() -> Result<()> {
    let world = World::start_with(&["--oci-registry-cred-secret=fleet"]).await?;
    let mut source =
        push(&world, "guarded", "1.0.0", &[("templates/config.yaml", &config("guarded", "one"))]).await?;
    source["chart"]["url"] = format!("oci://{}/charts/guarded", world.password_proxy.address()).into();
    let secrets: Api<Secret> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    for (name, password) in [("right", LOGIN.1), ("wrong", "guessed"), ("fleet", LOGIN.1)] {
        let auths =
            json!({"auths": {world.password_proxy.address(): {"username": LOGIN.0, "password": password}}});
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
    modules_use_what_the_fleet_allows(&world, &source).await
}

/// Checks that a module of a Kyma uses the fleet's credentials, and other Secrets only if their label allows it.
async fn modules_use_what_the_fleet_allows(world: &World, source: &Value) -> Result<()> {
    let module = async |name: &str, secret: Option<&str>| -> Result<()> {
        let mut source = source.clone();
        if let Some(secret) = secret {
            source["pullSecretRef"] = json!({"name": secret});
        }
        let object = json!({
            "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
            "metadata": {"name": name, "namespace": HUB_NAMESPACE, "labels": {labels::KYMA_NAME: "sample"}},
            "spec": {"source": source, "release": {"namespace": name},
                "module": {"name": "keda", "version": "1.0.0"},
                "target": {"kubeconfigSecretRef": {"name": ACCESS, "key": "config"}}},
        });
        let params = PatchParams::apply("test").force();
        world.components()?.patch(name, &params, &Patch::Apply(object)).await?;
        Ok(())
    };
    module("fifth", None).await?;
    world.ready("fifth", "True", "Ready").await?;
    module("sixth", Some("right")).await?;
    module("seventh", Some("absent")).await?;
    let mut told = Vec::new();
    for (name, secret) in [("sixth", "right"), ("seventh", "absent")] {
        let component = world.ready(name, "False", "SourceUnauthorized").await?;
        let (_, _, message) = ready_of(&component).context("Ready")?;
        told.push(message.replace(secret, "NAME"));
    }
    assert_eq!(told[0], told[1], "a module cannot tell a foreign Secret from a missing one");
    let label = json!({"metadata": {"labels": {labels::PULL_SECRET: "keda"}}});
    let secrets: Api<Secret> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    secrets.patch("right", &PatchParams::default(), &Patch::Merge(label)).await?;
    world.ready("sixth", "True", "Ready").await?;
    Ok(())
}
