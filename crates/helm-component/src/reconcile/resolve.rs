//! Resolves the version range of a source, when that is due.

use std::time::{Duration, Instant};

use kyma_api::{HelmComponent, ResolvedVersion};
use kyma_controller::{Failure, jitter, shorten_randomly};
use kyma_sdk::Context;

use super::load;
use crate::memory::ComponentState;
use crate::pass::Shared;
use crate::plan::Operation;
use crate::ranges::{self, VersionQuery};
use crate::source;

/// Maximum share by which the interval between two checks is shortened, so that components do not check at once.
const MAX_INTERVAL_REDUCTION: f64 = 0.1;

/// Returns the version that the source's range resolved to; `None` without a range.
///
/// # Errors
/// If no version was ever found for the range, and its source returns none now.
pub(super) async fn read(
    shared: &Shared,
    context: &Context<HelmComponent>,
    operation: Operation,
    state: &mut ComponentState,
) -> Result<Option<ResolvedVersion>, Failure> {
    let source = &context.resource.spec.source;
    let Some(query) = ranges::version_query(source)? else {
        state.recorded.resolved = None;
        state.next_check = None;
        return Ok(None);
    };
    let every = source.chart.as_ref().and_then(|chart| chart.check_every_seconds);
    let every = every.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let held = state.recorded.resolved.clone().filter(|held| held.request_digest == query.request_digest);
    let is_due = is_due(state, every) || context.is_requested();
    if let Some(held) = held.as_ref().filter(|_| !is_due || operation == Operation::Remove) {
        return Ok(Some(held.clone()));
    }
    if operation == Operation::Remove && state.recorded.inventory.is_empty() {
        return Ok(None);
    }
    let found = look(shared, context, &query).await;
    state.next_check = every.map(|every| Instant::now() + shorten_randomly(every, MAX_INTERVAL_REDUCTION));
    let resolved = match (held, found) {
        (held, Ok(found)) => ranges::settled(held, &found, &query.request_digest),
        (Some(held), Err(failure)) => ranges::kept(held, &failure),
        (None, Err(failure)) => return Err(failure),
    };
    state.recorded.resolved = Some(resolved.clone());
    Ok(Some(resolved))
}

async fn look(
    shared: &Shared,
    context: &Context<HelmComponent>,
    query: &VersionQuery,
) -> Result<kyma_artifacts::ChartVersion, Failure> {
    let credentials = load::credentials(shared, context).await?;
    let artifacts = &shared.sources.artifacts;
    let found = artifacts.resolve(&query.versions, &query.range, &credentials).await;
    found.map_err(|error| source::failure(&error))
}

/// Reports whether the next check is due.
fn is_due(state: &mut ComponentState, every: Option<Duration>) -> bool {
    let now = Instant::now();
    state.next_check = every.map(|every| next_check(state.next_check, every, now, jitter()));
    state.next_check.is_some_and(|next| next <= now)
}

/// Returns the time of the next check, from the previous one. After a restart it comes after a random share of the
/// interval; a shorter interval counts from now on.
fn next_check(before: Option<Instant>, every: Duration, now: Instant, share: f64) -> Instant {
    before.unwrap_or_else(|| now + every.mul_f64(share)).min(now + every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_check_follows_interval_after_restart_and_shortening() {
        let (now, hour, minute) = (Instant::now(), Duration::from_hours(1), Duration::from_mins(1));
        assert_eq!(next_check(Some(now + minute), hour, now, 0.5), now + minute);
        assert_eq!(next_check(None, hour, now, 0.5), now + hour / 2);
        assert_eq!(next_check(Some(now + hour), minute, now, 0.5), now + minute);
        let mut state = ComponentState { next_check: Some(now), ..ComponentState::default() };
        assert!(is_due(&mut state, Some(hour)));
        state.next_check = Some(now + hour);
        assert!(!is_due(&mut state, Some(hour)));
        assert!(!is_due(&mut state, None));
        assert_eq!(state.next_check, None);
    }
}
