//! Hooks of a removal are those of the installed release, whatever the spec requests now: they are stored on the hub
//! before that release is applied.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use kyma_api::{HookPolicy, Hooks, Reason, RollbackTarget};
use kyma_helm::hooks::{self, Event};
use kyma_sdk::Failure;

use super::Pass;
use crate::blocking::{run_blocking, run_blocking_if_large};
use crate::content::LoadedContent;
use crate::objects::PreparedObjects;
use crate::packed;
use crate::removal_hooks;
use crate::state_secret::StateSecret;

/// Advice for a removal whose hooks cannot be loaded.
const REMEDY: &str = "spec.hooks: Skip lets the removal go on without its hooks";

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
        let digests = self.state.recorded.digests.clone();
        let data = self.removal_hooks_secret().read().await?.unwrap_or_default();
        let bytes = |key: &str| data.get(key).map(|value| value.0.clone()).unwrap_or_default();
        let (packed, sha256) = (bytes(removal_hooks::HOOKS), bytes(removal_hooks::SHA256));
        let (release, sent) = (content.to_owned(), digests.clone());
        let size = packed.len();
        // If signatures are required, a user with write access to Secrets must not inject hooks: hooks that this
        // process did not store itself come from verified content.
        let must_be_own = self.context.resource.spec.source.verify.is_some();
        let is_own = self.state.removal_hooks_digest.as_ref().is_some_and(|own| own.as_bytes() == sha256);
        let unpack = move || {
            if must_be_own && !is_own {
                None
            } else {
                removal_hooks::unpack(&packed, &sha256, &release, &sent)
            }
        };
        if let Some(hooks) = run_blocking_if_large(size, unpack).await? {
            return Ok(Arc::new(PreparedObjects { objects: vec![], hooks, warnings: vec![] }));
        }
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
                message: format!("{}; the hooks of the removal come from it, and {REMEDY}", failure.message),
                ..failure
            })?,
        };
        if desired.release == content || is_of(&desired.source, &desired.values) {
            return Ok(desired.prepared);
        }
        let message = format!(
            "the hooks of the removal are those of the release that is installed, which was not kept, and the spec asks \
             for another one: ask for the installed one again, or {REMEDY}"
        );
        Err(Failure::new(Reason::HookFailed, message))
    }

    /// Stores the hooks of this release's removal, or discards those of the previous one. `record`: the hooks' record
    /// from now on.
    pub(super) async fn store_removal_hooks(
        &mut self,
        loaded: &LoadedContent,
        record: Option<&Hooks>,
    ) -> Result<(), Failure> {
        let had = self.state.recorded.hooks.as_ref().is_some_and(|record| record.has_delete_hooks);
        let has = record.is_some_and(|record| record.has_delete_hooks);
        // A repeated apply finds them stored.
        let is_stored = has && self.state.removal_hooks_release.as_ref() == Some(&loaded.release);
        if (!had && !has) || is_stored || self.cluster.dry_run.is_some() {
            return Ok(());
        }
        self.state.removal_hooks = None;
        let packed = if has { self.pack_removal_hooks(loaded).await } else { None };
        let data = packed.map(|packed| {
            let sha256 = packed::digest(&packed).into_bytes();
            self.state.removal_hooks_digest = String::from_utf8(sha256.clone()).ok();
            [(removal_hooks::HOOKS, ByteString(packed)), (removal_hooks::SHA256, ByteString(sha256))]
        });
        let data: BTreeMap<&str, ByteString> = data.into_iter().flatten().collect();
        self.removal_hooks_secret().write(data).await?;
        self.state.removal_hooks_release = has.then(|| loaded.release.clone());
        Ok(())
    }

    async fn pack_removal_hooks(&self, loaded: &LoadedContent) -> Option<Vec<u8>> {
        let loaded = loaded.clone();
        let packed =
            run_blocking(move || removal_hooks::pack(&loaded)).await.map_err(|failure| failure.message);
        let packed = packed.and_then(|packed| packed.map_err(|error| error.to_string()));
        if let Err(error) = &packed {
            // Without the Secret, the hooks are rendered again while the spec requests this release.
            tracing::warn!(component = %self.key.name, %error, "hooks of the removal are not kept");
        }
        packed.ok()
    }

    fn removal_hooks_secret(&self) -> StateSecret {
        StateSecret::of(self.context, removal_hooks::secret_name(&self.key.owner), removal_hooks::TYPE)
    }
}
