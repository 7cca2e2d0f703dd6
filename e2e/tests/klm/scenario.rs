//! Hands the Kyma of one recorded situation over to this project's operators and gives it back to KLM.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::landscape::{HUB_NAMESPACE, Landscape, TARGET_NAMESPACE};
use e2e::snapshot::{self, Difference, Snapshot};
use k8s_openapi::api::core::v1::{Event, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::discovery::Discovery;
use kube::{Api, Client, ResourceExt};
use kyma_api::condition::{self, types};
use kyma_api::{HelmComponent, Kyma, ModuleReleaseMeta, ModuleTemplate, Reason, klm, labels, names};
use serde_json::{Value, json};
use testbed::{Cluster, until, until_or_why};

use crate::layout;
use crate::recorded::{Situation, not_handed_over, until_stopped};

/// Group of Kymas, Manifests and default CRs.
const GROUP: &str = "operator.kyma-project.io";
/// Name of the recorded Kyma.
const KYMA: &str = "kyma-sample";
/// Deadline of each wait. It is longer than the longest pause between retries, a minute.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// Pushes the content of all recorded modules.
pub(crate) async fn publish(landscape: &Landscape, inputs: &Path) -> Result<()> {
    for (module, versions) in layout::all(inputs)? {
        for version in &versions {
            layout::push(version, &module, landscape.registry().address()).await?;
        }
    }
    Ok(())
}

/// Creates the Secret with user and password of the registry on the hub.
pub(crate) async fn allow_pulls(landscape: &Landscape, name: &str, login: (&str, &str)) -> Result<()> {
    let registry = landscape.locked_registry().context("the registry asks for a password")?;
    let auths = json!({"auths": {registry: {"username": login.0, "password": login.1}}});
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": name},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": auths.to_string()},
    }))?;
    let secrets: Api<Secret> = Api::namespaced(landscape.hub().client()?, HUB_NAMESPACE);
    secrets.create(&PostParams::default(), &secret).await?;
    Ok(())
}

pub(crate) struct Scenario<'a> {
    landscape: &'a Landscape,
    situation: Situation,
    hub: Client,
    /// Keeps the target running until the scenario ends.
    _target: Cluster,
    client: Client,
    hub_before: Snapshot,
    target_before: Snapshot,
}

impl<'a> Scenario<'a> {
    /// Creates hub and target as KLM left them, and waits until the operators report that the Kyma belongs to KLM.
    pub(crate) async fn begin(landscape: &'a Landscape, situation: Situation, number: u32) -> Result<Self> {
        let target = landscape.bare_target(&format!("situation-{number}")).await?;
        let (hub, client) = (landscape.hub().client()?, target.client()?);
        situation.onto_target(&client).await?;
        let secret = landscape.access_secret(KYMA, &target).await?;
        let secrets: Api<Secret> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
        secrets.create(&PostParams::default(), &secret).await?;
        situation.onto_hub(&hub).await?;
        let uid = kymas(&hub).get(KYMA).await?.uid();
        let events: Api<Event> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
        until("our operators say that the Kyma is KLM's", DEADLINE, || async {
            let listed = events.list(&ListParams::default()).await?;
            let is_expected = |event: &Event| {
                event.reason.as_deref() == Some(Reason::NotHandedOver.as_str())
                    && event.involved_object.uid == uid
            };
            Ok(listed.items.iter().any(is_expected).then_some(()))
        })
        .await?;
        let (hub_before, target_before) = (whole(&hub).await?, whole(&client).await?);
        Ok(Self { landscape, situation, hub, _target: target, client, hub_before, target_before })
    }

    pub(crate) async fn refuses_while_klm_runs(&self) -> Result<()> {
        let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
            Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        let lease = json!({
            "metadata": {"name": klm::LEASE},
            "spec": {"holderIdentity": "klm", "leaseDurationSeconds": 180, "renewTime": "2001-01-01T00:00:00.000000Z"},
        });
        leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
        let renewed = self.migrate_beside_klm(&leases, &[]).await?;
        ensure!(
            renewed.status.code() == Some(1) && output_text(&renewed).contains(klm::LEASE),
            "{}",
            output_text(&renewed)
        );
        self.unchanged().await?;
        // With both labels KLM leaves an object alone, so kymactl may run beside it.
        let both = json!({"metadata": {"labels": {
            labels::SKIP_RECONCILIATION: "true", labels::HAND_OVER: labels::HAND_OVER_PENDING,
        }}});
        kymas(&self.hub).patch_metadata(KYMA, &by_hand(), &Patch::Merge(&both)).await?;
        let output = self.migrate_beside_klm(&leases, &["--dry-run"]).await?;
        ensure!(output.status.code() == Some(1), "its Manifests are not labelled: {}", output_text(&output));
        for manifest in self.manifests().list(&ListParams::default()).await?.items {
            self.manifests().patch_metadata(&manifest.name_any(), &by_hand(), &Patch::Merge(&both)).await?;
        }
        let output = self.migrate_beside_klm(&leases, &["--dry-run"]).await?;
        ensure!(output.status.success(), "{}", output_text(&output));
        let released = json!({"spec": {"holderIdentity": ""}});
        leases.patch(klm::LEASE, &by_hand(), &Patch::Merge(&released)).await?;
        until_stopped(&self.hub, KYMA).await?;
        let none = not_handed_over();
        for manifest in self.manifests().list(&ListParams::default()).await?.items {
            self.manifests().patch_metadata(&manifest.name_any(), &by_hand(), &Patch::Merge(&none)).await?;
        }
        kymas(&self.hub).patch_metadata(KYMA, &by_hand(), &Patch::Merge(&none)).await?;
        Ok(())
    }

    /// Runs the command while KLM's Lease changes every second. Its `renewTime` stays far in the past, as with a
    /// KLM whose clock is behind.
    async fn migrate_beside_klm(
        &self,
        leases: &Api<k8s_openapi::api::coordination::v1::Lease>,
        words: &[&str],
    ) -> Result<Output> {
        let mut seconds = tokio::time::interval(std::time::Duration::from_secs(1));
        let mut migrating = std::pin::pin!(self.migrate(words));
        loop {
            tokio::select! {
                output = &mut migrating => return output,
                _ = seconds.tick() => {
                    let note = json!({"metadata": {"annotations": {"renewed": format!("{:?}", std::time::Instant::now())}}});
                    leases.patch_metadata(klm::LEASE, &by_hand(), &Patch::Merge(&note)).await?;
                }
            }
        }
    }

    pub(crate) async fn dry_run_writes_nothing(&self) -> Result<()> {
        let output = self.migrate(&["--dry-run"]).await?;
        ensure!(output.status.success(), "{}", output_text(&output));
        for manifest in self.situation.manifests()? {
            let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
            ensure!(output_text(&output).contains(name), "{name}: {}", output_text(&output));
        }
        self.unchanged().await
    }

    /// Runs the command and kills it, each time a little later, until it ends by itself, successfully and after at
    /// least three kills.
    pub(crate) async fn is_killed_again_and_again(&self, words: &[&str]) -> Result<()> {
        for number in 1_u64.. {
            let mut command = self.command(words);
            let mut child = command.kill_on_drop(true).spawn()?;
            let ended = tokio::time::timeout(Duration::from_millis(120 * number), child.wait()).await;
            match ended {
                Ok(ended) => {
                    ensure!(ended?.success(), "kymactl failed after it was killed {} times", number - 1);
                    ensure!(number > 3, "it was not killed often enough");
                    return Ok(());
                }
                Err(_) => child.kill().await?,
            }
        }
        Ok(())
    }

    /// Starts the hand-over while the Secret with the registry's password is missing, and kills it once a component
    /// reports that Secret.
    pub(crate) async fn waits_for_pull_secret(&self, secret: &str) -> Result<()> {
        let mut child = self.command(&[]).kill_on_drop(true).spawn()?;
        let components: Api<HelmComponent> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        until_or_why("a component names the missing Secret", DEADLINE, || async {
            let listed = components.list(&ListParams::default()).await?;
            let ready: Vec<String> = listed.iter().filter_map(ready_reason_and_message).collect();
            let reason = Reason::SourceUnauthorized.as_str();
            let is_named = ready.iter().any(|text| text.starts_with(reason) && text.contains(secret));
            Ok(if is_named { Ok(()) } else { Err(format!("{ready:?}")) })
        })
        .await?;
        ensure!(child.try_wait()?.is_none(), "the hand-over ended without content of its modules");
        child.kill().await?;
        Ok(())
    }

    pub(crate) async fn hand_over(&self) -> Result<()> {
        let output = self.migrate(&[]).await?;
        ensure!(output.status.success(), "{}", output_text(&output));
        let again = self.migrate(&[]).await?;
        ensure!(output_text(&again).contains("nothing to hand over"), "{}", output_text(&again));
        self.nothing_was_made_anew().await?;
        for recorded in self.situation.manifests()? {
            self.is_ours(&recorded).await.with_context(|| recorded["metadata"]["name"].to_string())?;
        }
        let kyma = kymas(&self.hub).get(KYMA).await?;
        ensure!(kyma.labels()[labels::HAND_OVER] == labels::HAND_OVER_DONE);
        let status = kyma.status.clone().unwrap_or_default();
        let mut tracked = status.modules.iter().flatten().filter_map(|module| module.manifest.as_ref());
        ensure!(tracked.all(|object| object.kind.as_deref() == Some("HelmComponent")), "{status:?}");
        self.until_syncer_has_reported().await
    }

    /// Waits until release-meta-syncer has reported on the Kyma: a rollback does not wait for an operator that is in
    /// its first reconcile, and the report would come after KLM's status is restored.
    async fn until_syncer_has_reported(&self) -> Result<()> {
        let is_its = |entry: &ManagedFieldsEntry| {
            entry.manager.as_deref() == Some("release-meta-syncer")
                && entry.subresource.as_deref() == Some("status")
        };
        until("release-meta-syncer has reported on the Kyma", DEADLINE, || async {
            let kyma = kymas(&self.hub).get(KYMA).await?;
            Ok(kyma.managed_fields().iter().any(is_its).then_some(()))
        })
        .await
    }

    /// Checks that a module's objects belong to its component, and that KLM's finalizers stay only on Manifests
    /// that are being deleted.
    async fn is_ours(&self, recorded: &Value) -> Result<()> {
        let meta = &recorded["metadata"];
        let module = meta["labels"][labels::MODULE_NAME].as_str().context("a Manifest names its module")?;
        let manifest = self.manifests().get(meta["name"].as_str().unwrap_or_default()).await?;
        let is_going = !meta["deletionTimestamp"].is_null();
        ensure!(manifest.finalizers().is_empty() != is_going, "{:?}", manifest.finalizers());
        ensure!(manifest.data["spec"] == recorded["spec"], "KLM would go on with what it had");
        let component = self.shown(module, &manifest.name_any()).await?;
        let mandatory = |labels: &std::collections::BTreeMap<String, String>| {
            (labels.get(labels::MANDATORY_MODULE).cloned(), labels.get(labels::CHANNEL).cloned())
        };
        ensure!(
            mandatory(component.labels()) == mandatory(manifest.labels()),
            "{module} {:?}",
            component.labels()
        );
        let status = component.status.clone().unwrap_or_default();
        let version = recorded["spec"]["version"].as_str();
        ensure!(status.version.as_deref() == version, "{module} {:?}", status.version);
        let inventory = status.entries()?;
        let synced = recorded["status"]["synced"].as_array().map_or(0, Vec::len);
        ensure!(inventory.len() == synced, "{} of {synced} objects: {inventory:?}", inventory.len());
        let made = status.resource.context("the default CR is on record")?;
        let default = snapshot::Key::of(GROUP, &made.kind, &recorded["spec"]["resource"]["metadata"]);
        let is_there = self.target_before.contains_key(&default);
        ensure!(
            made.uid.is_some() == is_there,
            "KLM created the default CR, and no operator creates it again: {made:?}"
        );
        let wanted = component.spec.module.map(|module| module.version);
        ensure!(wanted.as_deref() == version, "{module} {wanted:?}");
        Ok(())
    }

    /// Waits until the status of the Manifest shows the state of the module's component, and returns the component.
    async fn shown(&self, module: &str, manifest: &str) -> Result<HelmComponent> {
        let components: Api<HelmComponent> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        until_or_why("the Manifest shows the component", DEADLINE, || async {
            let component = components.get(&names::component_name(KYMA, module)).await?;
            let shown = self.manifests().get(manifest).await?.data["status"].take();
            let status = component.status.clone().unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let ready = condition::get(&conditions, types::READY).map(|ready| ready.message.as_str());
            let of = |one: &&Value| one["type"] == klm::INSTALLATION;
            let condition = shown["conditions"].as_array().and_then(|all| all.iter().find(of));
            let is = shown["state"] == json!(status.state)
                && condition.map(|condition| &condition["message"]) == Some(&json!(ready));
            Ok(if is { Ok(component) } else { Err(format!("{ready:?}: {shown}")) })
        })
        .await
    }

    /// Checks that every object of the target keeps its uid, and that no Deployment or default CR has a new
    /// generation.
    async fn nothing_was_made_anew(&self) -> Result<()> {
        let now = whole(&self.client).await?;
        for (key, before) in &self.target_before {
            let after = now.get(key).with_context(|| format!("{key} is gone"))?;
            let field = |object: &Value, field: &str| object["metadata"][field].clone();
            ensure!(field(before, "uid") == field(after, "uid"), "{key} is another one");
            let runs = key.is("apps", "Deployment") || key.is(GROUP, "Keda") || key.is(GROUP, "Sample");
            let moved = field(before, "generation") != field(after, "generation");
            ensure!(
                !(runs && moved),
                "{key} was changed: {:?}",
                snapshot::paths(&before["spec"], &after["spec"])
            );
        }
        Ok(())
    }

    pub(crate) async fn give_back(&self) -> Result<()> {
        let output = self.migrate(&["--rollback", "--dry-run"]).await?;
        ensure!(output.status.success(), "{}", output_text(&output));
        let output = self.migrate(&["--rollback"]).await?;
        ensure!(output.status.success(), "{}", output_text(&output));
        self.nothing_was_made_anew().await?;
        self.unchanged().await
    }

    /// Checks that Kyma and Manifests on the hub are unchanged, and waits until the target is unchanged too,
    /// `managedFields` included.
    async fn unchanged(&self) -> Result<()> {
        let hub = whole(&self.hub).await?;
        let of_klm = |group: &str, kind: &str| group == GROUP && ["Kyma", "Manifest"].contains(&kind);
        let changed = snapshot::differences(&self.hub_before, &hub);
        let changed: Vec<_> =
            changed.into_iter().filter(|one| of_klm(&key(one).group, &key(one).kind)).collect();
        ensure!(changed.is_empty(), "on the hub: {}", list(&changed));
        until_or_why("the target is as it was", DEADLINE, || async {
            let target = whole(&self.client).await?;
            let changed = snapshot::differences(&self.target_before, &target);
            let changed: Vec<_> = changed.into_iter().filter(|one| !is_left_to_klm(key(one))).collect();
            let owners = |one: &Difference| {
                let of = |all: &Snapshot| {
                    all.get(key(one)).map(|found| found["metadata"]["managedFields"].clone())
                };
                format!("{:?} -> {:?}", of(&self.target_before), of(&target))
            };
            let owners: Vec<String> = changed.iter().map(owners).collect();
            Ok(if changed.is_empty() {
                Ok(())
            } else {
                Err(format!("{}: {}", list(&changed), owners.join("; ")))
            })
        })
        .await
    }

    pub(crate) async fn leaves_what_is_being_deleted(&self) -> Result<()> {
        let output = self.migrate(&[]).await?;
        ensure!(
            output.status.code() == Some(1) && output_text(&output).contains("being deleted"),
            "{}",
            output_text(&output)
        );
        self.unchanged().await
    }

    /// Deletes the situation's objects from the hub before the next situation.
    pub(crate) async fn end(self) -> Result<()> {
        let free = json!({"metadata": {"finalizers": null, "labels": {labels::HAND_OVER: labels::HAND_OVER_PENDING}}});
        let parameters = DeleteParams::default();
        kymas(&self.hub).patch_metadata(KYMA, &by_hand(), &Patch::Merge(&free)).await?;
        kymas(&self.hub).delete(KYMA, &parameters).await?;
        for manifest in self.manifests().list(&ListParams::default()).await?.items {
            let name = manifest.name_any();
            self.manifests().patch_metadata(&name, &by_hand(), &Patch::Merge(&free)).await?;
            // A Manifest that was being deleted already is gone once its finalizers are.
            self.manifests().delete(&name, &parameters).await.ok();
        }
        let all = ListParams::default();
        let releases: Api<ModuleReleaseMeta> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        Api::<ModuleTemplate>::namespaced(self.hub.clone(), HUB_NAMESPACE)
            .delete_collection(&parameters, &all)
            .await?;
        releases.delete_collection(&parameters, &all).await?;
        let secrets: Api<Secret> = Api::namespaced(self.hub.clone(), HUB_NAMESPACE);
        secrets.delete(&format!("kubeconfig-{KYMA}"), &parameters).await?;
        until("the Kyma and held release metas are gone", DEADLINE, || async {
            let left = releases.list(&all).await?.items;
            Ok((left.is_empty() && kymas(&self.hub).get_opt(KYMA).await?.is_none()).then_some(()))
        })
        .await
    }

    fn manifests(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.hub.clone(), HUB_NAMESPACE, &klm::manifest_resource())
    }

    fn command(&self, words: &[&str]) -> tokio::process::Command {
        let mut command = self.landscape.kymactl();
        command.args(["migrate", "klm", "--allow-loopback-targets", "--kyma", KYMA, "--timeout", "120s"]);
        command.args(words);
        command
    }

    async fn migrate(&self, words: &[&str]) -> Result<Output> {
        self.landscape.check()?;
        self.command(words).output().await.context("cannot start kymactl")
    }
}

/// Returns reason and message of a component's condition Ready.
fn ready_reason_and_message(component: &HelmComponent) -> Option<String> {
    let conditions = component.status.as_ref()?.conditions.as_deref()?;
    let ready = condition::get(conditions, types::READY)?;
    Some(format!("{}: {}", ready.reason, ready.message))
}

fn kymas(hub: &Client) -> Api<Kyma> {
    Api::namespaced(hub.clone(), HUB_NAMESPACE)
}

fn by_hand() -> PatchParams {
    PatchParams { field_manager: Some("kubectl-label".to_owned()), ..PatchParams::default() }
}

fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn key(difference: &Difference) -> &snapshot::Key {
    match difference {
        Difference::Added(key) | Difference::Removed(key) | Difference::Changed(key, _) => key,
    }
}

fn list(differences: &[Difference]) -> String {
    differences.iter().map(|one| format!("\n  {one}")).collect()
}

/// Reports whether both KLM and the operators write the object: the namespace, CRDs and catalogue on the target,
/// which KLM overwrites with its next reconciliation.
fn is_left_to_klm(key: &snapshot::Key) -> bool {
    let catalogue = ["ModuleTemplate", "ModuleReleaseMeta"].iter().any(|kind| key.is(GROUP, kind));
    let crd = key.is("apiextensions.k8s.io", "CustomResourceDefinition")
        && ["kymas", "moduletemplates", "modulereleasemetas"]
            .iter()
            .any(|name| key.name == format!("{name}.{GROUP}"));
    let namespace = key.is("", "Namespace") && key.name == TARGET_NAMESPACE;
    catalogue || crd || namespace
}

/// Returns all objects of a cluster without resourceVersion and times of writes.
async fn whole(client: &Client) -> Result<Snapshot> {
    let mut all = snapshot::take_whole(client, |group, _| group != "apiregistration.k8s.io").await?;
    // Default CRs use versions that are not preferred in their group, which a snapshot omits.
    let discovery = Discovery::new(client.clone()).filter(&[GROUP]).run().await?;
    for (resource, _) in discovery.groups().flat_map(kube::discovery::ApiGroup::resources_by_stability) {
        for object in snapshot::objects(client, &resource, &ListParams::default()).await? {
            let object = serde_json::to_value(object)?;
            all.insert(snapshot::Key::of(GROUP, &resource.kind, &object["metadata"]), object);
        }
    }
    for object in all.values_mut() {
        let Some(meta) = object["metadata"].as_object_mut() else { continue };
        meta.remove("resourceVersion");
        let fields = meta.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten();
        for entry in fields.filter_map(Value::as_object_mut) {
            entry.remove("time");
            for fields in entry.values_mut() {
                without_protocols(fields);
            }
        }
        if let Some(fields) = meta.get_mut("managedFields").and_then(Value::as_array_mut) {
            fields.sort_by_key(Value::to_string);
        }
    }
    Ok(all)
}

/// Removes ownership of port protocols: the operators' applies name the protocol of every port, also the default
/// one, and KLM's next apply gives the field up again.
fn without_protocols(fields: &mut Value) {
    let Some(fields) = fields.as_object_mut() else { return };
    fields.remove("f:protocol");
    fields.values_mut().for_each(without_protocols);
}
