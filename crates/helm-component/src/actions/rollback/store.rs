//! The rollback target in the release store.

use kyma_api::{Digests, FreeForm, RollbackTarget};
use kyma_controller::Failure;
use serde_json::json;

use super::observe::version_of;
use super::record::{TARGET_FIELD, is_enabled};
use super::stored_release::{self, StoredReleaseError};
use crate::blocking::run_blocking;
use crate::content::LoadedContent;
use crate::pass::Pass;
use crate::release_store::slot::{Part, PartKind, secret_names, secret_pattern};
use crate::state_secret::StateSecret;

/// Stores the Ready release, or discards the stored one. A failure is reported, and the component stays Ready.
pub(super) async fn store_target(pass: &mut Pass<'_>) {
    if !is_enabled(&pass.context.resource.spec) {
        // The Secrets are emptied, not deleted, so that no role needs the permission to delete Secrets of the hub.
        let emptied = discard_releases(pass).await;
        if emptied.is_ok() {
            pass.state.recorded.rollback.target = None;
        }
        pass.rollback.stored = Some(emptied);
        return;
    }
    let (target, stored) = match store_release(pass).await {
        Ok(target) => (Some(target), Ok(())),
        Err(failure) => (None, Err(failure)),
    };
    pass.rollback.stored = Some(stored);
    // The release that was stored before is no longer a rollback target, since the newer release is Ready.
    pass.state.recorded.rollback.target = target;
}

async fn store_release(pass: &mut Pass<'_>) -> Result<RollbackTarget, Failure> {
    let loaded = pass.desired_content().await?;
    // A rollback target is applied as it was rendered, whatever API versions the cluster serves.
    let digests = Digests { api_versions: None, ..pass.state.recorded.digests.clone() };
    let source = digests.source.clone().unwrap_or_default();
    let objects = digests.objects.clone().unwrap_or_default();
    let release = loaded.release.clone();
    let (secret_digest, message) = match run_blocking(move || stored_release::pack(&loaded, &objects)).await?
    {
        Ok(packed) => {
            let part = Part::new(&release, packed);
            let digest = part.sha256.clone();
            let criteria = pass.state.recorded.revision_criteria();
            let render = digests.stored_render.as_deref();
            pass.release_store().store_part(&criteria, PartKind::Objects, part, render).await?;
            (Some(digest), None)
        }
        Err(error) => (None, Some(error.to_string())),
    };
    let version = version_of(pass, &source);
    let target = RollbackTarget { version, digests, secret_digest, message };
    if target.message.is_none()
        && let Err(error) = empty_earlier_operator_secret(pass, &target).await
    {
        // The next Ready release tries again to empty the Secret.
        tracing::warn!(component = %pass.key.name, %error, "the Secret in which an earlier version of the operator stored the release could not be emptied");
    }
    Ok(target)
}

/// Empties the Secret in which an earlier version of the operator stored the release, after the status names the new
/// Secret.
async fn empty_earlier_operator_secret(pass: &mut Pass<'_>, target: &RollbackTarget) -> Result<(), Failure> {
    let secret = earlier_operator_secret(pass);
    let may_exist = pass.may_have_former(secret.name());
    if !may_exist || secret.read().await?.is_none_or(|data| data.is_empty()) {
        return Ok(());
    }
    record_target(pass, target).await?;
    secret.empty().await
}

/// Records a stored rollback target on the hub before the Secret of its predecessor is emptied, so that a new process
/// does not need that Secret (ADR 16).
async fn record_target(pass: &mut Pass<'_>, target: &RollbackTarget) -> Result<(), Failure> {
    let field = (TARGET_FIELD.to_owned(), json!(target));
    pass.context.checkpoint(FreeForm::from_iter([field])).await?;
    pass.state.recorded.rollback.target = Some(target.clone());
    pass.remember();
    Ok(())
}

/// Discards all stored releases.
async fn discard_releases(pass: &Pass<'_>) -> Result<(), Failure> {
    let criteria = pass.state.recorded.revision_criteria();
    pass.release_store().discard_parts(&criteria, PartKind::Objects, None).await?;
    let secret = earlier_operator_secret(pass);
    if pass.may_have_former(secret.name()) { secret.empty().await } else { Ok(()) }
}

/// Returns the Secret in which an earlier version of the operator may have stored the release.
fn earlier_operator_secret(pass: &Pass<'_>) -> StateSecret {
    let name = stored_release::former_secret_name(&pass.key.owner);
    StateSecret::of(pass.context, name, stored_release::FORMER_TYPE)
}

/// Reads the rollback target; returns an error if it is gone or differs from its record in the status.
///
/// # Errors
/// If the hub does not answer.
pub(crate) async fn read_stored_release(
    pass: &Pass<'_>,
    target: &RollbackTarget,
) -> Result<Result<LoadedContent, StoredReleaseError>, Failure> {
    let (secret, part) = match find_stored_release(pass, target).await? {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    let unpack = move || stored_release::unpack(&part.packed, part.sha256.as_bytes());
    let unpacked = run_blocking(unpack).await?;
    let Digests { inputs, objects, stored_render, .. } = &target.digests;
    let is_rollback_target = |loaded: &LoadedContent| {
        inputs.as_ref() == Some(&loaded.inputs) && objects.as_ref() == Some(&loaded.rendered)
    };
    let loaded = unpacked
        .filter(is_rollback_target)
        .map(|loaded| LoadedContent { render: stored_render.clone(), ..loaded });
    Ok(loaded.ok_or(StoredReleaseError::Altered { secret }))
}

/// Returns the packed rollback target with the name of its Secret. Its digest must equal the one in the status: a
/// user with write access to Secrets must not choose the installed content. A Secret of an earlier version of the
/// operator for which the status has no digest is accepted only if no signature is required.
async fn find_stored_release(
    pass: &Pass<'_>,
    target: &RollbackTarget,
) -> Result<Result<(String, Part), StoredReleaseError>, Failure> {
    let mut altered = None;
    for (at, mut slot) in pass.release_store().read().await?.into_iter().enumerate() {
        let Some(part) = slot.take(PartKind::Objects) else { continue };
        let [secret, ..] = secret_names(&pass.key.owner, at);
        if target.secret_digest.as_ref() == Some(&part.sha256) {
            return Ok(Ok((secret, part)));
        }
        altered = Some(secret);
    }
    let former = earlier_operator_secret(pass).read().await?.and_then(stored_release::former_part);
    if let Some(part) = former {
        let secret = stored_release::former_secret_name(&pass.key.owner);
        let is_recorded = match &target.secret_digest {
            Some(digest) => *digest == part.sha256,
            None => pass.context.resource.spec.source.verify.is_none(),
        };
        if is_recorded {
            return Ok(Ok((secret, part)));
        }
        altered = altered.or(Some(secret));
    }
    Ok(Err(match altered {
        Some(secret) => StoredReleaseError::Altered { secret },
        None => StoredReleaseError::Gone { secret: secret_pattern(&pass.key.owner) },
    }))
}
