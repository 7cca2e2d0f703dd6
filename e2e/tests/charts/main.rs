//! Third-party charts, each through a HelmComponent: what lies on the target is what `helm template` prints for it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test ends where it fails, and lists what it leaves out"
)]

mod compare;
mod oracle;
mod story;

use std::collections::VecDeque;
use std::sync::Mutex;

use e2e::inputs;
use e2e::inputs::charts::Chart;
use e2e::landscape::{Landscape, Options};

use story::{Outcome, Story};

/// Targets at a time, as many as small machines bear.
const TARGETS: usize = 2;

/// Every other chart, on a few targets that are cleaned between charts; with `TEST_FULL=1` all of them, each on a fresh
/// one. `TEST_CHARTS` names some instead, by what their names begin with.
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
    let mut rows: Vec<Row> = futures::future::join_all(workers).await.into_iter().flatten().collect();
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    for (chart, outcome) in &rows {
        match outcome {
            Ok(outcome) => println!("{chart}: {outcome}"),
            Err(_) => println!("{chart}: FAILED, see above"),
        }
    }
    let failed = rows.iter().filter(|row| row.1.is_err());
    let failed: Vec<&str> = failed.map(|row| row.0.as_str()).collect();
    assert!(failed.is_empty(), "{} of {total} charts failed: {}", failed.len(), failed.join(", "));
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

type Row = (String, anyhow::Result<Outcome>);

/// One target after the other, or one for all; until there are no charts left.
async fn work(
    landscape: &Landscape,
    number: usize,
    fresh: bool,
    next: &(dyn Fn() -> Option<Chart> + Sync),
) -> Vec<Row> {
    let mut rows = Vec::new();
    let shared = landscape.targets().get(number);
    if shared.is_none() && !fresh {
        return rows;
    }
    while let Some(chart) = next() {
        let outcome = async {
            let target = match shared {
                Some(target) => target.clone(),
                None => landscape.fresh_target(&story::word(&chart.name)).await?,
            };
            let story = Story::new(landscape, &target, &chart).await?;
            let outcome = story.install().await;
            // Also after a failure, or the next chart would find what this one left.
            let removed = story.remove().await;
            let outcome = outcome?;
            removed.map(|kept| outcome.keeping(kept))
        };
        let outcome = outcome.await;
        match &outcome {
            Ok(_) => eprintln!("{} done", chart.name),
            Err(error) => eprintln!("{} failed: {error:#}", chart.name),
        }
        rows.push((chart.name.clone(), outcome));
    }
    rows
}
