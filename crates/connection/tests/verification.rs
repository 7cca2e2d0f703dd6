//! Verification of targets on a real control plane: the hub's record of a target and the target's stamp, read at
//! different times.

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kyma_api::{Kyma, Reason, crds};
use kyma_connection::verify_target;
use kyma_controller::{AccessArgs, Args, LogFormat, Mode, Operator, Process, Runtime, Settings};
use kyma_targets::{AccessPolicy, Limits, STAMP_NAMESPACE, Stamp, Target, Targets};
use serde_json::json;
use testbed::{Access, Cluster, SharedTestEnv};

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

/// Returns a target for this user, from an access Secret with this name.
fn target(name: &str, user: &Access) -> Result<Target> {
    let policy = AccessPolicy { allow_loopback: true, ..AccessPolicy::default() };
    let targets = Targets::new(policy, Limits::default(), "test/0.1.0", "test", 10);
    let mut secret = Secret::default();
    secret.metadata.namespace = Some("kcp-system".into());
    secret.metadata.name = Some(name.into());
    secret.data = Some([("config".to_owned(), ByteString(user.kubeconfig().into_bytes()))].into());
    targets.from_secret(&secret, "config").context("the access Secret")
}

/// Connects an operator as administrator on this hub and namespace.
async fn runtime(hub: &Cluster, namespace: &str) -> Result<Runtime> {
    let settings = Settings::resolve(Args {
        hub_namespace: namespace.to_owned(),
        target_namespace: "kyma-system".to_owned(),
        selector: String::new(),
        kubeconfig: None,
        concurrency: 2,
        resync: "24h".to_owned(),
        reconcile_deadline: "2m".to_owned(),
        log_format: LogFormat::Text,
        log_level: "info".to_owned(),
        admin_address: String::new(),
        mode: Mode::Fleet,
        local_kyma: None,
        brake_targets: 10,
        brake_percent: 1,
        access: AccessArgs { allow_loopback_targets: true, ..AccessArgs::default() },
    })?;
    let operator = Operator { name: "test-operator", version: "0.1.0" };
    Ok(Runtime::connect(operator, settings, hub.admin().config()?, Process::new()?).await?)
}

/// Installs the CRDs of the hub, and waits until their kinds are served.
async fn install_crds(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in [crds::kyma(), crds::pause()] {
        definitions.create(&PostParams::default(), &crd).await?;
        testbed::crd_is_served(client, &crd.name_any()).await?;
    }
    Ok(())
}

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
        let cluster = TEST_ENV.cluster("cluster", |cluster| cluster).await?;
        let client = cluster.client()?;
        install_crds(&client).await?;
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
