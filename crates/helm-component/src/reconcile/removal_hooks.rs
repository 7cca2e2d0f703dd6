//! Hooks of a removal are those of the installed release, whatever the spec requests now: they are stored on the hub
//! before that release is applied.

use std::sync::Arc;

use kyma_api::{HookPolicy, Hooks, Reason, RollbackTarget};
use kyma_helm::hooks::{self, Event, Hook};
use kyma_sdk::Failure;

use super::Pass;
use crate::actions::hooks::stored as removal_hooks;
use crate::blocking::{run_blocking, run_blocking_if_large};
use crate::content::LoadedContent;
use crate::objects::PreparedObjects;
use crate::release_store::slot::{Part, PartKind};
use crate::state_secret::StateSecret;

/// Advice for a removal whose hooks cannot be loaded.
const REMEDY: &str = "set spec.hooks to Skip to continue the removal without its hooks";

/// Change of the stored hooks by the apply of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoredHooks {
    /// They are those of the release, or there are none.
    Unchanged,
    /// The hooks of the release are stored beside those of the previous one.
    Replaced,
    /// The release has no hooks of a removal, or they could not be stored.
    Removed,
}

impl Pass<'_> {
    /// Runs the hooks of a removal event, as of the installed release; returns what it waits for.
    pub(super) async fn run_removal_hooks(&mut self, event: Event) -> Result<Option<String>, Failure> {
        let skips = self.context.resource.spec.hooks == HookPolicy::Skip;
        if skips || hooks::is_over(self.state.recorded.hooks.as_ref(), event) {
            return Ok(None);
        }
        // Equal in every process, whatever is rendered again.
        let content = self.state.recorded.hooks.as_ref().map(|record| record.digest.clone());
        let content = content.unwrap_or_default();
        let prepared = match &self.state.removal_hooks {
            Some(removal_hooks) => Arc::clone(removal_hooks),
            None => self.load_removal_hooks(&content).await?,
        };
        self.state.removal_hooks = Some(Arc::clone(&prepared));
        self.hooks(event, &prepared, &content).await
    }

    /// Returns the hooks of the installed release: the stored ones, otherwise those of the rollback target, otherwise
    /// those of the desired release, if either is the same release. Releases that were installed by versions without
    /// this store have no stored hooks.
    async fn load_removal_hooks(&mut self, content: &str) -> Result<Arc<PreparedObjects>, Failure> {
        if let Some(hooks) = self.read_removal_hooks(content).await? {
            return Ok(Arc::new(PreparedObjects { objects: vec![], hooks, warnings: vec![] }));
        }
        let digests = self.state.recorded.digests.clone();
        let target = self.state.recorded.rollback_target.clone();
        let is_of = |source: &str, values: &str| removal_hooks::is_of(&digests, source, values);
        let is_installed = |target: &RollbackTarget| {
            let (source, values) = (target.digests.source.as_deref(), target.digests.values.as_deref());
            source.zip(values).is_some_and(|(source, values)| is_of(source, values))
        };
        if let Some(target) = target.filter(|target| target.message.is_none() && is_installed(target))
            && let Ok(loaded) = self.read_stored_release(&target).await?
        {
            return Ok(loaded.prepared);
        }
        let desired = match self.state.loaded.clone() {
            Some(loaded) => loaded,
            None => self.loaded().await.map_err(|failure| Failure {
                message: format!(
                    "{}; the removal needs the hooks of the chart: correct this, or {REMEDY}",
                    failure.message
                ),
                ..failure
            })?,
        };
        if desired.release == content || is_of(&desired.source, &desired.values) {
            return Ok(desired.prepared);
        }
        let message = format!(
            "the removal needs the hooks of the installed release, which was not stored, and the spec \
             requests another release: request the installed one again, or {REMEDY}"
        );
        Err(Failure::new(Reason::HookFailed, message))
    }

    /// Returns the stored hooks of the installed release.
    async fn read_removal_hooks(&self, content: &str) -> Result<Option<Vec<Hook>>, Failure> {
        let slots = self.release_store().read().await?.into_iter();
        let mut parts: Vec<Part> = slots.filter_map(|mut slot| slot.take(PartKind::Hooks)).collect();
        // Hooks of the release that was begun last come first.
        parts.sort_by_key(|part| part.revision != content);
        let former = self.former_removal_hooks().read().await?;
        parts.extend(former.and_then(removal_hooks::former_part));
        // If signatures are required, a user with write access to Secrets must not inject hooks: hooks that this
        // process did not store itself come from verified content.
        if self.context.resource.spec.source.verify.is_some() {
            let own = self.state.removal_hooks_digest.as_ref();
            parts.retain(|part| own == Some(&part.sha256));
        }
        for part in parts {
            let (release, sent) = (content.to_owned(), self.state.recorded.digests.clone());
            let size = part.packed.len();
            let unpack = move || removal_hooks::unpack(&part.packed, part.sha256.as_bytes(), &release, &sent);
            let hooks = run_blocking_if_large(size, unpack).await?;
            if hooks.is_some() {
                return Ok(hooks);
            }
        }
        Ok(None)
    }

    /// Stores the hooks of this release's removal. `record`: the hooks' record from now on. Hooks of the previous
    /// release stay until [`Self::discard_removal_hooks`], since the record still names that release.
    pub(super) async fn store_removal_hooks(
        &mut self,
        loaded: &LoadedContent,
        record: Option<&Hooks>,
    ) -> Result<StoredHooks, Failure> {
        let had = self.state.recorded.hooks.as_ref().is_some_and(|record| record.has_delete_hooks);
        let has = record.is_some_and(|record| record.has_delete_hooks);
        // A repeated apply finds them stored.
        let is_stored = has && self.state.removal_hooks_release.as_ref() == Some(&loaded.release);
        if (!had && !has) || is_stored || self.cluster.dry_run.is_some() {
            return Ok(StoredHooks::Unchanged);
        }
        self.state.removal_hooks = None;
        let packed = if has { self.pack_removal_hooks(loaded).await } else { None };
        let stored = if packed.is_some() { StoredHooks::Replaced } else { StoredHooks::Removed };
        if let Some(packed) = packed {
            let part = Part::new(&loaded.release, packed);
            self.state.removal_hooks_digest = Some(part.sha256.clone());
            self.store_part(PartKind::Hooks, part, loaded.render.as_deref()).await?;
        }
        self.state.removal_hooks_release = has.then(|| loaded.release.clone());
        Ok(stored)
    }

    /// Discards the hooks of previous releases, once the status records the new one.
    pub(super) async fn discard_removal_hooks(&self, stored: StoredHooks) {
        let begun = self.state.recorded.hooks.as_ref().map(|record| &*record.digest);
        let kept = match stored {
            StoredHooks::Unchanged => return,
            StoredHooks::Replaced => begun,
            StoredHooks::Removed => None,
        };
        let discarded = match self.discard_parts(PartKind::Hooks, kept).await {
            Ok(()) => self.empty_former_removal_hooks().await,
            failed => failed,
        };
        if let Err(error) = discarded {
            // The record names another release, so these hooks do not run.
            tracing::warn!(component = %self.key.name, %error, "hooks of the former release are not discarded");
        }
    }

    async fn empty_former_removal_hooks(&self) -> Result<(), Failure> {
        let secret = self.former_removal_hooks();
        if self.may_have_former(secret.name()) { secret.empty().await } else { Ok(()) }
    }

    async fn pack_removal_hooks(&self, loaded: &LoadedContent) -> Option<Vec<u8>> {
        let loaded = loaded.clone();
        let packed =
            run_blocking(move || removal_hooks::pack(&loaded)).await.map_err(|failure| failure.message);
        let packed = packed.and_then(|packed| packed.map_err(|error| error.to_string()));
        if let Err(error) = &packed {
            // Without the Secret, the hooks are rendered again while the spec requests this release.
            tracing::warn!(component = %self.key.name, %error, "the hooks of the removal are not stored");
        }
        packed.ok()
    }

    /// Returns the Secret in which an earlier version may have stored the hooks.
    fn former_removal_hooks(&self) -> StateSecret {
        let name = removal_hooks::former_secret_name(&self.key.owner);
        StateSecret::of(self.context, name, removal_hooks::FORMER_TYPE)
    }
}
