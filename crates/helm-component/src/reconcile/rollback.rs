//! Steps that store the Ready release, and that roll back to it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use kyma_api::{Digests, FreeForm, Reason, RollbackTarget};
use kyma_sdk::Failure;
use serde_json::{Value, json};

use super::Pass;
use crate::blocking::run_blocking;
use crate::content::LoadedContent;
use crate::observe::rollback::{active_target, desired_inputs};
use crate::pass::CompletedSteps;
use crate::rollback;
use crate::state_secret::StateSecret;
use crate::stored_release::{self, StoredReleaseError};

impl Pass<'_> {
    /// Stores the Ready release, or discards the stored one. A failure is reported, and the component stays Ready.
    pub(super) async fn store_rollback_target(&mut self) {
        if !rollback::is_enabled(&self.context.resource.spec) {
            // Emptied instead of deleted, so that no role needs the permission to delete Secrets of the hub.
            let emptied = self.write_stored_release(None).await;
            self.done.rollback_target = Some(emptied.map(|()| self.state.recorded.rollback_target = None));
            return;
        }
        let stored = self.store_release().await;
        self.done.rollback_target = Some(match &stored {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.clone()),
        });
        // The previously stored release is no longer a rollback target: its successor works.
        self.state.recorded.rollback_target = stored.ok();
    }

    async fn store_release(&mut self) -> Result<RollbackTarget, Failure> {
        let loaded = self.desired_content().await?;
        // A rollback target is applied as it was rendered, whatever API versions the cluster serves.
        let digests = Digests { api_versions: None, ..self.state.recorded.digests.clone() };
        let source = digests.source.clone().unwrap_or_default();
        let objects = digests.objects.clone().unwrap_or_default();
        let (secret_digest, message) =
            match run_blocking(move || stored_release::pack(&loaded, &objects)).await? {
                Ok(packed) => {
                    let digest = stored_release::digest(&packed);
                    self.write_stored_release(Some(packed)).await?;
                    (Some(digest), None)
                }
                Err(error) => (None, Some(error.to_string())),
            };
        let version = self.version_of(&source);
        Ok(RollbackTarget { version, digests, secret_digest, message })
    }

    /// Returns the version of the content with this digest, for messages.
    fn version_of(&self, digest: &str) -> String {
        let spec = &self.context.resource.spec;
        let source = self.inputs.as_ref().map_or(&spec.source, |inputs| &inputs.source);
        rollback::version(spec, source, digest)
    }

    /// Returns the desired content; loads it if necessary.
    pub(super) async fn desired_content(&mut self) -> Result<LoadedContent, Failure> {
        let held = self.state.loaded.as_ref().filter(|loaded| Some(&*loaded.inputs) == desired_inputs(self));
        if let Some(loaded) = held {
            return Ok(loaded.clone());
        }
        self.state.loaded = Some(self.loaded().await?);
        self.rescope();
        self.state.loaded.clone().ok_or_else(|| Failure::new(Reason::Internal, "the content got lost"))
    }

    /// Rolls back to the stored release, since the desired one failed. Written to the hub before any object is applied.
    pub(super) async fn roll_back(&mut self, failure: Failure) {
        match self.begin_rollback(&failure).await {
            Ok(()) => {
                tracing::warn!(component = %self.key.name, %failure, "going back to the release before");
            }
            Err(error) => self.done.load = Some(error),
        }
    }

    async fn begin_rollback(&mut self, failure: &Failure) -> Result<(), Failure> {
        let Some(target) = self.state.recorded.rollback_target.clone() else { return Ok(()) };
        let mut loaded = match self.read_stored_release(&target).await? {
            Ok(loaded) => loaded,
            Err(gone) => {
                // No rollback is possible; the failure of the desired release stays visible.
                self.state.recorded.rollback_target =
                    Some(RollbackTarget { message: Some(gone.to_string()), ..target });
                return Ok(());
            }
        };
        let inputs = self.inputs.as_ref().map_err(Clone::clone)?.digest.clone();
        let source = self.state.loaded.as_ref().map(|loaded| loaded.source.clone());
        let source = source.or_else(|| self.state.recorded.digests.source.clone()).unwrap_or_default();
        let version = self.version_of(&source);
        let before = self.state.recorded.failed_revision.as_ref();
        let failed = rollback::failed(before, &inputs, version, failure, Timestamp::now());
        loaded.release = rollback::attempt_digest(&loaded.release, &failed);
        // The objects on the target belong to either release, so all are applied again.
        let digests = Digests { inputs: None, ..self.state.recorded.digests.clone() };
        self.context.checkpoint(fields(json!({"failedRevision": failed, "digests": digests}))).await?;
        self.state.recorded.failed_revision = Some(failed);
        self.state.recorded.digests = digests;
        self.reset_pass(Some(loaded));
        self.remember();
        Ok(())
    }

    /// Tries the failed release again.
    pub(super) async fn retry(&mut self) {
        let Some(mut failed) = self.state.recorded.failed_revision.clone() else { return };
        failed.retrying = true;
        match self.context.checkpoint(fields(json!({"failedRevision": failed}))).await {
            Ok(()) => {
                self.state.recorded.failed_revision = Some(failed);
                self.reset_pass(None);
                self.remember();
                self.retried = true;
            }
            Err(failure) => self.done.load = Some(failure),
        }
    }

    /// Ends a retry whose content cannot be loaded: the installed release stays until the next retry. Reports whether
    /// that was the case.
    pub(super) fn end_failed_retry(&mut self, failure: &Failure) -> bool {
        let failed = self.state.recorded.failed_revision.clone().filter(|failed| failed.retrying);
        let Some(failed) = failed.filter(|_| !failure.is_about_hub()) else { return false };
        let version = failed.version.clone();
        let again =
            rollback::failed(Some(&failed), &failed.inputs_digest, version, failure, Timestamp::now());
        self.state.recorded.failed_revision = Some(again);
        self.reset_pass(None);
        true
    }

    /// Resets the state of this pass, which is about the other release.
    fn reset_pass(&mut self, loaded: Option<LoadedContent>) {
        self.done = CompletedSteps::default();
        self.state.loaded = loaded;
        self.state.unready_since = None;
        self.set_module_version();
        self.rescope();
    }

    /// Loads the rollback target, from the hub alone.
    pub(super) async fn load_rollback_target(
        &self,
        target: &RollbackTarget,
    ) -> Result<LoadedContent, Failure> {
        let mut loaded =
            self.read_stored_release(target).await?.map_err(|gone| self.rollback_unavailable(&gone))?;
        if let Some(failed) = &self.state.recorded.failed_revision {
            loaded.release = rollback::attempt_digest(&loaded.release, failed);
        }
        Ok(loaded)
    }

    /// Returns the failure for a rollback target that no longer exists. The failed release is retried at its time.
    fn rollback_unavailable(&self, gone: &StoredReleaseError) -> Failure {
        let failure = Failure::new(Reason::RollbackUnavailable, gone.to_string());
        let failed = self.state.recorded.failed_revision.as_ref();
        let left = failed.and_then(|failed| rollback::time_until_retry(failed, Timestamp::now()));
        left.map_or(failure.clone(), |left| failure.retry_after(left))
    }

    pub(super) async fn read_stored_release(
        &self,
        target: &RollbackTarget,
    ) -> Result<Result<LoadedContent, StoredReleaseError>, Failure> {
        let secret = stored_release::secret_name(&self.key.owner);
        let Some(data) = self.stored_release_secret().read().await? else {
            return Ok(Err(StoredReleaseError::Gone { secret }));
        };
        let bytes = |key: &str| data.get(key).map(|value| value.0.clone()).unwrap_or_default();
        let (packed, sha256) = (bytes(stored_release::RELEASE), bytes(stored_release::SHA256));
        // A user with write access to Secrets must not choose the installed content: the digest in the status must
        // match.
        let is_recorded = match &target.secret_digest {
            Some(digest) => digest.as_bytes() == sha256,
            None => self.context.resource.spec.source.verify.is_none(),
        };
        if !is_recorded {
            return Ok(Err(StoredReleaseError::Altered { secret }));
        }
        let unpacked = run_blocking(move || stored_release::unpack(&packed, &sha256)).await?;
        let Digests { inputs, objects, stored_render, .. } = &target.digests;
        let is_it = |loaded: &LoadedContent| {
            inputs.as_ref() == Some(&loaded.inputs) && objects.as_ref() == Some(&loaded.rendered)
        };
        let loaded =
            unpacked.filter(is_it).map(|loaded| LoadedContent { render: stored_render.clone(), ..loaded });
        Ok(loaded.ok_or(StoredReleaseError::Altered { secret }))
    }

    /// Writes a packed release, or empties the Secret.
    async fn write_stored_release(&self, packed: Option<Vec<u8>>) -> Result<(), Failure> {
        let mut data = BTreeMap::new();
        if let Some(packed) = packed {
            data.insert(stored_release::SHA256, ByteString(stored_release::digest(&packed).into_bytes()));
            data.insert(stored_release::RELEASE, ByteString(packed));
        }
        self.stored_release_secret().write(data).await
    }

    fn stored_release_secret(&self) -> StateSecret {
        StateSecret::of(self.context, stored_release::secret_name(&self.key.owner), stored_release::TYPE)
    }
}

fn fields(value: Value) -> FreeForm {
    match value {
        Value::Object(fields) => fields,
        _ => FreeForm::new(),
    }
}

/// Reports whether the component no longer requests the release that failed.
pub(super) fn is_obsolete(pass: &Pass<'_>) -> bool {
    let Ok(inputs) = &pass.inputs else { return false };
    let recorded = &pass.state.recorded;
    let failed = recorded.failed_revision.as_ref();
    failed.is_some_and(|failed| {
        failed.inputs_digest != inputs.digest || (!failed.retrying && active_target(pass).is_none())
    })
}
