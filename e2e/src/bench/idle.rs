//! Requests of the operators while nothing changes: only Lease renewals, and watches that are reopened when the
//! server ends them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use testbed::AuditEvent;

use super::{Outcome, Row};
use crate::fleet::Fleet;
use crate::landscape::{self, Landscape, Options, is_of_an_operator};

/// Minimum duration of a watch: kube requests 290 s, watches of targets more.
const MIN_WATCH_DURATION: Duration = Duration::from_mins(4);

/// Watches the audit logs of hub and targets for `seconds` after all is Ready.
///
/// # Errors
/// The landscape does not start or does not become Ready.
pub async fn idle(seconds: u64) -> Result<Outcome> {
    let landscape =
        Landscape::start(Options { targets: 2, directory: None, audit: true, ..Options::default() }).await?;
    Fleet::new(&landscape)?.install().await?;
    landscape.until_at_rest().await?;
    let clusters = landscape.clusters();
    let marks = clusters.iter().map(|cluster| cluster.audit()?.mark()).collect::<Result<Vec<_>>>()?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let mut rows = Vec::new();
    let mut requests = BTreeMap::new();
    for (cluster, mark) in clusters.iter().zip(marks) {
        let all = cluster.audit()?.since(mark)?;
        rows.push(short_watches(cluster.name(), &cluster.audit()?.watches_ended_since(mark)?));
        let events: Vec<AuditEvent> = all.into_iter().filter(landscape::asks).collect();
        let (writes, reads): (Vec<&AuditEvent>, Vec<_>) = events.iter().partition(|event| event.is_write());
        rows.push(Row::at_most(format!("{}: writes", cluster.name()), count(&writes), "requests", 0.0));
        rows.push(Row::at_most(format!("{}: reads", cluster.name()), count(&reads), "requests", 0.0));
        for event in &events {
            let line = format!("{} {} {} {}", cluster.name(), event.user_agent, event.verb, event.uri);
            *requests.entry(line).or_insert(0_u32) += 1;
        }
    }
    landscape.stop().await?;
    let setup = json!({"seconds": seconds, "kymas": 2, "modules": 3, "requests": requests});
    Ok(Outcome::new("idle", &setup, rows))
}

/// Returns the watches of the operators that ended too early.
fn short_watches(cluster: &str, ended: &[AuditEvent]) -> Row {
    let lasted = |event: &AuditEvent| event.recorded.duration_since(event.received);
    let own = ended.iter().filter(|event| is_of_an_operator(event));
    let short: Vec<&AuditEvent> =
        own.filter(|event| lasted(event).unsigned_abs() < MIN_WATCH_DURATION).collect();
    Row::at_most(format!("{cluster}: watches cut short"), count(&short), "watches", 0.0)
}

#[expect(clippy::cast_precision_loss, reason = "a count of requests")]
fn count(events: &[&AuditEvent]) -> f64 {
    events.len() as f64
}
