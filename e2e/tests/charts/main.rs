//! Installs third-party charts through a HelmComponent each, and checks that the objects on the target are those
//! that `helm template` prints.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test ends where it fails, and lists what it leaves out"
)]

mod compare;
mod conditions;
mod corpus;
mod oracle;
mod outcome;
mod remains;
mod report;
mod scenario;

use std::collections::{BTreeSet, VecDeque};

use e2e::inputs;
use e2e::inputs::charts::Chart;
use e2e::landscape::{Landscape, Options};
use parking_lot::Mutex;
use serde_json::Value;
use testbed::Cluster;

use corpus::Run;
use outcome::Outcome;
use report::Row;
use scenario::Scenario;

/// Number of targets at the same time, as many as small machines can run.
const TARGETS: usize = 2;
/// Number of nodes of a fresh target: highly available charts spread over three.
const NODES: u16 = 3;

/// Tests every other chart, on a few targets that are cleaned between charts. With `TEST_FULL=1` it tests all
/// charts, each on a fresh target, with all values that their projects test and changes between them, and compares
/// the results with `docs/helm-compatibility.md`. `TEST_CHARTS` selects charts by prefixes of their names instead;
/// the page keeps the rows of other charts, and of charts of which a run failed.
#[tokio::test(flavor = "multi_thread")]
async fn charts_become_what_helm_template_prints() {
    let Some(inputs) = testbed::inputs("third-party charts").unwrap() else { return };
    let fresh = std::env::var_os("TEST_FULL").is_some_and(|value| value == "1");
    let charts = chosen(inputs::charts::all(&inputs).unwrap(), fresh);
    assert!(!charts.is_empty(), "no charts in {}", inputs.display());
    let targets = if fresh { 0 } else { TARGETS.min(charts.len()) };
    // The test removes more than twenty charts within ten minutes, each from a cluster of its own.
    let flags = vec!["--brake-targets=1000".to_owned()];
    let landscape =
        Landscape::start(Options { targets, directory: None, audit: false, flags, ..Options::default() })
            .await
            .unwrap();
    let total = charts.len();
    let names: BTreeSet<String> = charts.iter().map(|chart| chart.name.clone()).collect();
    let queue = Mutex::new(VecDeque::from(charts));
    let next = || queue.lock().pop_front();
    let workers = (0..TARGETS).map(|number| work(&landscape, number, fresh, &next));
    let mut results: Vec<ChartResult> =
        futures::future::join_all(workers).await.into_iter().flatten().collect();
    results.sort_by(|one, other| one.0.cmp(&other.0));
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for (name, outcome) in results {
        if let Ok(row) = outcome {
            let changed = row.changed.as_ref().map(|(to, outcome)| format!("; as {to}: {outcome}"));
            println!("{name}: {}{}", row.installed, changed.unwrap_or_default());
            rows.push(row);
        } else {
            println!("{name}: FAILED, see above");
            failed.push(name);
        }
    }
    let is_whole =
        |chart: &String| !failed.iter().any(|name| name.split(", ").next() == Some(chart.as_str()));
    let whole: BTreeSet<String> = names.iter().filter(|chart| is_whole(chart)).cloned().collect();
    let known = std::env::var_os("TEST_CHARTS").is_none().then_some(&names);
    // Rows of successful charts are written before the test fails for the others.
    let page = if fresh { report::check(&rows, &whole, known) } else { Ok(()) };
    assert!(failed.is_empty(), "{} runs of {total} charts failed: {}", failed.len(), failed.join(", "));
    page.unwrap();
    landscape.stop().await.unwrap();
}

fn chosen(all: Vec<Chart>, every: bool) -> Vec<Chart> {
    if let Ok(only) = std::env::var("TEST_CHARTS") {
        let is_named = |chart: &Chart| only.split(',').any(|part| chart.name.starts_with(part));
        return all.into_iter().filter(is_named).collect();
    }
    let (mut now, mut later) = (Vec::new(), Vec::new());
    for (number, chart) in all.into_iter().enumerate() {
        if every || number % 2 == 0 { now.push(chart) } else { later.push(chart) }
    }
    for chart in &later {
        eprintln!("{} left to TEST_FULL=1", chart.name);
    }
    now
}

/// Names of chart and values, and the result.
type ChartResult = (String, anyhow::Result<Row>);

/// Runs charts until none is left: on one shared target, or on a fresh target for each.
async fn work(
    landscape: &Landscape,
    number: usize,
    fresh: bool,
    next: &(dyn Fn() -> Option<Chart> + Sync),
) -> Vec<ChartResult> {
    let mut all = Vec::new();
    let shared = landscape.targets().get(number);
    if shared.is_none() && !fresh {
        return all;
    }
    while let Some(chart) = next() {
        let target = match shared {
            Some(target) => Ok(target.clone()),
            None => landscape.wide_target(&scenario::word(&chart.name), NODES).await,
        };
        let runs = if fresh { corpus::all(&chart) } else { Ok(corpus::only(&chart)) };
        let (target, runs) = match (target, runs) {
            (Ok(target), Ok(runs)) => (target, runs),
            (Err(error), _) | (_, Err(error)) => {
                eprintln!("{} failed: {error:#}", chart.name);
                all.push((chart.name, Err(error)));
                continue;
            }
        };
        for run in runs {
            let name = format!("{}, {}", chart.name, run.name);
            let outcome = Box::pin(through(landscape, &target, run)).await;
            match &outcome {
                Ok(_) => eprintln!("{name} done"),
                Err(error) => eprintln!("{name} failed: {error:#}"),
            }
            all.push((name, outcome));
        }
    }
    all
}

/// Installs, changes and removes the chart, and compares failures with helm.
async fn through(landscape: &Landscape, target: &Cluster, run: Run) -> anyhow::Result<Row> {
    let Run { name, chart, then } = run;
    let mut scenario = Scenario::new(landscape, target, &chart).await?;
    let outcome = Box::pin(course(&mut scenario, then.as_ref())).await;
    // Also removes the chart after a failure, so that the next one finds a clean target.
    let removed = Box::pin(scenario.remove()).await;
    let (installed, changed) = outcome?;
    let installed = Outcome { kept: removed?, ..installed };
    Box::pin(scenario.beside_helm(&installed, &chart.values)).await?;
    let mut row = Row { chart: chart.name, values: name, installed, changed: None, unchanged: None };
    match (changed, then) {
        (Some(outcome), Some((to, values))) => {
            Box::pin(scenario.beside_helm(&outcome, &values)).await?;
            row.changed = Some((to, outcome));
        }
        (None, Some((to, _))) if row.installed.refused.is_none() => row.unchanged = Some(to),
        _ => {}
    }
    Ok(row)
}

/// Returns the results with the chart's values and with changed values.
async fn course(
    scenario: &mut Scenario,
    then: Option<&(String, Value)>,
) -> anyhow::Result<(Outcome, Option<Outcome>)> {
    if let Some(reason) = Box::pin(scenario.refused()).await? {
        return Ok((Outcome::refused(reason), None));
    }
    let installed = Box::pin(scenario.install()).await?;
    // Values to which helm cannot upgrade are tested by a run of their own.
    let changed = match then {
        Some((_, values)) if scenario.can_change(values).await? => {
            Some(Box::pin(scenario.change(values)).await?)
        }
        _ => None,
    };
    Ok((installed, changed))
}
