//! Steps that bring content and watches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Secret;
use kyma_api::Reason;
use kyma_artifacts::Credentials;
use kyma_object_set::GroupKind;
use kyma_sdk::Failure;

use super::{Pass, values};
use crate::content::Loaded;
use crate::frozen::Frozen;
use crate::injection;
use crate::observe;
use crate::observe::rollback::taken;
use crate::referenced;
use crate::rollback;
use crate::source;

/// Key of a pull secret (`kubernetes.io/dockerconfigjson`).
const PULL_SECRET_KEY: &str = ".dockerconfigjson";

impl Pass<'_> {
    /// Fetches and renders; a failure ends the pass.
    pub(super) async fn load(&mut self) {
        match self.loaded().await {
            Ok(loaded) => {
                self.session.loaded = Some(loaded);
                // The content may bring kinds that are not watched yet.
                self.done.watching = false;
                self.rescope();
            }
            Err(failure) => self.done.load = Some(failure),
        }
    }

    pub(super) async fn loaded(&mut self) -> Result<Loaded, Failure> {
        let inputs = self.inputs.as_ref().map_err(Clone::clone)?;
        let injects = inputs.additions.injectable.is_some();
        let mut loaded = match taken(self).cloned() {
            Some(kept) => self.load_kept(&kept).await?,
            None => self.load_wished().await?,
        };
        self.session.injected.clear();
        if injects && loaded.raw {
            self.inject(&mut loaded).await?;
        }
        Ok(loaded)
    }

    /// What the spec wishes, from its source.
    async fn load_wished(&self) -> Result<Loaded, Failure> {
        let inputs = self.inputs.as_ref().map_err(Clone::clone)?;
        let credentials = self.credentials().await?;
        let recorded = &self.session.recorded.digests;
        let unchanged = recorded.inputs.as_ref() == Some(&inputs.digest);
        let installed = recorded.source.as_deref().filter(|_| unchanged).and_then(|text| text.parse().ok());
        let sources = &self.shared.sources;
        let component = &self.context.resource;
        let frozen = Frozen::of(self.context, &self.dependent.owner);
        let mut loaded =
            sources.load(component, inputs, &self.kinds, installed, &credentials, &frozen).await?;
        if let Some(failed) = self.session.recorded.rollback.as_ref().filter(|failed| failed.retrying) {
            loaded.release = rollback::time(&loaded.release, failed);
        }
        Ok(loaded)
    }

    /// Puts content of the hub's Secrets into objects that want it.
    async fn inject(&mut self, loaded: &mut Loaded) -> Result<(), Failure> {
        let objects = &mut Arc::make_mut(&mut loaded.prepared).objects;
        self.session.injected = injection::wanted(objects);
        // Before they are read, or a change in between would wake nobody.
        self.await_hub_objects();
        for name in &self.session.injected {
            let found = self.hub_secret(name).await?;
            injection::inject(objects, name, found.as_ref())?;
        }
        Ok(())
    }

    async fn hub_secret(&self, name: &str) -> Result<Option<Secret>, Failure> {
        referenced::object(&self.context.hub, &self.dependent.namespace, name).await
    }

    /// A change of what the objects have from the hub wakes the component.
    fn await_hub_objects(&self) {
        let entries = self.context.resource.spec.values_from.as_deref().unwrap_or_default();
        let additions = self.inputs.as_ref().ok().map(|inputs| &inputs.additions);
        values::awaits(self.shared, &self.dependent, entries, additions, &self.session.injected);
    }

    async fn credentials(&self) -> Result<Credentials, Failure> {
        let Some(reference) = &self.context.resource.spec.source.pull_secret_ref else {
            return Ok(Credentials::anonymous());
        };
        let missing = |what: &str| {
            Failure::new(Reason::SourceUnauthorized, format!("pull secret {}: {what}", reference.name))
        };
        if !kyma_sdk::is_object_name(&reference.name) {
            return Err(missing("no Secret can have this name"));
        }
        let secret = self.hub_secret(&reference.name).await?.ok_or_else(|| missing("does not exist"))?;
        let data = secret.data.unwrap_or_default();
        let config = data.get(PULL_SECRET_KEY).ok_or_else(|| missing("has no key .dockerconfigjson"))?;
        Credentials::from_docker_config(&config.0).map_err(|error| source::failure(&error))
    }

    /// Opens the watches of all kinds concerned; they speak for themselves when they have something to say.
    pub(super) fn watch(&mut self) -> Result<(), Failure> {
        let kinds = self.kinds_concerned();
        let kinds_may_come = observe::kinds_may_come(self);
        let manager = self.context.resource.spec.manager.as_ref();
        let manager = manager.map(|manager| GroupKind::new(&manager.group, &manager.kind));
        self.shared
            .sights
            .want(
                &self.context.target,
                &self.dependent,
                &kinds,
                manager.as_ref(),
                &self.kinds,
                kinds_may_come,
            )
            .map_err(|limit| Failure::new(Reason::TargetThrottled, limit.to_string()))?;
        self.done.watching = true;
        Ok(())
    }

    /// Asks what the target serves; the next step watches that.
    pub(super) async fn look_again(&mut self) {
        match self.look_again_at_kinds().await {
            Ok(()) => {
                self.session.looking_since = Some(Instant::now());
                self.done.watching = false;
            }
            Err(failure) => self.done.load = Some(failure),
        }
    }

    fn kinds_concerned(&self) -> BTreeSet<GroupKind> {
        let recorded = self.session.recorded.inventory.iter().map(|(identity, _)| identity.group_kind());
        let wanted = self.session.loaded.iter().flat_map(|loaded| loaded.prepared.objects.iter());
        let made = self.session.recorded.resource.iter().map(|made| {
            let group = made.api_version.rsplit_once('/').map_or("", |(group, _)| group);
            GroupKind::new(group, &made.kind)
        });
        recorded.chain(wanted.map(|object| object.gvk().group_kind())).chain(made).collect()
    }
}
