//! Wiring: the component as the driver knows it, and the program around it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kyma_api::HelmComponent;
use kyma_sdk::rbac::Table;
use kyma_sdk::{
    Component, ComponentProgram, Context, Failure, Operator, Program, Progress, Removal, Rule, RunError,
    Runtime, Waker, drive,
};

use crate::args::ContentArgs;
use crate::content::Sources;
use crate::memory::Memory;
use crate::plan::Order;
use crate::rbac;
use crate::reconcile::{Pass, Shared, dependent};
use crate::render::Renderer;
use crate::sight::{Dependent, Sights};

type Wakers = Arc<Mutex<HashMap<Dependent, Waker<HelmComponent>>>>;

/// The reconciler of HelmComponents.
pub struct HelmComponents {
    shared: Shared,
    wakers: Wakers,
}

impl HelmComponents {
    /// Prepares sources and watches; touches neither registries nor targets.
    pub fn new(flags: &ContentArgs, runtime: &Runtime) -> Result<Self, RunError> {
        let renderer = flags.renderer()?.map(|renderer| Arc::new(renderer) as Arc<dyn Renderer>);
        if renderer.is_none() {
            tracing::warn!("no `helm` program was found: components with charts fail until --helm names one");
        }
        let sources =
            Sources { artifacts: flags.artifacts()?, renderer, default_base: flags.oci_registry.clone() };
        let wakers = Wakers::default();
        let waking = Arc::clone(&wakers);
        let sights = Sights::new(Self::NAME, runtime.process.metrics.clone(), move |dependent| {
            let wakers = waking.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(waker) = wakers.get(dependent) {
                waker.wake();
            }
        });
        let ended = sights.clone();
        runtime.access.on_change(move |change| {
            if let Some(secret) = change.secret() {
                ended.access_changed(secret);
            }
        });
        Ok(Self {
            shared: Shared { sources, sights, memory: Memory::default(), flap_limit: flags.flap_limit() },
            wakers,
        })
    }

    async fn pass(
        &self,
        context: &Context<HelmComponent>,
        order: Order,
    ) -> Result<crate::reconcile::Ended, Failure> {
        let waker = context.waker();
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).insert(dependent(context), waker);
        Pass::begin(&self.shared, context, order).await?.run().await
    }
}

impl Component for HelmComponents {
    type Resource = HelmComponent;

    const NAME: &'static str = "helm-component";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const TARGET_RULES: &'static [Rule] = rbac::TARGET_RULES;

    async fn install(&self, context: &Context<HelmComponent>) -> Result<Progress, Failure> {
        Ok(self.pass(context, Order::Install).await?.progress())
    }

    async fn remove(&self, context: &Context<HelmComponent>) -> Result<Removal, Failure> {
        self.pass(context, Order::Remove).await?.removal()
    }

    fn forget(&self, namespace: &str, name: &str) {
        if let Some(dependent) = self.shared.memory.forget(namespace, name) {
            self.shared.sights.forget(&dependent);
            self.wakers.lock().unwrap_or_else(PoisonError::into_inner).remove(&dependent);
        }
    }
}

/// The program `helm-component`.
#[derive(Debug, Clone, Copy, Default)]
pub struct HelmComponentProgram;

impl Program for HelmComponentProgram {
    type Flags = ContentArgs;

    const OPERATOR: Operator = Operator { name: HelmComponents::NAME, version: HelmComponents::VERSION };
    const ABOUT: &'static str = "Puts charts and manifests on targets, as HelmComponents on the hub wish.";

    fn crds() -> Vec<CustomResourceDefinition> {
        vec![kyma_api::crds::helm_component(), kyma_api::crds::pause()]
    }

    fn rbac() -> Table {
        ComponentProgram::<HelmComponents>::rbac()
    }

    async fn run(self, flags: ContentArgs, runtime: Runtime) -> Result<(), RunError> {
        drive(HelmComponents::new(&flags, &runtime)?, runtime).await;
        Ok(())
    }
}
