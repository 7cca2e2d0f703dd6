//! Charts with random values, which are rendered once for each release.

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use testbed::until;

use crate::chart::push;
use crate::world::{DEADLINE, HUB_NAMESPACE, World, world};

/// A password, and a reader that must change with it.
const PASSWORD: &str = r#"{{- $password := randAlphaNum 24 }}
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: "{{ $password }}"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: reader}
data: {checksum: "{{ sha256sum $password }}", level: "{{ .Values.level }}"}
"#;

/// Template that makes level `broken` fail before any object is sent.
const BROKEN: &str = r#"{{ if eq .Values.level "broken" }}
kind: ConfigMap
metadata: {name: of-no-version}
{{ end }}
"#;

struct Pair {
    password: ByteString,
    checksum: String,
}

async fn pair(world: &World, namespace: &str) -> Result<Option<Pair>> {
    let secrets: Api<Secret> = Api::namespaced(world.target.client()?, namespace);
    let maps: Api<ConfigMap> = Api::namespaced(world.target.client()?, namespace);
    let (Some(secret), Some(reader)) = (secrets.get_opt("password").await?, maps.get_opt("reader").await?)
    else {
        return Ok(None);
    };
    let password = secret.data.and_then(|mut data| data.remove("password")).context("a password")?;
    let checksum = reader.data.and_then(|mut data| data.remove("checksum")).context("a checksum")?;
    Ok(Some(Pair { password, checksum }))
}

/// Returns the number of kept renders with random values.
pub(crate) async fn renders(world: &World) -> Result<usize> {
    let secrets: Api<Secret> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let of_store = ListParams::default().fields("type=component.kyma-project.io/release");
    let has_render =
        |secret: &&Secret| secret.data.as_ref().is_some_and(|data| data.contains_key("render.sha256"));
    Ok(secrets.list(&of_store).await?.items.iter().filter(has_render).count())
}

#[tokio::test]
async fn random_render_is_equal_for_all_processes_until_next_release() -> Result<()> {
    let mut world = World::start().await?;
    let plain =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\ndata: {level: \"{{ .Values.level }}\"}\n";
    let source = push(&world, "certain", "1.0.0", &[("templates/plain.yaml", plain)]).await?;
    let spec = |source: &serde_json::Value, name: &str, level: &str| json!({"source": source, "values": {"level": level}, "release": {"namespace": name}});
    world.apply("certain", spec(&source, "certain", "low")).await?;
    world.ready("certain", "True", "Ready").await?;
    ensure!(renders(&world).await? == 0, "who needs no frozen render has none");

    let source = push(&world, "chance", "1.0.0", &[("templates/password.yaml", PASSWORD)]).await?;
    world.apply("chance", spec(&source, "chance", "low")).await?;
    world.ready("chance", "True", "Ready").await?;
    ensure!(renders(&world).await? == 1);
    let before = pair(&world, "chance").await?.context("both")?;

    // A new process does not have the render, and no object on the target contains the password any more.
    world.restart_operator().await?;
    let secrets: Api<Secret> = Api::namespaced(world.target.client()?, "chance");
    secrets.delete("password", &DeleteParams::default()).await?;
    let after = until("the Secret is there again", DEADLINE, || pair(&world, "chance")).await?;
    assert_eq!(after.password, before.password, "not a new one");
    assert_eq!(after.checksum, before.checksum);

    // The next release has a new password, and everything that depends on it.
    world.apply("chance", spec(&source, "chance", "high")).await?;
    world.ready("chance", "True", "Ready").await?;
    let next = pair(&world, "chance").await?.context("both")?;
    assert_ne!(next.password, before.password);
    assert_ne!(next.checksum, before.checksum);
    ensure!(renders(&world).await? == 2, "what is installed, and what was before it");
    Ok(())
}

fn at_level(source: &Value, name: &str, level: &str) -> Value {
    json!({"source": source, "values": {"level": level}, "release": {"name": name, "namespace": name}})
}

#[tokio::test]
async fn no_component_gets_the_password_of_another_one() -> Result<()> {
    let world = world().await?;
    let source = push(world, "by-chance", "1.0.0", &[("templates/password.yaml", PASSWORD)]).await?;
    let mut passwords = vec![];
    // Components with the same chart, release and values, one after the other on the same target. The last one has
    // the name of the first.
    for tenant in ["chance-tenant-a", "chance-tenant-b", "chance-tenant-a"] {
        world.apply(tenant, at_level(&source, "chance-tenants", "low")).await?;
        world.ready(tenant, "True", "Ready").await?;
        passwords.push(pair(world, "chance-tenants").await?.context("both")?.password);
        world.delete(tenant, "Delete").await?;
        world.gone(tenant).await?;
    }
    passwords.sort();
    passwords.dedup();
    assert_eq!(passwords.len(), 3);
    Ok(())
}

#[tokio::test]
async fn failed_release_does_not_change_password_of_installed_one() -> Result<()> {
    let mut world = World::start().await?;
    let name = "chance-back";
    let files = [("templates/password.yaml", PASSWORD), ("templates/broken.yaml", BROKEN)];
    let source = push(&world, name, "1.0.0", &files).await?;
    world.apply(name, at_level(&source, name, "low")).await?;
    world.ready(name, "True", "Ready").await?;
    let before = pair(&world, name).await?.context("both")?;

    // This release is rendered and refused before anything is sent; then the installed one is requested again, and
    // nothing has to be changed.
    world.apply(name, at_level(&source, name, "broken")).await?;
    world.ready(name, "False", "ManifestInvalid").await?;
    world.apply(name, at_level(&source, name, "low")).await?;
    world.ready(name, "True", "Ready").await?;
    ensure!(renders(&world).await? == 2, "both were rendered");

    // Objects that are created again use the installed render, in this process and in the next one.
    for label in ["one", "two"] {
        if label == "two" {
            world.restart_operator().await?;
        }
        let mut spec = at_level(&source, name, "low");
        spec["commonMetadata"] = json!({"labels": {"example.org/label": label}});
        world.apply(name, spec).await?;
        world.ready(name, "True", "Ready").await?;
        let secrets: Api<Secret> = Api::namespaced(world.target.client()?, name);
        let labels = secrets.get("password").await?.metadata.labels.unwrap_or_default();
        assert_eq!(labels["example.org/label"], label, "it was sent anew");
        let after = pair(&world, name).await?.context("both")?;
        assert_eq!((after.password, after.checksum), (before.password.clone(), before.checksum.clone()));
    }
    Ok(())
}
