//! Waits until a cluster receives no requests any more.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};

use crate::client::audit::{AuditEvent, AuditMark};
use crate::cluster::Cluster;
use crate::wait::until_or_why;

/// Waits until the clusters, all with an audit log, have received no request for which `counts` holds, for the time
/// `silence`, counted from the call at the earliest.
///
/// # Errors
/// A log cannot be read, or the deadline passed; the message names the last request.
pub async fn until_quiet(
    clusters: &[&Cluster],
    silence: Duration,
    deadline: Duration,
    counts: impl Fn(&AuditEvent) -> bool,
) -> Result<()> {
    let marks = clusters.iter().map(|cluster| cluster.audit()?.mark()).collect::<Result<Vec<_>>>()?;
    let start = Timestamp::now();
    let silence = SignedDuration::try_from(silence).context("the silence is too long")?;
    until_or_why("nothing is asked any more", deadline, || async {
        let last = last_of(clusters, &marks, &counts)?;
        let since = last.as_ref().map_or(start, |(event, _)| event.recorded.max(start));
        if Timestamp::now().duration_since(since) > silence {
            return Ok(Ok(()));
        }
        Ok(Err(last.map_or_else(String::new, |(event, cluster)| {
            format!("{} asked {cluster} for {} {}", event.user_agent, event.verb, event.uri)
        })))
    })
    .await
}

fn last_of<'a>(
    clusters: &[&'a Cluster],
    marks: &[AuditMark],
    counts: impl Fn(&AuditEvent) -> bool,
) -> Result<Option<(AuditEvent, &'a str)>> {
    let mut all = Vec::new();
    for (cluster, mark) in clusters.iter().zip(marks) {
        let events = cluster.audit()?.since(*mark)?.into_iter().filter(&counts);
        all.extend(events.map(|event| (event, cluster.name())));
    }
    Ok(all.into_iter().max_by_key(|(event, _)| event.recorded))
}
