//! Creates objects that a real Kyma Lifecycle Manager (KLM) left on real apiservers, with status and
//! `managedFields`.
//!
//! A create or update makes its sender the owner of its fields; only a patch that changes nothing but
//! `metadata.managedFields` stores the entries unchanged. So each object is created first, then gets its status,
//! and last its recorded `managedFields`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::inputs::modules;
use e2e::landscape::HUB_NAMESPACE;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use kube::{Api, Client, ResourceExt};
use kyma_api::{Kyma, annotations, klm, labels};
use serde_json::{Value, json};
use testbed::{crd_is_served, until, until_discovered};

use crate::mandatory::MandatoryModule;
use crate::scenario::DEADLINE;

/// Files of a target that are not created as objects: metadata of CRDs, and webhooks whose service does not run
/// here.
const IGNORED_FILES: [&str; 2] = ["crds-metadata.yaml", "validatingwebhookconfigurations.yaml"];
/// KLM's own CRDs on a target.
const TARGET_CRDS: [&str; 3] = ["kymas", "moduletemplates", "modulereleasemetas"];

/// A recorded situation.
pub(crate) struct Situation {
    inputs: PathBuf,
    directory: PathBuf,
    mandatory: Option<MandatoryModule>,
}

impl Situation {
    /// Returns the situation whose directory begins with this number.
    pub(crate) fn find(inputs: &Path, number: u32) -> Result<Self> {
        let all = inputs.join("klm-recorded");
        let begins = format!("{number}-");
        for entry in std::fs::read_dir(&all)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(&begins) && path.is_dir() {
                return Ok(Self { inputs: inputs.to_owned(), directory: path, mandatory: None });
            }
        }
        anyhow::bail!("{} has no situation {number}", all.display())
    }

    /// Returns the situation as if this module were mandatory.
    pub(crate) fn with_mandatory(mut self, module: &'static str) -> Result<Self> {
        let manifests = self.manifests()?;
        let of = |one: &&Value| one["metadata"]["labels"][labels::MODULE_NAME] == module;
        let version = manifests.iter().find(of).and_then(|manifest| manifest["spec"]["version"].as_str());
        let version = version.with_context(|| format!("no Manifest of {module} was recorded"))?.to_owned();
        self.mandatory = Some(MandatoryModule { module, version });
        Ok(self)
    }

    fn items(&self, file: &str) -> Result<Vec<Value>> {
        let items = self.recorded(file)?;
        let Some(mandatory) = &self.mandatory else { return Ok(items) };
        let is_on_target = file.starts_with("target/");
        Ok(items.into_iter().filter_map(|object| mandatory.remake(object, is_on_target)).collect())
    }

    fn recorded(&self, file: &str) -> Result<Vec<Value>> {
        let path = self.directory.join(file);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let Some(list) = serde_saphyr::from_str::<Option<Value>>(&text)? else { return Ok(Vec::new()) };
        match list.get("items") {
            Some(items) => items.as_array().cloned().context("items are a list"),
            None if list.is_object() => Ok(vec![list]),
            // The file holds kubectl's message that the kind is not served.
            None => Ok(Vec::new()),
        }
    }

    /// Returns the recorded Manifests.
    pub(crate) fn manifests(&self) -> Result<Vec<Value>> {
        self.items("hub/manifests.yaml")
    }

    /// Creates the recorded catalogue, Kymas and Manifests on the hub. Each Kyma is created with the label of a
    /// pending hand-over, so that operators leave it alone while its Manifests are created; the label is removed
    /// afterwards.
    pub(crate) async fn onto_hub(&self, hub: &Client) -> Result<()> {
        let crd = self.inputs.join("klm-crds/operator.kyma-project.io_manifests.yaml");
        apply(hub, &serde_saphyr::from_str(&std::fs::read_to_string(crd)?)?, "platform-team").await?;
        crd_is_served(hub, "manifests.operator.kyma-project.io").await?;
        for file in ["hub/moduletemplates.yaml", "hub/modulereleasemetas.yaml"] {
            for object in self.items(file)? {
                put(hub, &object).await?;
            }
        }
        for mut kyma in self.items("hub/kymas.yaml")? {
            let uid = kyma["metadata"]["uid"].as_str().context("a recorded Kyma has a uid")?.to_owned();
            kyma["metadata"]["labels"][labels::HAND_OVER] = labels::HAND_OVER_PENDING.into();
            let made = put(hub, &kyma).await?;
            let live = made.uid().context("a Kyma has a uid")?;
            for manifest in self.manifests()? {
                let text = manifest.to_string().replace(&uid, &live);
                put(hub, &serde_json::from_str(&text)?).await?;
            }
            until_stopped(hub, &made.name_any()).await?;
            patch(hub, &made, &not_handed_over()).await?;
        }
        Ok(())
    }

    /// Creates the recorded namespace, CRDs and objects on the target.
    pub(crate) async fn onto_target(&self, target: &Client) -> Result<()> {
        for object in self.items("target/namespace-kyma-system.yaml")? {
            put(target, &object).await?;
        }
        for name in TARGET_CRDS {
            let path = self.inputs.join(format!("klm-crds/operator.kyma-project.io_{name}.yaml"));
            let mut crd: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
            crd["metadata"]["labels"] = json!({labels::MANAGED_BY: labels::MANAGED_BY_KYMA});
            apply(target, &crd, klm::STATUS_MANAGERS[0]).await?;
            crd_is_served(target, &format!("{name}.operator.kyma-project.io")).await?;
        }
        for crd in self.crds()? {
            apply(target, &crd, klm::APPLIER).await?;
            crd_is_served(target, crd["metadata"]["name"].as_str().unwrap_or_default()).await?;
        }
        for object in self.unrecorded()? {
            apply(target, &object, klm::APPLIER).await?;
        }
        for object in self.recorded_on_target()? {
            put(target, &object).await?;
        }
        Ok(())
    }

    /// Returns everything recorded on the target except namespaces and CRDs; of CRDs only metadata was recorded.
    fn recorded_on_target(&self) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut files: Vec<PathBuf> = std::fs::read_dir(self.directory.join("target"))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        files.sort();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !IGNORED_FILES.contains(&name.as_str()) && !name.starts_with("namespace-") {
                all.extend(self.items(&format!("target/{name}"))?);
            }
        }
        Ok(all)
    }

    /// Returns the modules' CRDs from their manifests with recorded labels and annotations; only metadata of CRDs
    /// was recorded.
    fn crds(&self) -> Result<Vec<Value>> {
        let text = std::fs::read_to_string(self.directory.join("target/crds-metadata.yaml"))?;
        let recorded: Vec<Value> = serde_saphyr::from_str::<Option<_>>(&text)?.unwrap_or_default();
        let mut crds = Vec::new();
        for module in modules::all(&self.inputs)? {
            // The current release serves for all: CRDs of two releases differ little, and the test only needs the
            // module's own.
            for mut crd in objects(&module.current)? {
                let meta = recorded.iter().find(|meta| meta["name"] == crd["metadata"]["name"]);
                let Some(meta) = meta.filter(|_| crd["kind"] == "CustomResourceDefinition") else { continue };
                crd["metadata"]["labels"] = meta["labels"].clone();
                crd["metadata"]["annotations"] = meta["annotations"].clone();
                crds.push(crd);
            }
        }
        ensure!(crds.len() + TARGET_CRDS.len() >= recorded.len(), "a module's CRD is not among the inputs");
        Ok(crds)
    }

    /// Returns objects that KLM lists in `status.synced` and that were not recorded, built from the modules'
    /// manifests as KLM applies them.
    fn unrecorded(&self) -> Result<Vec<Value>> {
        let recorded: BTreeSet<String> = self.recorded_on_target()?.iter().map(named).collect();
        let modules = modules::all(&self.inputs)?;
        let mut missing = Vec::new();
        for manifest in self.manifests()? {
            let module = &manifest["metadata"]["labels"][labels::MODULE_NAME];
            let version = manifest["spec"]["version"].as_str().unwrap_or_default();
            let module = modules.iter().find(|known| *module == known.name.as_str());
            let Some(module) = module else { continue };
            let release = module.previous.iter().find(|release| release.version == version);
            for object in objects(release.unwrap_or(&module.current))? {
                let synced = manifest["status"]["synced"].as_array().into_iter().flatten();
                let is_synced = synced.into_iter().any(|entry| {
                    entry["kind"] == object["kind"] && entry["name"] == object["metadata"]["name"]
                });
                let is_crd = object["kind"] == "CustomResourceDefinition";
                if is_synced && !is_crd && !recorded.contains(&named(&object)) {
                    missing.push(as_klm_applies(object, &manifest));
                }
            }
        }
        Ok(missing)
    }
}

/// Returns the objects of a module's manifest.
fn objects(release: &modules::Release) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(release.directory.join("raw-manifest.yaml"))?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

fn named(object: &Value) -> String {
    format!("{} {}", object["kind"], object["metadata"]["name"])
}

fn as_klm_applies(mut object: Value, manifest: &Value) -> Value {
    let meta = &manifest["metadata"];
    let owner = format!("{HUB_NAMESPACE}/{}", meta["name"].as_str().unwrap_or_default());
    let disclaimer = "DO NOT EDIT - This resource is managed by Kyma.\nAny modifications are discarded and the resource \
                      is reverted to the original state.";
    for (map, name, value) in [
        ("labels", klm::OBJECT_COMPONENT, meta["name"].as_str().unwrap_or_default()),
        ("labels", klm::OBJECT_PART_OF, klm::PART_OF_KYMA),
        ("labels", labels::MANAGED_BY, labels::MANAGED_BY_KYMA),
        ("annotations", annotations::OWNED_BY, &owner),
        ("annotations", annotations::DISCLAIMER, disclaimer),
    ] {
        object["metadata"][map][name] = value.into();
    }
    object
}

/// Operators that note on a Kyma that they do not reconcile it.
const OPERATORS: [&str; 2] = ["kyma-operator", "release-meta-syncer"];

/// Waits until both operators have noted on the Kyma that they do not reconcile it.
pub(crate) async fn until_stopped(hub: &Client, kyma: &str) -> Result<()> {
    let kymas: Api<Kyma> = Api::namespaced(hub.clone(), HUB_NAMESPACE);
    until("our operators say that they stay away", DEADLINE, || async {
        let kyma = kymas.get(kyma).await?;
        let mut notes = OPERATORS.into_iter().map(annotations::stopped);
        Ok(notes.all(|note| kyma.annotations().contains_key(&note)).then_some(()))
    })
    .await
}

/// Returns the patch that removes the labels for skipping and for the hand-over, and the operators' notes.
pub(crate) fn not_handed_over() -> Value {
    let [one, other] = OPERATORS.map(annotations::stopped);
    json!({"metadata": {
        "labels": {labels::SKIP_RECONCILIATION: null, labels::HAND_OVER: null},
        "annotations": {one: null, other: null},
    }})
}

/// Returns the API for the kind and namespace of an object.
async fn api(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("an object names its kind")?;
    let (resource, capabilities) = until_discovered(client, &GroupVersionKind::try_from(types)?).await?;
    Ok(match (capabilities.scope, object.namespace()) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
        _ => Api::all_with(client.clone(), &resource),
    })
}

async fn apply(client: &Client, object: &Value, manager: &str) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let parameters = PatchParams::apply(manager).force();
    let applied =
        api(client, &object).await?.patch(&object.name_any(), &parameters, &Patch::Apply(&object)).await;
    applied.with_context(|| object.name_any())?;
    Ok(())
}

async fn patch(client: &Client, object: &DynamicObject, body: &Value) -> Result<()> {
    let api = api(client, object).await?;
    api.patch_metadata(&object.name_any(), &PatchParams::default(), &Patch::Merge(body)).await?;
    Ok(())
}

/// Creates a recorded object with its status, `managedFields` and deletion. Its uid is a new one.
async fn put(client: &Client, recorded: &Value) -> Result<DynamicObject> {
    let mut bare = recorded.clone();
    let meta = bare["metadata"].as_object_mut().context("an object has metadata")?;
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        meta.remove(field);
    }
    if bare["kind"] == "Service" {
        // The recorded addresses are of another cluster's Service range.
        bare["spec"].as_object_mut().map(|spec| (spec.remove("clusterIP"), spec.remove("clusterIPs")));
    }
    let status =
        bare.as_object_mut().and_then(|bare| bare.remove("status")).filter(|_| bare["kind"] != "Namespace");
    let object: DynamicObject = serde_json::from_value(bare)?;
    let api = api(client, &object).await?;
    let (name, kind) = (object.name_any(), recorded["kind"].as_str().unwrap_or_default());
    let made = api.create(&PostParams::default(), &object).await.with_context(|| format!("{kind} {name}"))?;
    if let Some(status) = status.filter(|status| status.as_object().is_some_and(|status| !status.is_empty()))
    {
        let body = json!({"status": status});
        let patched = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&body)).await;
        patched.with_context(|| format!("status of {kind} {name}"))?;
    }
    let fields = &recorded["metadata"]["managedFields"];
    if !fields.is_null() {
        let body = json!({"metadata": {"managedFields": fields}});
        let patched = api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        let held = patched.metadata.managed_fields.unwrap_or_default().len();
        ensure!(
            Some(held) == fields.as_array().map(Vec::len),
            "{kind} {name} has other owners than recorded"
        );
    }
    if !recorded["metadata"]["deletionTimestamp"].is_null() {
        api.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(made)
}
