//! Hooks of a removal are those of the installed release, whatever the spec requests now: they are stored on the hub
//! before that release is applied.

use std::sync::Arc;

use kyma_api::{HookPolicy, Hooks, Reason, RollbackTarget};
use kyma_controller::Failure;
use kyma_helm::hooks::{self, Event, Hook};

use super::observe::loaded_release;
use super::run::{checkpoint_record, run};
use super::state::{Outcome, StoredHooks};
use super::stored;
use crate::actions::rollback::read_stored_release;
use crate::blocking::{run_blocking, run_blocking_if_large};
use crate::content::LoadedContent;
use crate::objects::PreparedObjects;
use crate::pass::Pass;
use crate::release_store::slot::{Part, PartKind};
use crate::state_secret::StateSecret;

/// Advice for a removal whose hooks cannot be loaded.
const REMEDY: &str = "set spec.hooks to Skip to continue the removal without its hooks";

/// Runs the hooks of a removal event, as of the installed release.
pub(crate) async fn run_for_removal(pass: &mut Pass<'_>, event: Event) -> Result<Outcome, Failure> {
    let record = pass.state.recorded.hooks.release.as_ref();
    let skips = pass.context.resource.spec.hooks == HookPolicy::Skip;
    if skips || hooks::is_over(record, event) {
        return Ok(Outcome::Completed);
    }
    // Equal in every process, whatever is rendered again.
    let content = record.map(|record| record.digest.clone()).unwrap_or_default();
    let prepared = match &pass.state.removal_hooks.prepared {
        Some(prepared) => Arc::clone(prepared),
        None => load(pass, &content).await?,
    };
    pass.state.removal_hooks.prepared = Some(Arc::clone(&prepared));
    run(pass, event, &prepared.hooks, &content).await
}

/// Checkpoint before content is applied: records on the hub the hooks after the apply, and stores those of the
/// release's removal (ADR 13).
pub(crate) async fn checkpoint_release(pass: &mut Pass<'_>) -> Result<(), Failure> {
    let Some(loaded) = pass.state.loaded.clone() else { return Ok(()) };
    let Some(due) = loaded_release(pass, &loaded) else { return Ok(()) };
    let event = due.change.after();
    let record = match pass.context.resource.spec.hooks {
        HookPolicy::Run => hooks::before_apply(due),
        HookPolicy::Skip => hooks::record_if_disabled(due),
    };
    let stored = checkpoint_removal_hooks(pass, &loaded, record.as_ref()).await?;
    checkpoint_record(pass, event, record).await?;
    discard_removal_hooks(pass, stored).await;
    Ok(())
}

/// Returns the hooks of the installed release: the stored ones, otherwise those of the rollback target, otherwise
/// those of the desired release, if either is the same release. Releases that were installed by versions without
/// this store have no stored hooks.
async fn load(pass: &mut Pass<'_>, content: &str) -> Result<Arc<PreparedObjects>, Failure> {
    if let Some(hooks) = read(pass, content).await? {
        return Ok(Arc::new(PreparedObjects { objects: vec![], hooks, warnings: vec![] }));
    }
    let digests = pass.state.recorded.digests.clone();
    let target = pass.state.recorded.rollback.target().cloned();
    let is_of = |source: &str, values: &str| stored::is_of(&digests, source, values);
    let is_installed = |target: &RollbackTarget| {
        let (source, values) = (target.digests.source.as_deref(), target.digests.values.as_deref());
        source.zip(values).is_some_and(|(source, values)| is_of(source, values))
    };
    if let Some(target) = target.filter(|target| target.message.is_none() && is_installed(target))
        && let Ok(loaded) = read_stored_release(pass, &target).await?
    {
        return Ok(loaded.prepared);
    }
    let desired = match pass.state.loaded.clone() {
        Some(loaded) => loaded,
        None => pass.loaded().await.map_err(|failure| Failure {
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
async fn read(pass: &Pass<'_>, content: &str) -> Result<Option<Vec<Hook>>, Failure> {
    let slots = pass.release_store().read().await?.into_iter();
    let mut parts: Vec<Part> = slots.filter_map(|mut slot| slot.take(PartKind::Hooks)).collect();
    // Hooks of the release that was begun last come first.
    parts.sort_by_key(|part| part.revision != content);
    let former = former_secret(pass).read().await?;
    parts.extend(former.and_then(stored::former_part));
    // If signatures are required, a user with write access to Secrets must not inject hooks: hooks that this
    // process did not store itself come from verified content.
    if pass.context.resource.spec.source.verify.is_some() {
        let own = pass.state.removal_hooks.stored_digest.as_ref();
        parts.retain(|part| own == Some(&part.sha256));
    }
    for part in parts {
        let (release, sent) = (content.to_owned(), pass.state.recorded.digests.clone());
        let size = part.packed.len();
        let unpack = move || stored::unpack(&part.packed, part.sha256.as_bytes(), &release, &sent);
        let hooks = run_blocking_if_large(size, unpack).await?;
        if hooks.is_some() {
            return Ok(hooks);
        }
    }
    Ok(None)
}

/// Checkpoint before content is applied: stores the hooks of this release's removal on the hub (ADR 13). `record`: the
/// hooks' record from now on. Hooks of the previous release stay until [`discard_removal_hooks`], since the record
/// still names that release.
pub(crate) async fn checkpoint_removal_hooks(
    pass: &mut Pass<'_>,
    loaded: &LoadedContent,
    record: Option<&Hooks>,
) -> Result<StoredHooks, Failure> {
    let recorded = pass.state.recorded.hooks.release.as_ref();
    let had = recorded.is_some_and(|record| record.has_delete_hooks);
    let has = record.is_some_and(|record| record.has_delete_hooks);
    // A repeated apply finds them stored.
    let is_stored = has && pass.state.removal_hooks.stored_release.as_ref() == Some(&loaded.release);
    if (!had && !has) || is_stored || pass.cluster.dry_run.is_some() {
        return Ok(StoredHooks::Unchanged);
    }
    pass.state.removal_hooks.prepared = None;
    let packed = if has { pack(pass, loaded).await } else { None };
    let stored = if packed.is_some() { StoredHooks::Replaced } else { StoredHooks::Removed };
    if let Some(packed) = packed {
        let part = Part::new(&loaded.release, packed);
        pass.state.removal_hooks.stored_digest = Some(part.sha256.clone());
        let criteria = pass.state.recorded.revision_criteria();
        let render = loaded.render.as_deref();
        pass.release_store().store_part(&criteria, PartKind::Hooks, part, render).await?;
    }
    pass.state.removal_hooks.begun_release = has.then(|| loaded.release.clone());
    Ok(stored)
}

/// Discards the hooks of previous releases, once the status records the new one. A discard that fails is repeated by
/// the next apply.
pub(crate) async fn discard_removal_hooks(pass: &mut Pass<'_>, stored: StoredHooks) {
    if pass.cluster.dry_run.is_some() {
        return;
    }
    pass.state.removal_hooks.confirm(stored);
    let Some(kept) = pass.state.removal_hooks.discard_due.clone() else { return };
    match discard_all_but(pass, kept.release.as_deref()).await {
        Ok(()) => pass.state.removal_hooks.discard_due = None,
        // The record names another release, so these hooks do not run.
        Err(error) => {
            tracing::warn!(component = %pass.key.name, %error, "hooks of the former release are not discarded");
        }
    }
}

async fn discard_all_but(pass: &Pass<'_>, kept: Option<&str>) -> Result<(), Failure> {
    let criteria = pass.state.recorded.revision_criteria();
    pass.release_store().discard_parts(&criteria, PartKind::Hooks, kept).await?;
    let secret = former_secret(pass);
    if pass.may_have_former(secret.name()) { secret.empty().await } else { Ok(()) }
}

async fn pack(pass: &Pass<'_>, loaded: &LoadedContent) -> Option<Vec<u8>> {
    let loaded = loaded.clone();
    let packed = run_blocking(move || stored::pack(&loaded)).await.map_err(|failure| failure.message);
    let packed = packed.and_then(|packed| packed.map_err(|error| error.to_string()));
    if let Err(error) = &packed {
        // Without the Secret, the hooks are rendered again while the spec requests this release.
        tracing::warn!(component = %pass.key.name, %error, "the hooks of the removal are not stored");
    }
    packed.ok()
}

/// Returns the Secret in which an earlier version may have stored the hooks.
fn former_secret(pass: &Pass<'_>) -> StateSecret {
    let name = stored::former_secret_name(&pass.key.owner);
    StateSecret::of(pass.context, name, stored::FORMER_TYPE)
}
