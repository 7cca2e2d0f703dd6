//! Content that has to be signed: unsigned content never reaches the target, and the installed version stays.

use anyhow::{Context, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kyma_api::annotations;
use kyma_artifacts::Digest;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

use crate::source::{config, push_yaml};
use crate::world::{HUB_NAMESPACE, World, ready_of, world};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// Makes this key the trusted one.
async fn trust(world: &World, secret: &str, key: &str) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(world.hub.client()?, HUB_NAMESPACE);
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}, "stringData": {"cosign.pub": key},
    });
    secrets.patch(secret, &PatchParams::apply("test").force(), &Patch::Apply(object)).await?;
    Ok(())
}

/// Returns the spec of a component with the artifact of this tag, which has to be signed.
fn spec(url: &str, version: &str, namespace: &str, secret: &str) -> Value {
    let verify = json!({"keysSecretRef": {"name": secret, "key": "cosign.pub"}});
    json!({
        "source": {"manifests": {"url": url, "version": version}, "verify": verify},
        "release": {"namespace": namespace},
    })
}

/// Signs a tag's manifest as cosign does, and replaces existing signatures.
async fn sign(world: &World, repository: &str, tag: &str, key: &KeyPair) -> Result<()> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let base = format!("http://{}/v2/{repository}", world.registry.address());
    let found = http.get(format!("{base}/manifests/{tag}")).header("accept", MANIFEST).send().await?;
    let digest = Digest::of(&found.error_for_status()?.bytes().await?);
    let payload = json!({
        "critical": {
            "identity": {"docker-reference": repository},
            "image": {"docker-manifest-digest": digest}, "type": "cosign container image signature",
        },
        "optional": null,
    });
    let payload = payload.to_string();
    let blob = async |content: &str| -> Result<Value> {
        let digest = Digest::of(content.as_bytes());
        let upload = format!("{base}/blobs/uploads/?digest={digest}");
        http.post(upload).body(content.to_owned()).send().await?.error_for_status()?;
        Ok(json!({"digest": digest, "size": content.len()}))
    };
    let (mut config, mut layer) = (blob("{}").await?, blob(&payload).await?);
    config["mediaType"] = "application/vnd.oci.empty.v1+json".into();
    layer["mediaType"] = PAYLOAD.into();
    let signature = STANDARD.encode(key.sign(payload.as_bytes())?);
    layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
    let put =
        http.put(format!("{base}/manifests/sha256-{}.sig", digest.hex())).header("content-type", MANIFEST);
    put.body(manifest.to_string()).send().await?.error_for_status()?;
    Ok(())
}

/// Requests a reconcile, as no event announces a new signature.
pub(crate) async fn look_again(world: &World, name: &str, moment: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {annotations::RECONCILE_REQUESTED_AT: moment}}});
    world.components()?.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn level(world: &World, namespace: &str) -> Result<Option<Value>> {
    let found = world.on_target("v1", "ConfigMap", namespace, namespace).await?;
    Ok(found.map(|found| found.data["data"]["level"].clone()))
}

#[tokio::test]
async fn content_without_signature_by_key_never_reaches_target() -> Result<()> {
    let world = world().await?;
    let (key, other) = (KeyPair::generate()?, KeyPair::generate()?);
    let url = push_yaml(world, "signed/seal", "1.0.0", &config("seal", "one")).await?;
    let wish = spec(&url, "1.0.0", "seal", "seal-keys");

    // A component that requires no signature has put it into the cache already.
    let unasked =
        json!({"source": {"manifests": {"url": url, "version": "1.0.0"}}, "release": {"namespace": "jug"}});
    world.apply("jug", unasked).await?;
    world.ready("jug", "True", "Ready").await?;

    world.apply("seal", wish).await?;
    let missing = world.ready("seal", "False", "VerificationInvalid").await?;
    let (_, _, message) = ready_of(&missing).context("Ready")?;
    assert!(message.contains("Secret seal-keys does not exist"), "{message}");
    trust(world, "seal-keys", "not a key").await?;
    until_told(world, "seal", "VerificationInvalid", "no PEM block").await?;
    trust(world, "seal-keys", &key.public_key_pem()).await?;
    world.ready("seal", "False", "SignatureMissing").await?;
    sign(world, "signed/seal", "1.0.0", &other).await?;
    look_again(world, "seal", "2026-01-01T00:00:00Z").await?;
    let foreign = world.ready("seal", "False", "SignatureInvalid").await?;
    let (_, _, message) = ready_of(&foreign).context("Ready")?;
    assert!(message.contains("by none of the trusted keys"), "{message}");
    let status = foreign.status.context("a status")?;
    assert!(status.entries()?.is_empty());
    assert_eq!(level(world, "seal").await?, None);
    let namespace = world.on_target("v1", "Namespace", "", "seal").await?;
    assert!(namespace.is_none(), "not even its namespace is made");

    sign(world, "signed/seal", "1.0.0", &key).await?;
    look_again(world, "seal", "2026-01-02T00:00:00Z").await?;
    world.ready("seal", "True", "Ready").await?;
    assert_eq!(level(world, "seal").await?, Some("one".into()));
    Ok(())
}

#[tokio::test]
async fn unsigned_upgrade_or_changed_key_keeps_the_running_release() -> Result<()> {
    let world = world().await?;
    let (key, other) = (KeyPair::generate()?, KeyPair::generate()?);
    trust(world, "stamp-keys", &key.public_key_pem()).await?;
    let url = push_yaml(world, "signed/stamp", "1.0.0", &config("stamp", "one")).await?;
    push_yaml(world, "signed/stamp", "2.0.0", &config("stamp", "two")).await?;
    sign(world, "signed/stamp", "1.0.0", &key).await?;
    world.apply("stamp", spec(&url, "1.0.0", "stamp", "stamp-keys")).await?;
    world.ready("stamp", "True", "Ready").await?;
    let version = async || {
        let found = world.on_target("v1", "ConfigMap", "stamp", "stamp").await?.context("what runs")?;
        anyhow::Ok(found.metadata.resource_version)
    };
    let before = version().await?;

    world.apply("stamp", spec(&url, "2.0.0", "stamp", "stamp-keys")).await?;
    world.ready("stamp", "False", "SignatureMissing").await?;
    assert_eq!(version().await?, before);
    world.apply("stamp", spec(&url, "1.0.0", "stamp", "stamp-keys")).await?;
    world.ready("stamp", "True", "Ready").await?;

    // The event of the Secret triggers a new check: signatures of the old key are not trusted any more.
    trust(world, "stamp-keys", &other.public_key_pem()).await?;
    world.ready("stamp", "False", "SignatureInvalid").await?;
    assert_eq!((version().await?, level(world, "stamp").await?), (before, Some("one".into())));

    sign(world, "signed/stamp", "2.0.0", &other).await?;
    world.apply("stamp", spec(&url, "2.0.0", "stamp", "stamp-keys")).await?;
    world.ready("stamp", "True", "Ready").await?;
    assert_eq!(level(world, "stamp").await?, Some("two".into()));
    Ok(())
}

/// Waits until the condition Ready has this reason and a message with these words.
pub(crate) async fn until_told(world: &World, name: &str, reason: &str, words: &str) -> Result<()> {
    let components = world.components()?;
    testbed::until(words, crate::world::DEADLINE, || async {
        let ready = ready_of(&components.get(name).await?);
        let is = ready.is_some_and(|(_, why, message)| why == reason && message.contains(words));
        Ok(is.then_some(()))
    })
    .await
}
