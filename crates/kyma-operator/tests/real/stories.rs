//! Shared by the random sequences on real hubs: the model's state as objects, and a check that the operator has
//! caught up.

#[path = "../../src/decision/resolve/model.rs"]
pub(crate) mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kyma_api::{DeletionPolicy, HelmComponent, State, labels};
use model::{ChosenModules, World};
use serde_json::{Value, json};
use testbed::until;

use crate::landscape::{Landscape, SOON, dynamic};

/// Label by which a Pause finds its Kyma.
const STORY: &str = "example.com/story";
/// The Kyma and module that show how far each watch of the operator has come.
pub(crate) const SENTINEL: &str = "sentinel";

/// Objects by kind and name.
pub(crate) type Objects = BTreeMap<(&'static str, String), Value>;

/// Returns the number of sequences in this variable, if set, and the seed.
pub(crate) fn asked(count: &str) -> (Option<usize>, u64) {
    let asked = |name: &str| std::env::var(name).ok().and_then(|word| word.parse::<u64>().ok());
    let count = asked(count).and_then(|count| usize::try_from(count).ok());
    (count, asked("SEQUENCES_SEED").unwrap_or(1))
}

/// Names of the objects of one sequence.
pub(crate) struct Names {
    /// Names of modules have letters only.
    suffix: String,
}

impl Names {
    pub(crate) fn new(number: usize) -> Self {
        let letter = |digit: usize| char::from(b'a' + u8::try_from(digit % 26).unwrap_or_default());
        let letters = [number / 676, number / 26, number].map(letter);
        Self { suffix: format!("x{}", letters.iter().collect::<String>()) }
    }

    pub(crate) fn kyma(&self) -> String {
        format!("kyma-{}", self.suffix)
    }

    pub(crate) fn module(&self, module: &str) -> String {
        format!("{module}-{}", self.suffix)
    }

    /// The objects of the hub that are the model's world; `chosen` stands in the Kyma.
    pub(crate) fn objects(&self, world: &World, chosen: &ChosenModules) -> Objects {
        let mut objects = self.offers(world);
        objects.extend(self.decisions(world));
        let mut labels = beta(world.tester);
        labels[STORY] = json!(self.suffix);
        let modules = chosen.written(|module| self.module(module));
        let spec = json!({ "channel": chosen.channel, "modules": modules });
        objects.extend([object("Kyma", "v1beta2", self.kyma(), &labels, &spec)]);
        objects
    }

    fn offers(&self, world: &World) -> Objects {
        let mut objects = Objects::new();
        for (module, offer) in &world.offers {
            let name = self.module(module);
            for version in &offer.templates {
                let spec = json!({ "moduleName": name, "version": version, "descriptor": {} });
                let labels = beta(offer.beta.contains(version));
                let name = format!("{name}-{version}");
                objects.extend([object("ModuleTemplate", "v1beta2", name, &labels, &spec)]);
            }
            if offer.is_there() {
                let channel = |(channel, version)| json!({ "channel": channel, "version": version });
                let channels: Vec<Value> = offer.channels.iter().map(channel).collect();
                let spec =
                    json!({ "moduleName": name, "ocmComponentName": "example.com/m", "channels": channels });
                objects.extend([object("ModuleReleaseMeta", "v1beta2", name, &json!({}), &spec)]);
            }
        }
        objects
    }

    /// Returns the objects of administrators.
    fn decisions(&self, world: &World) -> Objects {
        let config = |(module, channel): (&&str, &&str)| {
            let name = self.module(module);
            let spec = json!({ "module": name, "overrides": { "module": { "channel": channel } } });
            object("ModuleConfig", "v1alpha1", name, &json!({}), &spec)
        };
        let selector = json!({ "matchLabels": { STORY: self.suffix } });
        let spec = json!({ "scope": "Upgrades", "selector": selector });
        let pause = object("Pause", "v1alpha1", self.kyma(), &json!({}), &spec);
        world.governed.iter().map(config).chain(world.paused.then_some(pause)).collect()
    }

    /// Returns the expected components.
    pub(crate) fn expected(&self, world: &World) -> BTreeSet<String> {
        let line = |(module, held): (&&str, &model::InstalledModule)| {
            written(&self.module(module), held.desired_version, held.channel, held.leaving)
        };
        world.installed.iter().map(line).collect()
    }

    /// Returns the components of this sequence.
    pub(crate) fn own<'a>(
        &self,
        components: &'a [HelmComponent],
    ) -> impl Iterator<Item = &'a HelmComponent> + use<'a> {
        let end = format!("-{}", self.suffix);
        components.iter().filter(move |component| module_of(component).ends_with(&end))
    }

    /// Returns the difference between hub and model.
    pub(crate) fn differs(&self, world: &World, components: &[HelmComponent]) -> Option<String> {
        let found: BTreeSet<String> = self.own(components).map(line_of).collect();
        let expected = self.expected(world);
        (found != expected).then(|| format!("the model has {expected:?}, the hub {found:?}"))
    }
}

fn beta(is: bool) -> Value {
    if is { json!({ labels::BETA: "true" }) } else { json!({}) }
}

fn object(
    kind: &'static str,
    version: &str,
    name: String,
    labels: &Value,
    spec: &Value,
) -> ((&'static str, String), Value) {
    let object = json!({ "apiVersion": format!("operator.kyma-project.io/{version}"), "kind": kind,
        "metadata": { "name": name, "labels": labels }, "spec": spec });
    ((kind, name), object)
}

/// The module of a component.
pub(crate) fn module_of(component: &HelmComponent) -> String {
    component.spec.module.as_ref().map(|module| module.name.clone()).unwrap_or_default()
}

fn written(module: &str, version: &str, channel: Option<&str>, is_leaving: bool) -> String {
    format!("{module} {version} {}{}", channel.unwrap_or("-"), if is_leaving { " leaving" } else { "" })
}

fn line_of(component: &HelmComponent) -> String {
    let module = component.spec.module.clone().unwrap_or_default();
    let is_leaving = component.metadata.deletion_timestamp.is_some();
    written(&module.name, &module.version, module.channel.as_deref(), is_leaving)
}

impl Landscape {
    /// Applies the difference between two sets of objects to the hub.
    pub(crate) async fn change(&self, before: &Objects, now: &Objects) -> Result<()> {
        for (id, object) in now {
            if before.get(id) != Some(object) {
                self.apply(&object.to_string()).await.with_context(|| format!("{id:?}"))?;
            }
        }
        for (id, object) in before.iter().filter(|(id, _)| !now.contains_key(*id)) {
            let api = dynamic(self.hub.client()?, object, &self.namespace)?;
            api.delete(&id.1, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// Waits until the restored hub serves all kinds.
    pub(crate) async fn is_served(&self) -> Result<()> {
        for crd in kyma_api::crds::all() {
            let (group, names) = (crd.spec.group, crd.spec.names);
            let version = crd.spec.versions.iter().find(|version| version.served).context("a version")?;
            let object = json!({ "apiVersion": format!("{group}/{}", version.name), "kind": names.kind });
            let api = dynamic(self.hub.client()?, &object, &self.namespace)?;
            until(&format!("{} are served", names.plural), SOON, || async {
                Ok(api.list(&ListParams::default()).await.is_ok().then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    pub(crate) async fn all_components(&self) -> Result<Vec<HelmComponent>> {
        Ok(self.components()?.list(&ListParams::default()).await?.items)
    }

    /// Waits until each watch of the operator has delivered all earlier writes: the last write in it had its effect.
    pub(crate) async fn has_caught_up(&self) -> Result<()> {
        static STEP: AtomicUsize = AtomicUsize::new(0);
        let version = format!("1.0.{}", STEP.fetch_add(1, Ordering::Relaxed));
        self.module(SENTINEL, &[("regular", &version)]).await?;
        let is_ordered = |component: &HelmComponent| {
            component.spec.module.as_ref().is_some_and(|module| module.version == version)
        };
        self.until_component("the sentinel's version", SENTINEL, is_ordered).await?;
        self.report_ready(SENTINEL).await?;
        let is_told = |kyma: &kyma_api::Kyma| {
            let lines = kyma.status.iter().flat_map(|status| status.modules.iter().flatten());
            lines
                .into_iter()
                .any(|line| line.version.as_ref() == Some(&version) && line.state == State::Ready)
        };
        self.until_kyma("the sentinel is told of", SENTINEL, is_told).await?;
        for kind in ["Pause", "ModuleConfig"] {
            let object = json!({ "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": kind });
            let api = dynamic(self.hub.client()?, &object, &self.namespace)?;
            until(&format!("every {kind} is heeded"), SOON, || async {
                let all = api.list(&ListParams::default()).await?.items;
                let is_heeded = |object: &kube::api::DynamicObject| {
                    let generation = &object.data["status"]["conditions"][0]["observedGeneration"];
                    generation.as_i64() == object.metadata.generation
                };
                Ok(all.iter().all(is_heeded).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Removes finalizers as reconcilers do; a component to be removed waits for objects of the module's users.
    pub(crate) async fn let_go(&self, components: &[HelmComponent], used: &BTreeSet<String>) -> Result<()> {
        let is_free = |component: &&HelmComponent| {
            let module = component.spec.module.clone().unwrap_or_default().name;
            component.metadata.deletion_timestamp.is_some()
                && (component.spec.deletion_policy == DeletionPolicy::Orphan || !used.contains(&module))
        };
        for component in components.iter().filter(is_free) {
            self.let_component_go(&component.name_any()).await.ok();
        }
        Ok(())
    }

    /// Reports the requested version as running, as a component's reconciler does.
    pub(crate) async fn report(&self, names: &Names, module: &str) -> Result<()> {
        let name = names.module(module);
        let components = self.all_components().await?;
        let of_module = |component: &&HelmComponent| {
            component.spec.module.as_ref().is_some_and(|module| module.name == name)
        };
        let Some(component) = components.iter().find(of_module) else { return Ok(()) };
        let version = component.spec.module.as_ref().map(|module| module.version.clone());
        let status = json!({ "status": { "state": "Ready", "version": version,
            "observedGeneration": component.metadata.generation } });
        let params = PatchParams::default();
        self.components()?.patch_status(&component.name_any(), &params, &Patch::Merge(&status)).await?;
        Ok(())
    }
}
