//! Content from other sources than OCM components: manifests and chart repositories.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_artifacts::Digest;
use serde_json::{Value, json};
use testbed::until;

use crate::chart::packed;
use crate::world::{DEADLINE, HUB_NAMESPACE, LOGIN, World, ready_of, world};

pub(crate) fn config(name: &str, level: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{level: {level}}}\n")
}

/// Returns the level in a ConfigMap on the target.
async fn level(world: &World, namespace: &str, name: &str) -> Result<Option<String>> {
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, namespace);
    let found = configs.get_opt(name).await?.and_then(|found| found.data);
    Ok(found.and_then(|data| data.get("level").cloned()))
}

/// Edits the ConfigMap, waits until the drift is corrected, and returns its level then.
pub(crate) async fn repaired(world: &World, namespace: &str, name: &str) -> Result<String> {
    let configs: Api<ConfigMap> = Api::namespaced(world.target.client()?, namespace);
    let edit = json!({"data": {"level": "edited"}});
    configs.patch(name, &PatchParams::default(), &Patch::Merge(edit)).await?;
    until("the edit is put right", DEADLINE, || async {
        Ok(level(world, namespace, name).await?.filter(|level| level != "edited"))
    })
    .await
}

#[tokio::test]
async fn manifests_url_is_installed_and_repair_keeps_recorded_content() -> Result<()> {
    let world = world().await?;
    let url = world.file_server.put("plain/1.0.0.yaml", config("plain", "low"));
    let source = json!({"manifests": {"url": url}});
    world.apply("plain", json!({"source": source, "release": {"namespace": "plain"}})).await?;
    let ready = world.ready("plain", "True", "Ready").await?;
    let digest = Digest::of(config("plain", "low").as_bytes()).to_string();
    let recorded = ready.status.and_then(|status| status.digests).and_then(|digests| digests.source);
    assert_eq!(recorded, Some(digest));
    world.file_server.put("plain/1.0.0.yaml", config("plain", "another"));
    assert_eq!(repaired(world, "plain", "plain").await?, "low");
    let url = world.file_server.put("plain/1.0.1.yaml", config("plain", "high"));
    let source = json!({"manifests": {"url": url}});
    world.apply("plain", json!({"source": source, "release": {"namespace": "plain"}})).await?;
    until("the new version is there", DEADLINE, || async {
        Ok((level(world, "plain", "plain").await?.as_deref() == Some("high")).then_some(()))
    })
    .await
}

#[tokio::test]
async fn i118_manifests_in_a_registry_are_installed_by_tag() -> Result<()> {
    let world = world().await?;
    let url = push_yaml(world, "manifests/jar", "1.0.0", &config("jar", "low")).await?;
    let source = json!({"manifests": {"url": url, "version": "1.0.0"}});
    world.apply("jar", json!({"source": source, "release": {"namespace": "jar"}})).await?;
    world.ready("jar", "True", "Ready").await?;
    push_yaml(world, "manifests/jar", "1.0.0", &config("jar", "another")).await?;
    assert_eq!(repaired(world, "jar", "jar").await?, "low", "the tag was moved");
    let source = json!({"manifests": {"url": url, "version": "2.0.0"}});
    world.apply("jar", json!({"source": source, "release": {"namespace": "jar"}})).await?;
    world.ready("jar", "False", "SourceNotFound").await?;
    assert_eq!(level(world, "jar", "jar").await?.as_deref(), Some("low"), "what is installed stays");
    Ok(())
}

#[tokio::test]
async fn a_chart_repository_is_read_by_its_index() -> Result<()> {
    let world = world().await?;
    let template = config("cup", "{{ .Values.level }}");
    let archive =
        packed("cup", "1.0.0", &[("templates/config.yaml", &template), ("values.yaml", "level: low\n")])?;
    world.file_server.put("repository/cup-1.0.0.tgz", archive.clone());
    let index = json!({"apiVersion": "v1", "entries": {"cup": [{
        "apiVersion": "v2", "name": "cup", "version": "1.0.0",
        "urls": ["cup-1.0.0.tgz"], "digest": Digest::of(&archive).to_string().replace("sha256:", ""),
    }]}});
    world.file_server.put("repository/index.yaml", index.to_string());
    let source = |version: &str| {
        json!({"chart": {
            "url": format!("http://{}/repository", world.file_server.address()), "name": "cup", "version": version,
        }})
    };
    let spec = |source: Value| json!({"source": source, "release": {"namespace": "cup"}, "userValues": {"level": "mine"}});
    world.apply("cup", spec(source("1.0.0"))).await?;
    world.ready("cup", "True", "Ready").await?;
    assert_eq!(level(world, "cup", "cup").await?.as_deref(), Some("mine"));
    world.apply("cup", spec(source("1.1.0"))).await?;
    world.ready("cup", "False", "SourceNotFound").await?;
    assert_eq!(level(world, "cup", "cup").await?.as_deref(), Some("mine"), "what is installed stays");
    Ok(())
}

#[tokio::test]
async fn an_address_where_nothing_is_is_named_and_tried_again() -> Result<()> {
    let world = world().await?;
    let url = format!("http://{}/later.yaml", world.file_server.address());
    world
        .apply("later", json!({"source": {"manifests": {"url": url}}, "release": {"namespace": "later"}}))
        .await?;
    let component = world.ready("later", "False", "SourceNotFound").await?;
    let (_, _, message) = ready_of(&component).expect("Ready");
    assert!(message.contains(&url), "{message}");
    world.file_server.put("later.yaml", config("later", "low"));
    world.ready("later", "True", "Ready").await?;
    Ok(())
}

#[tokio::test]
async fn corrected_source_answer_or_pull_secret_is_used_without_edit() -> Result<()> {
    // A registry for this test only, because the test changes its password.
    let world = &World::start().await?;
    let answers = [
        ("page.yaml", "<!DOCTYPE html><html></html>", "SourceInvalid"),
        ("text.yaml", "Back soon", "ManifestInvalid"),
    ];
    for (file, answer, reason) in answers {
        let name = file.trim_end_matches(".yaml");
        let url = world.file_server.put(file, answer);
        world
            .apply(name, json!({"source": {"manifests": {"url": url}}, "release": {"namespace": name}}))
            .await?;
        world.ready(name, "False", reason).await?;
        world.file_server.put(file, config(name, "low"));
        world.ready(name, "True", "Ready").await?;
    }

    let url = push_yaml(world, "manifests/corrected", "1.0.0", &config("corrected", "low")).await?;
    let url = url.replace(world.registry.address(), world.password_proxy.address());
    let pull_secret = async |auth: Value| -> Result<()> {
        let docker = json!({"auths": {world.password_proxy.address().to_string(): auth}}).to_string();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "corrected", "namespace": HUB_NAMESPACE},
            "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": docker},
        });
        let secrets: Api<Secret> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
        secrets.patch("corrected", &PatchParams::apply("test").force(), &Patch::Apply(secret)).await?;
        Ok(())
    };
    pull_secret(json!({"auth": "nonsense"})).await?;
    let source =
        json!({"manifests": {"url": url, "version": "1.0.0"}, "pullSecretRef": {"name": "corrected"}});
    world.apply("corrected", json!({"source": source, "release": {"namespace": "corrected"}})).await?;
    world.ready("corrected", "False", "SourceUnauthorized").await?;
    pull_secret(json!({"username": LOGIN.0, "password": LOGIN.1})).await?;
    world.ready("corrected", "True", "Ready").await?;
    Ok(())
}

/// Pushes a YAML file as an artifact to the registry, and returns the address of its repository.
pub(crate) async fn push_yaml(world: &World, repository: &str, tag: &str, yaml: &str) -> Result<String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build()?;
    let base = format!("http://{}/v2/{repository}", world.registry.address());
    let blob = async |content: Vec<u8>| -> Result<Value> {
        let (digest, size) = (Digest::of(&content).to_string(), content.len());
        let started = http.post(format!("{base}/blobs/uploads/")).send().await?.error_for_status()?;
        let location = started.headers().get("location").context("a place for the upload")?.to_str()?;
        let mut place = started.url().join(location)?;
        place.query_pairs_mut().append_pair("digest", &digest);
        http.put(place).body(content).send().await?.error_for_status()?;
        Ok(json!({"digest": digest, "size": size}))
    };
    let (mut config, mut layer) = (blob(b"{}".to_vec()).await?, blob(yaml.as_bytes().to_vec()).await?);
    config["mediaType"] = "application/vnd.oci.empty.v1+json".into();
    layer["mediaType"] = "application/yaml".into();
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]});
    let put = http.put(format!("{base}/manifests/{tag}")).header("content-type", kind);
    put.body(manifest.to_string()).send().await?.error_for_status()?;
    Ok(format!("oci://{}/{repository}", world.registry.address()))
}
