//! Tests that no map and no index keeps entries of deleted components.

use std::collections::{BTreeMap, BTreeSet};

use clap::Parser;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ApiResource;
use kyma_controller::WatchSpec;
use kyma_controller::testing::unconnected_runtime;
use kyma_object_set::{Entry, Identity, Kinds};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::actions::hooks::watches::HookRunSpec;
use crate::memory::ComponentState;
use crate::ownership_requests::TargetScope;
use crate::release_names;
use crate::target_cache::Judging;

/// Number of components that exist at the same time. All use the same target.
const BATCH_SIZE: usize = 50;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

/// The reconciler of components without a hub.
struct Operator {
    runtime: Runtime,
    components: HelmComponents,
    _cache: TempDir,
}

impl Operator {
    fn new() -> Self {
        let runtime = unconnected_runtime(HelmComponentProgram::OPERATOR).unwrap();
        let cache = tempfile::tempdir().unwrap();
        let directory = cache.path().display().to_string();
        let Line { flags } =
            Line::try_parse_from(["helm-component", "--artifact-cache-dir", directory.as_str()]).unwrap();
        Self { components: HelmComponents::new(&flags, &runtime).unwrap(), runtime, _cache: cache }
    }

    /// Runs a step, which fails because the target serves no API. Records what a complete one would record.
    async fn install(&self, component: &HelmComponent) {
        let context = Context::unconnected(&self.runtime, HelmComponents::NAME, component.clone()).unwrap();
        drop(self.components.install(&context).await);
        self.record_step(&context).await;
    }

    /// Records what a step records about a component and its target.
    async fn record_step(&self, context: &Context<HelmComponent>) {
        let (shared, key) = (&self.components.shared, component_key(context));
        let (target, scope) = (&context.target, TargetScope::of(&context.target));
        let map = Identity::new("", "ConfigMap", Some("here"), "lantern");
        self.components.wakes(context);
        shared.target_cache.cluster(target, &key);
        let (judging, kinds) = (Judging::default(), Kinds::default());
        shared.target_cache.subscribe(target, &key, &BTreeSet::new(), &judging, &kinds, false).unwrap();
        shared.namespaces.subscribe(target, &key, ["here".to_owned()].into());
        let run = HookRunSpec {
            mark: "install".to_owned(),
            watch_specs: vec![WatchSpec::in_kind(&ApiResource::erase::<ConfigMap>(&()))],
            hooks: [map.clone()].into(),
        };
        shared.hook_watches.subscribe(target, &key, &run);
        shared.hub_secrets.subscribe(&key, ["registry".to_owned()]);
        shared.hub_config_maps.subscribe(&key, ["values".to_owned()]);
        release_names::check(&shared.altered_names, context, &key, Operation::Remove).await.unwrap();
        shared.ownership_requests.add(scope.clone(), &key, [map.clone()].into());
        shared.ownership_transfers.record(&scope, &key, BTreeMap::from([(map, Entry::default())]));
        shared.owner_waits.set(&key, ["owner".to_owned()].into());
        shared.memory.keep(key, &context.resource, ComponentState::default());
    }

    fn forget(&self, component: &HelmComponent) {
        let metadata = &component.metadata;
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        self.components.forget(namespace.unwrap_or_default(), name.unwrap_or_default());
    }

    /// Returns the maps and registries that have entries of components.
    fn filled_registries(&self) -> Vec<&'static str> {
        let shared = &self.components.shared;
        let is_empty = [
            ("wakers", self.components.wakers.lock().is_empty()),
            ("memory", shared.memory.is_empty()),
            ("target cache", shared.target_cache.is_empty()),
            ("namespaces", shared.namespaces.is_empty()),
            ("hook watches", shared.hook_watches.is_empty()),
            ("Secrets", shared.hub_secrets.is_empty()),
            ("ConfigMaps", shared.hub_config_maps.is_empty()),
            ("release names", shared.altered_names.is_empty()),
            ("ownership requests", shared.ownership_requests.is_empty()),
            ("ownership transfers", shared.ownership_transfers.is_empty()),
            ("owner waits", shared.owner_waits.is_empty()),
        ];
        is_empty.into_iter().filter(|(_, is_empty)| !is_empty).map(|(name, _)| name).collect()
    }
}

/// Returns a component with a name that its release cannot have.
fn component(number: usize) -> HelmComponent {
    let component = json!({
        "apiVersion": "component.kyma-project.io/v1alpha1", "kind": "HelmComponent",
        "metadata": {"name": format!("lantern.{number}"), "namespace": "kcp-system", "uid": format!("u-{number}")},
        "spec": {"source": {}},
    });
    serde_json::from_value(component).unwrap()
}

#[tokio::test]
async fn deleted_components_leave_no_entry_in_any_registry() {
    let operator = Operator::new();
    for first in (0..1_000).step_by(BATCH_SIZE) {
        let components: Vec<HelmComponent> = (first..first + BATCH_SIZE).map(component).collect();
        for component in &components {
            operator.install(component).await;
        }
        assert_eq!(operator.filled_registries().len(), 11, "{:?}", operator.filled_registries());
        for component in &components {
            operator.forget(component);
        }
        assert_eq!(operator.filled_registries(), [""; 0]);
    }
}
