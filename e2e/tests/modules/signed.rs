//! One ModuleConfig that requires signatures of all modules, which come from a registry that asks for a password.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::catalogue;
use e2e::landscape::{HUB_NAMESPACE, Landscape, TARGET_NAMESPACE};
use e2e::wait;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kyma_api::{HelmComponent, Kyma, ModuleConfig, Reason, annotations, condition, labels, names};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::layout;

/// User and password of the registry.
pub(crate) const LOGIN: (&str, &str) = ("puller", "registry-password");

const KYMA: &str = "sealed-only";
const SIGNED: &str = "seal";
const UNSIGNED: &str = "blank";
const VERSION: &str = "1.0.0";
/// Names of the Secrets with the registry's password and with the trusted key.
const PASSWORD: &str = "registry";
const SIGNERS: &str = "signers";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// Requires signatures by one ModuleConfig, and checks that an unsigned module is refused until it is signed.
pub(crate) async fn unsigned_module_is_refused(landscape: &Landscape) -> Result<()> {
    let (hub, key) = (landscape.hub().client()?, KeyPair::generate()?);
    require_signatures(landscape, &hub, &key).await?;
    for module in [SIGNED, UNSIGNED] {
        publish(landscape, &hub, module).await?;
    }
    sign(landscape, SIGNED, &key).await?;
    let target = &landscape.targets()[0];
    create(&hub, &landscape.access_secret(KYMA, target).await?).await?;
    let kyma: Kyma = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2",
        "kind": "Kyma",
        "metadata": {"name": KYMA},
        "spec": {"channel": "regular", "modules": [{"name": SIGNED}, {"name": UNSIGNED}]},
    }))?;
    create(&hub, &kyma).await?;

    let content: Api<ConfigMap> = Api::namespaced(target.client()?, TARGET_NAMESPACE);
    until_ready(&hub, SIGNED, "True", Reason::Ready).await?;
    ensure!(content.get_opt(SIGNED).await?.is_some(), "a signed module is installed");
    until_ready(&hub, UNSIGNED, "False", Reason::SignatureMissing).await?;
    ensure!(content.get_opt(UNSIGNED).await?.is_none(), "an unsigned module is not installed");

    sign(landscape, UNSIGNED, &key).await?;
    // No event announces a new signature, so a reconcile is requested.
    let request =
        json!({"metadata": {"annotations": {annotations::RECONCILE_REQUESTED_AT: "2026-01-01T00:00:00Z"}}});
    let name = names::component_name(KYMA, UNSIGNED);
    components(&hub).patch(&name, &PatchParams::default(), &Patch::Merge(&request)).await?;
    until_ready(&hub, UNSIGNED, "True", Reason::Ready).await?;
    ensure!(content.get_opt(UNSIGNED).await?.is_some(), "a module that was signed later is installed");
    Ok(())
}

/// Creates the ModuleConfig and the Secrets that it names, and waits until it is in force.
async fn require_signatures(landscape: &Landscape, hub: &Client, key: &KeyPair) -> Result<()> {
    let registry = landscape.locked_registry().context("the registry asks for a password")?;
    let auths = json!({"auths": {registry: {"username": LOGIN.0, "password": LOGIN.1}}});
    let password: Secret = serde_json::from_value(json!({
        "metadata": {"name": PASSWORD, "labels": {labels::PULL_SECRET: "true"}},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": auths.to_string()},
    }))?;
    create(hub, &password).await?;
    let signers: Secret = serde_json::from_value(json!({
        "metadata": {"name": SIGNERS, "labels": {labels::READABLE_BY_ALL_MODULES: "true"}},
        "stringData": {"cosign.pub": key.public_key_pem()},
    }))?;
    create(hub, &signers).await?;
    let source = json!({
        "pullSecretRef": {"name": PASSWORD},
        "verify": {"keysSecretRef": {"name": SIGNERS, "key": "cosign.pub"}},
    });
    let config: ModuleConfig = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1",
        "kind": "ModuleConfig",
        "metadata": {"name": "signed"},
        "spec": {"module": "*", "overrides": {"component": {"source": source}}},
    }))?;
    create(hub, &config).await?;
    let configs: Api<ModuleConfig> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    let is_in_force = |found: Option<&ModuleConfig>| {
        let conditions = found.and_then(|found| found.status.as_ref()?.conditions.as_deref());
        let ready = condition::get(conditions.unwrap_or_default(), condition::types::READY);
        ready.is_some_and(|ready| ready.status == "True")
    };
    wait::until("the ModuleConfig is in force", configs, "signed", is_in_force).await?;
    Ok(())
}

/// Publishes a module of one ConfigMap with the module's name.
async fn publish(landscape: &Landscape, hub: &Client, module: &str) -> Result<()> {
    let manifest = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": module, "namespace": TARGET_NAMESPACE},
    });
    let config = json!({"version": VERSION, "manifest": "manifest.yaml"});
    let files = [("manifest.yaml", manifest.to_string())];
    catalogue::push_files(landscape, module, &config, &files).await?;
    catalogue::assign(hub.clone(), module, VERSION).await
}

/// Signs a module's component version as cosign does.
async fn sign(landscape: &Landscape, module: &str, key: &KeyPair) -> Result<()> {
    let http = layout::client()?;
    let repository = format!("component-descriptors/{}", layout::component(module));
    let base = format!("http://{}/v2/{repository}", landscape.registry().address());
    let found = http.get(format!("{base}/manifests/{VERSION}")).header("accept", MANIFEST).send().await?;
    let digest = hex::encode(Sha256::digest(found.error_for_status()?.bytes().await?));
    let payload = json!({
        "critical": {
            "identity": {"docker-reference": repository},
            "image": {"docker-manifest-digest": format!("sha256:{digest}")},
            "type": "cosign container image signature",
        },
        "optional": null,
    });
    let payload = payload.to_string();
    let blob = async |content: &str| -> Result<Value> {
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(content)));
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
    let put = http.put(format!("{base}/manifests/sha256-{digest}.sig")).header("content-type", MANIFEST);
    put.body(manifest.to_string()).send().await?.error_for_status()?;
    Ok(())
}

/// Waits until the condition Ready of a module's component has this status and reason.
async fn until_ready(hub: &Client, module: &str, status: &str, reason: Reason) -> Result<()> {
    let is_ready = |found: Option<&HelmComponent>| {
        let found = found.and_then(|found| serde_json::to_value(found).ok());
        found.is_some_and(|found| wait::has_condition(&found, condition::types::READY, status, reason))
    };
    let what = format!("{module} is Ready={status} {reason}");
    Box::pin(wait::until(&what, components(hub), &names::component_name(KYMA, module), is_ready)).await?;
    Ok(())
}

fn components(hub: &Client) -> Api<HelmComponent> {
    Api::namespaced(hub.clone(), HUB_NAMESPACE)
}

/// Creates an object in the hub's namespace.
async fn create<K>(hub: &Client, object: &K) -> Result<()>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    Api::<K>::namespaced(hub.clone(), HUB_NAMESPACE).create(&PostParams::default(), object).await?;
    Ok(())
}
