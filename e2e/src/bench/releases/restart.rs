//! Restarts helm-component with installed releases: first without changes, then with objects edited while it was
//! stopped.

use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use testbed::{AuditEvent, AuditMark, until};

use super::super::Row;
use super::{Bench, OPERATOR};
use crate::landscape::asks;

/// Number of edited objects.
const DRIFTED_OBJECTS: usize = 20;
/// The edited label.
const EDITED_LABEL: &str = "app.kubernetes.io/version";
const EDITED_VALUE: &str = "changed";
/// Maximum seconds until no requests are made.
const MAX_SECONDS_UNTIL_IDLE: f64 = 10.0;
/// Maximum seconds until all edits are corrected.
const MAX_SECONDS_UNTIL_CORRECTED: f64 = 60.0;

/// Returns the rows of both restarts.
pub(super) async fn measure(bench: &mut Bench) -> Result<Vec<Row>> {
    bench.landscape.until_at_rest().await?;
    bench.landscape.kill(OPERATOR)?;
    let (marks, start) = (bench.landscape.marks()?, Timestamp::now());
    bench.landscape.start_again(OPERATOR).await?;
    bench.landscape.until_at_rest().await?;
    let asked = asked(bench, &marks)?.concat();
    let last = asked.iter().map(|event| event.recorded).max().unwrap_or(start);
    let mut rows = vec![
        Row::at_most(
            "restart: at rest after",
            last.duration_since(start).as_secs_f64(),
            "s",
            MAX_SECONDS_UNTIL_IDLE,
        ),
        Row::at_most(
            "restart: writes",
            count(asked.iter().filter(|event| event.is_write())),
            "requests",
            0.0,
        ),
        Row::plain("restart: reads", count(asked.iter().filter(|event| !event.is_write())), "requests"),
    ];
    rows.push(repaired(bench).await?);
    Ok(rows)
}

async fn repaired(bench: &mut Bench) -> Result<Row> {
    bench.landscape.kill(OPERATOR)?;
    let services: Api<Service> = Api::namespaced(bench.target.clone(), "ours");
    let names: Vec<String> = services
        .list_metadata(&ListParams::default())
        .await?
        .items
        .into_iter()
        .filter_map(|service| service.metadata.name)
        .take(DRIFTED_OBJECTS)
        .collect();
    let change = Patch::Merge(json!({"metadata": {"labels": {EDITED_LABEL: EDITED_VALUE}}}));
    for name in &names {
        services.patch_metadata(name, &PatchParams::default(), &change).await?;
    }
    let start = Instant::now();
    bench.landscape.start_again(OPERATOR).await?;
    let changed = ListParams::default().labels(&format!("{EDITED_LABEL}={EDITED_VALUE}"));
    until("what was changed is put right", Duration::from_mins(5), || async {
        let left = services.list_metadata(&changed).await?.items;
        Ok(left.is_empty().then_some(()))
    })
    .await?;
    let took = start.elapsed().as_secs_f64();
    bench.landscape.until_at_rest().await?;
    Ok(Row::at_most(
        format!("restart: {} changed objects put right after", names.len()),
        took,
        "s",
        MAX_SECONDS_UNTIL_CORRECTED,
    ))
}

/// Returns the operators' requests to the hub and each target since these marks.
pub(super) fn asked(bench: &Bench, marks: &[AuditMark]) -> Result<Vec<Vec<AuditEvent>>> {
    let clusters = bench.landscape.clusters().into_iter().zip(marks);
    clusters
        .map(|(cluster, mark)| Ok(cluster.audit()?.since(*mark)?.into_iter().filter(asks).collect()))
        .collect()
}

pub(super) fn count<'a>(events: impl Iterator<Item = &'a AuditEvent>) -> f64 {
    f64::from(u32::try_from(events.count()).unwrap_or(u32::MAX))
}
