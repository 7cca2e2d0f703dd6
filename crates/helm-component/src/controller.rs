//! Wiring of the component to the driver, and the program around it.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kyma_api::HelmComponent;
use kyma_controller::rbac::Table;
use kyma_controller::{Failure, Operator, Program, Rule, RunError, Runtime};
use kyma_helm::render::Renderer;
use kyma_sdk::{Component, ComponentProgram, Context, Progress, Removal, Waker, drive};
use kyma_targets::ServiceAccount;
use parking_lot::Mutex;

use crate::account::Accounts;
use crate::actions::history::shared_lists::ReleaseRecords;
use crate::actions::hooks::watches::HookWatches;
use crate::actions::test::renders::OnlyTests;
use crate::args::{ContentArgs, Flags};
use crate::component_key::ComponentKey;
use crate::content::{ParsedTexts, Sources};
use crate::dry_run_result::DryRunResult;
use crate::hub_secrets::HubSecrets;
use crate::memory::Memory;
use crate::namespaces::Namespaces;
use crate::owner_waits::OwnerWaits;
use crate::ownership_requests::OwnershipRequests;
use crate::ownership_transfers::OwnershipTransfers;
use crate::pass::{Pass, Shared};
use crate::plan::Operation;
use crate::rbac;
use crate::reconcile::{component_key, protection};
use crate::release_names::AlteredNames;
use crate::report::ReconcileResult;
use crate::searches::Searches;
use crate::source;
use crate::target_cache::TargetCache;

type Wakers = Arc<Mutex<HashMap<ComponentKey, Waker<HelmComponent>>>>;

/// The reconciler of HelmComponents.
pub struct HelmComponents {
    shared: Shared,
    accounts: Accounts,
    wakers: Wakers,
}

impl HelmComponents {
    /// Prepares sources and watches; touches neither registries nor targets.
    pub fn new(flags: &Flags, runtime: &Runtime) -> Result<Self, RunError> {
        let Flags { content, accounts, hub } = flags;
        let wakers = Wakers::default();
        let waker = || {
            let wakers = Arc::clone(&wakers);
            move |component_key: &ComponentKey| {
                wake(&wakers, component_key);
            }
        };
        let target_cache = TargetCache::new(Self::NAME, &runtime.process, waker());
        let namespaces = Namespaces::new(Self::NAME, &runtime.process, waker());
        let hook_watches = HookWatches::new(Self::NAME, &runtime.process, waker());
        let transfer_wakers = Arc::clone(&wakers);
        let hub_secrets =
            Arc::new(HubSecrets::new(hub, &content.oci_registry_cred_secret, runtime.access.clone()));
        let (cache, secrets, waking) = (target_cache.clone(), Arc::clone(&hub_secrets), Arc::clone(&wakers));
        let (watched_namespaces, watched_hooks) = (namespaces.clone(), hook_watches.clone());
        let release_records = Arc::<ReleaseRecords>::default();
        let records = Arc::clone(&release_records);
        runtime.access.on_change(move |change| {
            if let Some(secret) = change.secret() {
                cache.access_changed(secret);
                watched_namespaces.access_changed(secret);
                watched_hooks.access_changed(secret);
                records.access_changed();
                for component_key in secrets.subscribers_of(secret) {
                    wake(&waking, &component_key);
                }
            }
        });
        let shared = Shared {
            sources: sources(content)?,
            target_cache,
            namespaces,
            altered_names: AlteredNames::default(),
            release_records,
            hook_watches,
            hub_secrets,
            hub_config_maps: Arc::default(),
            ownership_requests: OwnershipRequests::default(),
            owner_waits: OwnerWaits::default(),
            searches: Searches::default(),
            ownership_transfers: OwnershipTransfers::new(move |new_owner| wake(&transfer_wakers, new_owner)),
            memory: Memory::default(),
            protection: protection(&runtime.settings.target_namespace),
            flap_limit: content.flap_limit(),
            unhealthy_after: content.unhealthy_after(),
        };
        Ok(Self { shared, accounts: Accounts::new(accounts, &runtime.settings.target_namespace), wakers })
    }

    /// Requeues components whose `valuesFrom` names a ConfigMap that changed; never ends. If this future does not
    /// run, components keep the content that they read last.
    pub fn follow_config_maps(&self, runtime: &Runtime) -> impl Future<Output = ()> + Send + use<> {
        let (hub, namespace) = (runtime.hub.clone(), runtime.settings.hub_namespace.clone());
        let config_maps = Arc::clone(&self.shared.hub_config_maps);
        let wakers = Arc::clone(&self.wakers);
        async move {
            config_maps
                .follow(hub, &namespace, |component_key| {
                    wake(&wakers, component_key);
                })
                .await;
        }
    }

    async fn pass(
        &self,
        context: &Context<HelmComponent>,
        operation: Operation,
    ) -> Result<ReconcileResult, Failure> {
        self.wakes(context);
        Box::pin(Pass::begin(&self.shared, context, operation).await?.run()).await
    }

    /// Returns the changes that a pass over a component would make on its target now. Writes nothing: `runtime` only
    /// reads ([`Runtime::reading`]), and applies are dry runs.
    ///
    /// # Errors
    /// If the content cannot be loaded, or the state of the target cannot be read.
    pub async fn dry_run(
        &self,
        runtime: &Runtime,
        component: HelmComponent,
    ) -> Result<DryRunResult, Failure> {
        let context = Context::dry_run(runtime, self, Arc::new(component)).await?;
        self.wakes(&context);
        Box::pin(Pass::begin(&self.shared, &context, Operation::Install).await?.dry_run()).await
    }

    fn wakes(&self, context: &Context<HelmComponent>) {
        let waker = context.waker();
        self.wakers.lock().insert(component_key(context), waker);
    }
}

fn sources(content: &ContentArgs) -> Result<Sources, RunError> {
    let renderer = content.renderer()?.map(|renderer| Arc::new(renderer) as Arc<dyn Renderer>);
    if renderer.is_none() {
        tracing::warn!("no `helm` program was found: components with charts fail until --helm names one");
    }
    Ok(Sources {
        artifacts: content.artifacts()?,
        opened: source::opened_charts(),
        renderer,
        only_tests: OnlyTests::default(),
        parsed: ParsedTexts::default(),
        default_base: content.oci_registry.clone(),
        trust_root: content.trust_root()?,
    })
}

/// Requeues a component. Reports whether it exists.
fn wake(wakers: &Wakers, component_key: &ComponentKey) -> bool {
    let wakers = wakers.lock();
    let Some(waker) = wakers.get(component_key) else { return false };
    waker.wake();
    true
}

impl Component for HelmComponents {
    type Resource = HelmComponent;

    const NAME: &'static str = "helm-component";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const TARGET_RULES: &'static [Rule] = rbac::TARGET_RULES;
    const HUB_RULES: &'static [Rule] = rbac::HUB_RULES;
    const HANDLES_DEFAULT_RESOURCE: bool = true;
    const JUDGES_MANAGER: bool = true;

    async fn install(&self, context: &Context<HelmComponent>) -> Result<Progress, Failure> {
        Ok(Box::pin(self.pass(context, Operation::Install)).await?.progress())
    }

    async fn remove(&self, context: &Context<HelmComponent>) -> Result<Removal, Failure> {
        Box::pin(self.pass(context, Operation::Remove)).await?.removal()
    }

    fn account(&self, component: &HelmComponent) -> Result<Option<ServiceAccount>, Failure> {
        self.accounts.of(&component.spec)
    }

    fn forget(&self, namespace: &str, name: &str) {
        // Needed even if no pass ever stored a state.
        let component_key = ComponentKey::of(namespace, name);
        // First, so that nothing is transferred to a component that can no longer be requeued.
        self.wakers.lock().remove(&component_key);
        self.shared.memory.forget(&component_key);
        self.shared.target_cache.forget(&component_key);
        self.shared.namespaces.forget(&component_key);
        self.shared.hook_watches.forget(&component_key);
        self.shared.hub_secrets.forget(&component_key);
        self.shared.hub_config_maps.forget(&component_key);
        self.shared.altered_names.forget(&component_key);
        self.shared.ownership_requests.forget(&component_key);
        self.shared.ownership_transfers.forget(&component_key);
        self.shared.owner_waits.forget(&component_key);
        for waiting in self.shared.owner_waits.of(&component_key) {
            wake(&self.wakers, &waiting);
        }
    }
}

/// The program `helm-component`.
#[derive(Debug, Clone, Copy, Default)]
pub struct HelmComponentProgram;

impl Program for HelmComponentProgram {
    type Flags = Flags;

    const OPERATOR: Operator = Operator { name: HelmComponents::NAME, version: HelmComponents::VERSION };
    const ABOUT: &'static str =
        "Installs charts and manifests on targets, as HelmComponents on the hub describe.";

    fn crds() -> Vec<CustomResourceDefinition> {
        vec![kyma_api::crds::helm_component(), kyma_api::crds::pause()]
    }

    fn rbac() -> Table {
        ComponentProgram::<HelmComponents>::rbac()
    }

    async fn run(self, flags: Flags, runtime: Runtime) -> Result<(), RunError> {
        let components = HelmComponents::new(&flags, &runtime)?;
        // Until the first list, no Secret would be injectable for any module.
        let listed = runtime.access.listed();
        runtime.process.shutdown.run_until_cancelled(listed).await;
        let following = components.follow_config_maps(&runtime);
        tokio::select! {
            () = following => {}
            () = drive(components, runtime) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod deleted_components;
