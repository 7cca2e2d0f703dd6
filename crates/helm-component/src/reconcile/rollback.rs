//! Steps that store the Ready release, and that roll back to it.

use jiff::Timestamp;
use kyma_api::{Digests, FreeForm, Reason, RollbackTarget};
use kyma_sdk::Failure;
use serde_json::{Value, json};

use super::Pass;
use crate::blocking::run_blocking;
use crate::content::LoadedContent;
use crate::observe::rollback::{active_target, desired_inputs};
use crate::pass::CompletedSteps;
use crate::release_store::slot::{Part, PartKind, secret_names, secret_pattern};
use crate::rollback;
use crate::state_secret::StateSecret;
use crate::stored_release::{self, StoredReleaseError};

impl Pass<'_> {
    /// Stores the Ready release, or discards the stored one. A failure is reported, and the component stays Ready.
    pub(super) async fn store_rollback_target(&mut self) {
        if !rollback::is_enabled(&self.context.resource.spec) {
            // Emptied instead of deleted, so that no role needs the permission to delete Secrets of the hub.
            let emptied = self.discard_stored_release().await;
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
        let release = loaded.release.clone();
        let (secret_digest, message) =
            match run_blocking(move || stored_release::pack(&loaded, &objects)).await? {
                Ok(packed) => {
                    let part = Part::new(&release, packed);
                    let digest = part.sha256.clone();
                    self.store_part(PartKind::Objects, part, digests.stored_render.as_deref()).await?;
                    (Some(digest), None)
                }
                Err(error) => (None, Some(error.to_string())),
            };
        let version = self.version_of(&source);
        let target = RollbackTarget { version, digests, secret_digest, message };
        if target.message.is_none()
            && let Err(error) = self.empty_former_release(&target).await
        {
            // It is emptied after the next release that is Ready.
            tracing::warn!(component = %self.key.name, %error, "the former Secret of the release is not emptied");
        }
        Ok(target)
    }

    /// Empties the Secret of an earlier version, once the status no longer needs it.
    async fn empty_former_release(&self, target: &RollbackTarget) -> Result<(), Failure> {
        let secret = self.former_release();
        let may_exist = self.may_have_former(secret.name());
        if !may_exist || secret.read().await?.is_none_or(|data| data.is_empty()) {
            return Ok(());
        }
        self.context.checkpoint(fields(json!({"rollbackTarget": target}))).await?;
        secret.empty().await
    }

    /// Discards all stored releases.
    async fn discard_stored_release(&self) -> Result<(), Failure> {
        self.discard_parts(PartKind::Objects, None).await?;
        let secret = self.former_release();
        if self.may_have_former(secret.name()) { secret.empty().await } else { Ok(()) }
    }

    /// Returns the Secret in which an earlier version may have stored the release.
    fn former_release(&self) -> StateSecret {
        let name = stored_release::former_secret_name(&self.key.owner);
        StateSecret::of(self.context, name, stored_release::FORMER_TYPE)
    }

    /// Returns the version of the content with this digest, for messages.
    fn version_of(&self, digest: &str) -> String {
        let spec = &self.context.resource.spec;
        let source = self.inputs.as_ref().map_or(&spec.source, |inputs| &inputs.source);
        rollback::version(spec, source, digest)
    }

    /// Returns the desired content; loads it if necessary.
    pub(crate) async fn desired_content(&mut self) -> Result<LoadedContent, Failure> {
        let held = self.state.loaded.as_ref().filter(|loaded| Some(&*loaded.inputs) == desired_inputs(self));
        if let Some(loaded) = held {
            return Ok(loaded.clone());
        }
        self.state.loaded = Some(self.loaded().await?);
        self.rescope();
        self.state.loaded.clone().ok_or_else(|| Failure::new(Reason::Internal, "the loaded content was lost"))
    }

    /// Rolls back to the stored release, since the desired one failed. Written to the hub before any object is applied.
    pub(super) async fn roll_back(&mut self, failure: Failure) -> Result<(), Failure> {
        self.begin_rollback(&failure).await?;
        tracing::warn!(component = %self.key.name, %failure, "rolling back to the last Ready release");
        Ok(())
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
    pub(super) async fn retry(&mut self) -> Result<(), Failure> {
        let Some(mut failed) = self.state.recorded.failed_revision.clone() else { return Ok(()) };
        failed.retrying = true;
        self.context.checkpoint(fields(json!({"failedRevision": failed}))).await?;
        self.state.recorded.failed_revision = Some(failed);
        self.reset_pass(None);
        self.remember();
        self.retried = true;
        Ok(())
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

    pub(crate) async fn read_stored_release(
        &self,
        target: &RollbackTarget,
    ) -> Result<Result<LoadedContent, StoredReleaseError>, Failure> {
        let (secret, part) = match self.find_stored_release(target).await? {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let unpack = move || stored_release::unpack(&part.packed, part.sha256.as_bytes());
        let unpacked = run_blocking(unpack).await?;
        let Digests { inputs, objects, stored_render, .. } = &target.digests;
        let is_it = |loaded: &LoadedContent| {
            inputs.as_ref() == Some(&loaded.inputs) && objects.as_ref() == Some(&loaded.rendered)
        };
        let loaded =
            unpacked.filter(is_it).map(|loaded| LoadedContent { render: stored_render.clone(), ..loaded });
        Ok(loaded.ok_or(StoredReleaseError::Altered { secret }))
    }

    /// Returns the packed rollback target with the name of its Secret. The status must record its digest: a user with
    /// write access to Secrets must not choose the installed content.
    async fn find_stored_release(
        &self,
        target: &RollbackTarget,
    ) -> Result<Result<(String, Part), StoredReleaseError>, Failure> {
        let mut altered = None;
        for (at, mut slot) in self.release_store().read().await?.into_iter().enumerate() {
            let Some(part) = slot.take(PartKind::Objects) else { continue };
            let [secret, ..] = secret_names(&self.key.owner, at);
            if target.secret_digest.as_ref() == Some(&part.sha256) {
                return Ok(Ok((secret, part)));
            }
            altered = Some(secret);
        }
        let former = self.former_release().read().await?.and_then(stored_release::former_part);
        if let Some(part) = former {
            let secret = stored_release::former_secret_name(&self.key.owner);
            let is_recorded = match &target.secret_digest {
                Some(digest) => *digest == part.sha256,
                None => self.context.resource.spec.source.verify.is_none(),
            };
            if is_recorded {
                return Ok(Ok((secret, part)));
            }
            altered = altered.or(Some(secret));
        }
        Ok(Err(match altered {
            Some(secret) => StoredReleaseError::Altered { secret },
            None => StoredReleaseError::Gone { secret: secret_pattern(&self.key.owner) },
        }))
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
