//! Steps that load content and open watches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Secret;
use kyma_api::{Digests, HelmComponent, Reason};
use kyma_artifacts::{Credentials, Trust};
use kyma_controller::Failure;
use kyma_object_set::{GroupKind, Identity};
use kyma_sdk::Context;

use super::values;
use crate::actions::{rollback, test};
use crate::blocking::run_blocking;
use crate::content::{InstalledRelease, LoadFailure, LoadedContent};
use crate::injection;
use crate::inventory_status::{check_packed, large_record};
use crate::memory::ComponentState;
use crate::observe;
use crate::pass::{Pass, Shared};
use crate::reader::Reader;
use crate::referenced;
use crate::render_store::RenderStore;
use crate::report::words::list;
use crate::source;
use crate::target_cache::Judging;
use crate::verify::{self, Secrets};
use crate::watch_wait::WatchWait;

/// Key of a pull secret (`kubernetes.io/dockerconfigjson`).
const PULL_SECRET_KEY: &str = ".dockerconfigjson";

impl Pass<'_> {
    /// Loads the content.
    pub(super) async fn load(&mut self) -> Result<(), Failure> {
        let loaded = match self.loaded().await {
            Ok(loaded) => self.recordable(loaded).await,
            failed => failed,
        };
        if loaded.is_err() && self.state.render_awaits_kinds {
            self.watch_arrivals();
        }
        let loaded = loaded?;
        self.report_warnings(&loaded);
        self.state.loaded = Some(loaded);
        // The content may bring kinds that are not watched yet.
        self.done.watching = false;
        self.rescope();
        Ok(())
    }

    /// Watches for new kinds after a failed render, since one of them may resolve it.
    fn watch_arrivals(&mut self) {
        if let Err(failure) = self.watch() {
            // The failure of the render is reported instead.
            tracing::debug!(component = %self.key.name, %failure, "new kinds are not watched");
        }
    }

    /// Returns the content, unless the status could not hold the record of its objects.
    async fn recordable(&self, loaded: LoadedContent) -> Result<LoadedContent, Failure> {
        if let Some(groups) = large_record(&self.state.recorded.inventory, &loaded.prepared.objects) {
            run_blocking(move || check_packed(&groups)).await??;
        }
        Ok(loaded)
    }

    /// Reports warnings about new content, once.
    fn report_warnings(&mut self, loaded: &LoadedContent) {
        let warnings = &loaded.prepared.warnings;
        let ComponentState { recorded, warned, .. } = &mut self.state;
        let is_told = recorded.is(loaded) || warned.as_ref() == Some(&loaded.rendered);
        if warnings.is_empty() || is_told || self.context.is_dry_run() {
            return;
        }
        let (events, component) = (&self.context.events, &*self.context.resource);
        events.warning(component, Reason::ContentWarning, "Render", &list(warnings));
        *warned = Some(loaded.rendered.clone());
    }

    pub(crate) async fn loaded(&mut self) -> Result<LoadedContent, Failure> {
        let inputs = self.inputs.as_ref().map_err(Clone::clone)?;
        let injects = inputs.additions.injectable.is_some();
        self.state.render_awaits_kinds = false;
        let mut loaded = match rollback::active_target(self).cloned() {
            Some(target) => rollback::load_target(self, &target).await?,
            None => match self.load_desired().await {
                Ok(loaded) => loaded,
                Err(LoadFailure { failure, awaits_kinds }) => {
                    self.state.render_awaits_kinds = awaits_kinds;
                    return Err(failure);
                }
            },
        };
        self.state.injected.clear();
        if injects && loaded.raw {
            self.inject(&mut loaded).await?;
        }
        self.state.has_stored_render |= loaded.render.is_some();
        // At most two are needed: the installed content and its successor.
        if let Some(render) = &loaded.render
            && !self.state.renders_made.contains(render)
        {
            let recorded = self.state.recorded.digests.stored_render.clone();
            self.state.renders_made.retain(|held| Some(held) == recorded.as_ref());
            self.state.renders_made.insert(render.clone());
        }
        Ok(loaded)
    }

    /// Returns the desired content; loads it if necessary.
    pub(crate) async fn desired_content(&mut self) -> Result<LoadedContent, Failure> {
        let desired = rollback::desired_inputs(self);
        let held = self.state.loaded.as_ref().filter(|loaded| Some(&*loaded.inputs) == desired);
        if let Some(loaded) = held {
            return Ok(loaded.clone());
        }
        self.state.loaded = Some(self.loaded().await?);
        self.rescope();
        self.state.loaded.clone().ok_or_else(|| Failure::new(Reason::Internal, "the loaded content was lost"))
    }

    /// Loads the content that the spec requests from its source.
    async fn load_desired(&self) -> Result<LoadedContent, LoadFailure> {
        let inputs = self.inputs.as_ref().map_err(Clone::clone)?;
        let Digests { source, values, .. } = self.state.recorded.digests.clone();
        let revision = self.state.recorded.revision.clone();
        let inputs = &inputs.after(InstalledRelease { revision, source, values });
        let access = (&credentials(self.shared, self.context).await?, self.trust().await?);
        let recorded = &self.state.recorded.digests;
        let unchanged = recorded.inputs.as_ref() == Some(&inputs.digest);
        let installed = recorded.source.as_deref().filter(|_| unchanged).and_then(|text| text.parse().ok());
        let sources = &self.shared.sources;
        let component = &self.context.resource;
        // The watch may lag behind this process's writes, and a dry run has no watch.
        let asks = self.state.has_stored_render || self.context.is_dry_run();
        let may_be = |name: &str| asks || self.shared.hub_secrets.revision(name).is_some();
        let mut criteria = self.state.recorded.revision_criteria();
        if component.spec.source.verify.is_some() {
            criteria.renders = criteria.renders.with_signatures(&self.state.renders_made);
        }
        let former = |name: &str| self.may_have_former(name);
        let render_store = RenderStore::of(self.context, &self.key.owner, criteria, may_be, former)
            .with_tests(test::is_requested(self));
        let mut loaded =
            sources.load(component, inputs, &self.kinds, installed, access, &render_store).await?;
        loaded.release = self.state.recorded.rollback.attempted_release(loaded.release);
        Ok(loaded)
    }

    /// Copies content of the hub's Secrets into objects that request it.
    async fn inject(&mut self, loaded: &mut LoadedContent) -> Result<(), Failure> {
        let objects = &mut Arc::make_mut(&mut loaded.prepared).objects;
        self.state.injected = injection::requested_secrets(objects);
        // Registered before the read, so that a change during the read requeues the component.
        self.await_hub_objects();
        for name in &self.state.injected {
            let found = self.hub_secret(name).await?;
            injection::inject(objects, name, found.as_ref())?;
        }
        Ok(())
    }

    async fn hub_secret(&self, name: &str) -> Result<Option<Secret>, Failure> {
        referenced::object(&self.context.hub, &self.key.namespace, name).await
    }

    /// Requeues the component when objects of the hub change that its content uses.
    fn await_hub_objects(&self) {
        let spec = &self.context.resource.spec;
        let additions = self.inputs.as_ref().ok().map(|inputs| &inputs.additions);
        values::subscribe(self.shared, &self.key, spec, additions, &self.state.injected);
    }

    /// Signers that the content requires.
    async fn trust(&self) -> Result<Option<Arc<Trust>>, Failure> {
        let spec = &self.context.resource.spec;
        let mut secrets = Secrets::new();
        let reader = Reader::of(&self.context.resource);
        for name in verify::secrets(spec) {
            let found = self.hub_secret(name).await?.filter(|found| reader.may_read(&found.metadata));
            let data = found.map(|secret| secret.data.unwrap_or_default());
            let data = data.map(|data| data.into_iter().map(|(key, value)| (key, value.0)).collect());
            secrets.insert(name.to_owned(), data);
        }
        verify::trust(spec, &secrets, self.shared.sources.trust_root.as_ref(), &reader)
    }

    /// Subscribes to the watches of all kinds concerned.
    pub(super) fn watch(&mut self) -> Result<(), Failure> {
        let kinds = self.kinds_concerned();
        let kinds_may_come = observe::kinds_may_come(self);
        let manager = self.context.resource.spec.manager.as_ref();
        let manager = manager.map(|manager| GroupKind::new(&manager.group, &manager.kind));
        // A removal continues without valid rules.
        let rules = self.rules.clone().unwrap_or_default();
        let judging = Judging { manager, rules };
        let (target_cache, target) = (&self.shared.target_cache, &self.context.target);
        target_cache
            .subscribe(target, &self.key, &kinds, &judging, &self.kinds, kinds_may_come)
            .map_err(|limit| Failure::new(Reason::TargetThrottled, limit.to_string()))?;
        self.done.watching = true;
        Ok(())
    }

    /// Repeats discovery; the next step watches the kinds that it finds.
    pub(super) async fn rediscover(&mut self) -> Result<(), Failure> {
        self.rediscover_kinds().await?;
        let now = Instant::now();
        let watch_wait = self.state.watch_wait.unwrap_or_else(|| WatchWait::begin(now));
        self.state.watch_wait = Some(watch_wait.after_discovery(now));
        self.done.watching = false;
        Ok(())
    }

    fn kinds_concerned(&self) -> BTreeSet<GroupKind> {
        let recorded = self.state.recorded.inventory.iter().map(|(identity, _)| identity.group_kind());
        let desired = self.state.loaded.iter().flat_map(|loaded| loaded.prepared.objects.iter());
        let made = self.state.recorded.resource.iter().map(|made| observe::gvk_of(made).group_kind());
        // A stream must show the end of objects that others transferred.
        let received = self.received.keys().map(Identity::group_kind);
        recorded.chain(desired.map(|object| object.gvk().group_kind())).chain(made).chain(received).collect()
    }
}

/// Returns the credentials of a component for its source.
///
/// # Errors
/// If its pull secret is missing or unusable, or the hub does not answer.
pub(super) async fn credentials(
    shared: &Shared,
    context: &Context<HelmComponent>,
) -> Result<Credentials, Failure> {
    let component = &context.resource;
    let reader = Reader::of(component);
    let given = component.spec.source.pull_secret_ref.as_ref().map(|reference| reference.name.as_str());
    let by_flag = shared.hub_secrets.registry_secret().filter(|_| reader != Reader::Standalone);
    let Some(name) = given.or(by_flag) else { return Ok(Credentials::anonymous()) };
    let missing = |what: &str| {
        let origin = if given.is_some() { "" } else { " (--oci-registry-cred-secret)" };
        Failure::new(Reason::SourceUnauthorized, format!("pull secret {name}{origin}: {what}"))
    };
    if !kyma_controller::is_object_name(name) {
        return Err(missing("no Secret can have this name"));
    }
    let namespace = component.metadata.namespace.as_deref().unwrap_or_default();
    let secret: Option<Secret> = referenced::object(&context.hub, namespace, name).await?;
    // The hub's administrator chooses the flag's Secret, so only the author's needs a label.
    let secret = secret.filter(|found| given.is_none() || reader.may_pull_with(&found.metadata));
    let absent = || match &reader {
        Reader::Standalone => missing("does not exist"),
        Reader::Module(_) if given.is_none() => {
            missing("does not exist; create it in the component's namespace")
        }
        Reader::Module(_) => {
            missing(&format!("there is none that the component may use; {}", reader.how_to_allow_pulls()))
        }
    };
    let data = secret.ok_or_else(absent)?.data.unwrap_or_default();
    let config = data.get(PULL_SECRET_KEY).ok_or_else(|| missing("has no key .dockerconfigjson"))?;
    Credentials::from_docker_config(&config.0).map_err(|error| source::failure(&error))
}
