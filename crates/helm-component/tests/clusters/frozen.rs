//! Charts with values by chance, which are rendered once for each release.

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testbed::until;

use crate::chart::push;
use crate::world::{HUB_NAMESPACE, PATIENCE, World};

/// A password, and who has to be told that it is another one.
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

async fn renders(world: &World) -> Result<usize> {
    let secrets: Api<Secret> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let kept = ListParams::default().fields("type=component.kyma-project.io/kept-render");
    Ok(secrets.list(&kept).await?.items.len())
}

#[tokio::test]
async fn what_a_chart_has_by_chance_is_the_same_for_every_process_until_the_next_release() -> Result<()> {
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

    // A new process knows nothing of the render, and no object on the target tells the password any more.
    world.restart_operator().await?;
    let secrets: Api<Secret> = Api::namespaced(world.target.client()?, "chance");
    secrets.delete("password", &DeleteParams::default()).await?;
    let after = until("the Secret is there again", PATIENCE, || pair(&world, "chance")).await?;
    assert_eq!(after.password, before.password, "not a new one");
    assert_eq!(after.checksum, before.checksum);

    // The next release has a new one, and all that goes with it.
    world.apply("chance", spec(&source, "chance", "high")).await?;
    world.ready("chance", "True", "Ready").await?;
    let next = pair(&world, "chance").await?.context("both")?;
    assert_ne!(next.password, before.password);
    assert_ne!(next.checksum, before.checksum);
    ensure!(renders(&world).await? == 1, "one for each component");
    Ok(())
}
