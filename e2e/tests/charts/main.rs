//! Third-party charts, each through a HelmComponent: what lies on the target is what `helm template` prints for it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test ends where it fails, and lists what it leaves out"
)]

mod compare;
mod corpus;
mod oracle;
mod report;
mod story;

use std::collections::VecDeque;
use std::sync::Mutex;

use e2e::inputs;
use e2e::inputs::charts::Chart;
use e2e::landscape::{Landscape, Options};
use testbed::Cluster;

use corpus::Run;
use report::Row;
use story::{Outcome, Story};

/// Targets at a time, as many as small machines bear.
const TARGETS: usize = 2;

/// Every other chart, on a few targets that are cleaned between charts. With `TEST_FULL=1` all of them, each on a fresh
/// one, with all values that their projects test them with and changed to others, held against
/// `docs/helm-compatibility.md`. `TEST_CHARTS` names some instead, by what their names begin with.
#[tokio::test(flavor = "multi_thread")]
async fn charts_become_what_helm_template_prints() {
    let Some(inputs) = testbed::inputs("third-party charts").unwrap() else { return };
    let fresh = std::env::var_os("TEST_FULL").is_some_and(|value| value == "1");
    let charts = chosen(inputs::charts::all(&inputs).unwrap(), fresh);
    assert!(!charts.is_empty(), "no charts in {}", inputs.display());
    let targets = if fresh { 0 } else { TARGETS.min(charts.len()) };
    // Twenty-odd removals within ten minutes, each from a cluster of its own, are meant here.
    let flags = vec!["--brake-targets=1000".to_owned()];
    let landscape =
        Landscape::start(Options { targets, directory: None, audit: false, flags, ..Options::default() })
            .await
            .unwrap();
    let total = charts.len();
    let queue = Mutex::new(VecDeque::from(charts));
    let next = || queue.lock().unwrap().pop_front();
    let workers = (0..TARGETS).map(|number| work(&landscape, number, fresh, &next));
    let mut told: Vec<Told> = futures::future::join_all(workers).await.into_iter().flatten().collect();
    told.sort_by(|one, other| one.0.cmp(&other.0));
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for (name, outcome) in told {
        if let Ok(row) = outcome {
            let changed = row.changed.as_ref().map(|(to, outcome)| format!("; as {to}: {outcome}"));
            println!("{name}: {}{}", row.installed, changed.unwrap_or_default());
            rows.push(row);
        } else {
            println!("{name}: FAILED, see above");
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{} runs of {total} charts failed: {}", failed.len(), failed.join(", "));
    if fresh && std::env::var_os("TEST_CHARTS").is_none() {
        report::check(&rows).unwrap();
    }
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

/// Chart and values, and how they got on.
type Told = (String, anyhow::Result<Row>);

/// One target after the other, or one for all; until there are no charts left.
async fn work(
    landscape: &Landscape,
    number: usize,
    fresh: bool,
    next: &(dyn Fn() -> Option<Chart> + Sync),
) -> Vec<Told> {
    let mut all = Vec::new();
    let shared = landscape.targets().get(number);
    if shared.is_none() && !fresh {
        return all;
    }
    while let Some(chart) = next() {
        let target = match shared {
            Some(target) => Ok(target.clone()),
            None => landscape.fresh_target(&story::word(&chart.name)).await,
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

/// Installed, changed, removed.
async fn through(landscape: &Landscape, target: &Cluster, run: Run) -> anyhow::Result<Row> {
    let Run { name, chart, then } = run;
    let mut story = Story::new(landscape, target, &chart).await?;
    let row = |installed| Row { chart: chart.name.clone(), values: name, installed, changed: None };
    if let Some(reason) = Box::pin(story.refused()).await? {
        return Ok(row(Outcome::refused(reason)));
    }
    let outcome = async {
        let installed = story.install().await?;
        let changed = match then {
            // Values that the chart cannot be rendered with are a run of their own.
            Some((to, values)) if story.renders(&values).await? => {
                Some((to, Box::pin(story.change(&values)).await?))
            }
            _ => None,
        };
        anyhow::Ok((installed, changed))
    };
    let outcome = Box::pin(outcome).await;
    // Also after a failure, or the next chart would find what this one left.
    let removed = Box::pin(story.remove()).await;
    let (installed, changed) = outcome?;
    let kept = removed?;
    Ok(Row { changed, ..row(installed.keeping(kept)) })
}
