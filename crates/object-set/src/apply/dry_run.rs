//! Objects for which no dry run is possible, although a real apply may succeed.

use super::context::DesiredObject;
use super::outcome::{ObjectResult, Outcome, Refusal};
use crate::cluster::dry_run::{DryRun, NoDryRunReason};
use crate::inventory::Entry;

/// In a dry run, counts a refused object as sent if a real apply may succeed: for example,
/// if its Namespace or CRD is in the same set.
pub(super) async fn accept_without_dry_run(
    desired: &DesiredObject<'_>,
    result: ObjectResult,
) -> ObjectResult {
    let Some(dry_run) = &desired.target.cluster.dry_run else { return result };
    let Err(Refusal::Call(error)) = &result else { return result };
    let reason = dry_run.no_dry_run_reason(error, desired.target.has_own_kind());
    let Some(reason) = reason else { return result };
    Ok(record_without_dry_run(dry_run, desired, reason).await)
}

/// Records an object as sent without a dry run.
pub(super) async fn record_without_dry_run(
    dry_run: &DryRun,
    desired: &DesiredObject<'_>,
    reason: NoDryRunReason,
) -> (Outcome, Option<Entry>) {
    let target = desired.target;
    let before = target.api().get_opt(&target.identity.name).await.ok().flatten();
    let created = before.is_none();
    let uid = before.as_ref().and_then(|before| before.metadata.uid.clone()).unwrap_or_default();
    dry_run.record_without_dry_run(desired.object, before, reason);
    let entry = Entry {
        version: target.mapping.resource.version.clone(),
        uid,
        hash: desired.object.intent_hash(),
        created,
        ..Entry::default()
    };
    (Outcome::Applied { created, resource_version: None }, Some(entry))
}
