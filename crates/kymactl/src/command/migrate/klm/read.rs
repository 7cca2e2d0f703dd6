//! Reads the state of hub and target for a hand-over.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
};
use kyma_api::{HelmComponent, Kyma, ModuleTemplate, OPERATOR_GROUP, klm, labels, names};
use kyma_controller::{Failure, find_metadata, none_if_unserved};
use kyma_object_set::{CallError, Discovery, Gvk, Identity, Kinds};
use kyma_targets::Target;

use super::facts::{Manifest, MigrationState, Module, ReadManifest as _};
use super::lease::KlmState;
use crate::{command::target::connection::Start, error::Error};

/// Maximum number of concurrent reads.
const MAX_PARALLEL_READS: usize = 8;

/// The state of a Kyma, with the connection to its target if there is one.
pub(super) struct KymaSnapshot {
    pub(super) facts: MigrationState,
    pub(super) start: Start,
    pub(super) target: Option<VerifiedTarget>,
}

/// A target that is verified to be the Kyma's.
pub(super) struct VerifiedTarget {
    /// Every write checks that this is still so.
    pub(super) target: Target,
    pub(super) kinds: std::sync::Arc<Kinds>,
}

/// Reads the whole state.
pub(super) async fn read_snapshot(start: Start, target_namespace: &str) -> Result<KymaSnapshot, Error> {
    let start = start.read_again().await?;
    let kyma = &start.kyma;
    let (namespace, name) = (kyma.namespace().unwrap_or_default(), kyma.name_any());
    let mut modules = BTreeMap::new();
    let (mut strays, mirrors) = manifests(&start.hub, &namespace, &name, &mut modules).await?;
    strays.extend(components(&start.hub, kyma, &mut modules).await?);
    own_kinds(&start.hub, &namespace, &mut modules).await?;
    let mut facts = MigrationState {
        status: status(&start.hub, &namespace, &name).await?,
        klm: KlmState::Unknown,
        access: start.secret().await.map_err(|failure| said(&failure)),
        kyma: kyma.clone(),
        modules,
        strays,
        mirrors,
        target_kyma: Identity::new(OPERATOR_GROUP, "Kyma", Some(target_namespace), names::TARGET_KYMA),
        target: BTreeMap::new(),
    };
    let reached = match &facts.access {
        Ok(access) => reach(&start, access).await,
        Err(why) => Err(why.clone()),
    };
    let target = match reached {
        Ok(reached) => {
            facts.target = live(&reached, &facts).await?;
            Some(reached)
        }
        Err(why) => {
            facts.access = Err(why);
            None
        }
    };
    Ok(KymaSnapshot { facts, start, target })
}

fn said(failure: &Failure) -> String {
    format!("{}: {}", failure.reason, failure.message)
}

/// Adds the Kyma's Manifests to `modules`. Returns an obstacle for each one without a module label or with that of
/// another Manifest, and name and uid of copies of components. A hub without the CRD has none.
async fn manifests(
    hub: &Client,
    namespace: &str,
    kyma: &str,
    modules: &mut BTreeMap<String, Module>,
) -> Result<(Vec<String>, Vec<(String, String)>), Error> {
    let kind = klm::manifest_resource();
    let api: Api<DynamicObject> = Api::namespaced_with(hub.clone(), namespace, &kind);
    let labelled = ListParams::default().labels(&names::label_selector(labels::KYMA_NAME, kyma));
    let (mut strays, mut mirrors) = (Vec::new(), Vec::new());
    let listed = none_if_unserved(hub, &kind, api.list(&labelled).await).await?;
    for object in listed.into_iter().flat_map(|listed| listed.items) {
        let name = object.name_any();
        if klm::is_mirror(&object.metadata) {
            mirrors.push((name, object.uid().unwrap_or_default()));
            continue;
        }
        let status = object.data.get("status").cloned().unwrap_or_default();
        let manifest = object.try_parse::<Manifest>();
        let manifest = manifest.map_err(|error| Error::input(&name, error.to_string()))?;
        let Some(module) = manifest.module() else {
            strays.push(format!("Manifest {name} has no label {}", labels::MODULE_NAME));
            continue;
        };
        let held = modules.entry(module.clone()).or_default();
        if held.manifest.is_some() {
            strays.push(format!(
                "module {module} has a second Manifest, {name}: delete the one that is left over"
            ));
        } else {
            (held.manifest, held.manifest_status) = (Some(manifest), status);
        }
    }
    Ok((strays, mirrors))
}

/// Reads the Kyma's components. Returns an obstacle for each object that has a component's name but another owner.
async fn components(
    hub: &Client,
    kyma: &Kyma,
    modules: &mut BTreeMap<String, Module>,
) -> Result<Vec<String>, Error> {
    let (namespace, name) = (kyma.namespace().unwrap_or_default(), kyma.name_any());
    let api: Api<HelmComponent> = Api::namespaced(hub.clone(), &namespace);
    let labelled = ListParams::default().labels(&names::label_selector(labels::KYMA_NAME, &name));
    for component in api.list(&labelled).await?.items {
        let Some(module) = component.spec.module.as_ref().map(|module| module.name.clone()) else { continue };
        if component.name_any() == names::component_name(&name, &module) {
            modules.entry(module).or_default().component = Some(component);
        }
    }
    let mut foreign = Vec::new();
    for module in modules.iter().filter(|(_, held)| held.component.is_none()).map(|(module, _)| module) {
        let component = names::component_name(&name, module);
        if find_metadata(&api, &component).await?.is_some() {
            foreign.push(format!(
                "module {module}: HelmComponent {namespace}/{component} exists and is not the Kyma's: rename or delete it"
            ));
        }
    }
    Ok(foreign)
}

/// Sets the component kind of each module whose ModuleTemplate names another one than the base kind.
async fn own_kinds(
    hub: &Client,
    namespace: &str,
    modules: &mut BTreeMap<String, Module>,
) -> Result<(), Error> {
    let api: Api<ModuleTemplate> = Api::namespaced(hub.clone(), namespace);
    for (name, module) in modules {
        let Some(version) = module.manifest.as_ref().and_then(|manifest| manifest.spec.version.as_ref())
        else {
            continue;
        };
        let template = api.get_opt(&names::template_name(name, version)).await?;
        let component = template.and_then(|template| template.spec.component);
        let base = ApiResource::erase::<HelmComponent>(&());
        let kinds = component.map(|component| (component.api_version, component.kind));
        module.own_kind = kinds.filter(|(_, kind)| *kind != base.kind).map(|(_, kind)| kind);
    }
    Ok(())
}

/// Returns the Kyma's stored status, without a schema.
async fn status(hub: &Client, namespace: &str, name: &str) -> Result<serde_json::Value, Error> {
    let resource = ApiResource::erase::<Kyma>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(hub.clone(), namespace, &resource);
    Ok(api.get(name).await?.data.get("status").cloned().unwrap_or_default())
}

/// Connects to the target, verifies its identity, and discovers its kinds.
async fn reach(start: &Start, access: &kyma_api::SecretKeyRef) -> Result<VerifiedTarget, String> {
    let (target, _) = start.proven(access).await.map_err(|failure| said(&failure))?;
    let kinds = Discovery::new().kinds(&target.client()).await;
    let kinds = kinds.map_err(|error| format!("{}: {error}", error.reason()))?;
    Ok(VerifiedTarget { target, kinds })
}

/// Reads the metadata of all objects that Manifests and components list, and of the Kyma.
async fn live(
    reached: &VerifiedTarget,
    facts: &MigrationState,
) -> Result<BTreeMap<Identity, ObjectMeta>, Error> {
    let modules = &facts.modules;
    let defaults = modules.values().filter_map(|module| module.manifest.as_ref()?.default_cr());
    let defaults = defaults.map(|(identity, version)| {
        (identity, version.rsplit_once('/').map_or(version.clone(), |(_, version)| version.to_owned()))
    });
    let kyma = (facts.target_kyma.clone(), "v1beta2".to_owned());
    let concerned: BTreeMap<Identity, String> =
        modules.values().flat_map(Module::objects).chain(defaults).chain([kyma]).collect();
    let reads = stream::iter(concerned).map(|(identity, version)| one(reached, identity, version));
    let found: Vec<_> = reads.buffer_unordered(MAX_PARALLEL_READS).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

async fn one(
    reached: &VerifiedTarget,
    identity: Identity,
    version: String,
) -> Result<Option<(Identity, ObjectMeta)>, Error> {
    let gvk = Gvk::new(&identity.group, version, &identity.kind);
    let Some(mapping) = reached.kinds.any(&gvk) else {
        if reached.kinds.is_unknown(&identity.group) {
            return Err(unknown(&CallError::group_unknown(&identity)).into());
        }
        return Ok(None);
    };
    let client = reached.target.client();
    let found = find_metadata(&mapping.api(&client, identity.namespace.as_deref()), &identity.name).await;
    // The kind may have been removed since discovery.
    let found = none_if_unserved(&client, &mapping.resource, found).await.map(Option::flatten);
    let found = found.map_err(|error| Failure::target(&format!("read {identity}"), &error))?;
    Ok(found.map(|found| (identity, found.metadata)))
}

fn unknown(error: &CallError) -> Failure {
    Failure::new(error.reason(), error.to_string())
}
