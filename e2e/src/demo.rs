//! The demo: from a push to a registry to running modules on two clusters, and back.

mod screen;
mod steps;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use futures::FutureExt;
use serde::Serialize;

use crate::landscape::{HUB_NAMESPACE, Landscape, Options, TARGET_NAMESPACE};
use screen::Screen;
pub use steps::Scenario;
use table::Table;

/// Commands that the demo suggests at its end.
const NEXT_COMMANDS: &str = "What to type next:
  cargo xtask demo --keep   the same, left running to look around
  cargo xtask up            the landscape in the background, to develop against
  cargo xtask test          every test";

/// Options of the demo.
#[derive(Debug, Default)]
pub struct Request {
    /// Leave everything running at the end.
    pub keep: bool,
    /// File for the results, as JSON.
    pub report: Option<PathBuf>,
    /// Directory of state and logs; a temporary one if absent.
    pub directory: Option<PathBuf>,
}

/// Results of the steps, in order.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    steps: Vec<StepReport>,
}

/// One step of the demo.
#[derive(Debug, Serialize)]
struct StepReport {
    name: &'static str,
    ok: bool,
    seconds: f64,
}

/// Runs the demo. Fails at the first failed step.
pub async fn run(request: Request) -> Result<()> {
    let screen = Arc::new(Screen::new());
    let mut report = Report::default();
    let outcome = run_steps(&request, &screen, &mut report).boxed().await;
    if let Some(path) = &request.report {
        std::fs::write(path, serde_json::to_vec_pretty(&report)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let landscape = outcome.inspect_err(|_| screen.summary(&report))?;
    screen.summary(&report);
    if request.keep {
        screen.say(&landscape.how_to_go_on());
        tokio::signal::ctrl_c().await?;
    } else {
        screen.say(NEXT_COMMANDS);
    }
    landscape.stop().await
}

/// Runs all steps.
async fn run_steps(request: &Request, screen: &Arc<Screen>, report: &mut Report) -> Result<Landscape> {
    let options =
        Options { targets: 2, directory: request.directory.clone(), audit: false, ..Options::default() };
    let landscape = step(
        screen,
        report,
        "start hub, two targets, registry, operators",
        Landscape::start(options).boxed(),
    )
    .await?;
    let table = Table::follow(&landscape, screen)?;
    let say = |line: &str| screen.say(line);
    let scenario = Scenario::new(&landscape, &say)?;
    step(
        screen,
        report,
        "push two modules and publish a third with its own kind",
        scenario.publish().boxed(),
    )
    .await?;
    let before =
        step(screen, report, "apply two Kymas, every module becomes Ready", scenario.install().boxed())
            .await?;
    step(screen, report, "assign a new version to a channel, clusters upgrade", scenario.upgrade().boxed())
        .await?;
    step(screen, report, "try a downgrade, it is refused", scenario.refuse_downgrade().boxed()).await?;
    step(screen, report, "edit an object on a target, it is put right", scenario.correct_drift().boxed())
        .await?;
    step(
        screen,
        report,
        "disable a module that is in use: blocked, then removed",
        scenario.disable_in_use().boxed(),
    )
    .await?;
    step(
        screen,
        report,
        "delete a Kyma, its cluster is left as it was found",
        scenario.delete_kyma(&before).boxed(),
    )
    .await?;
    table.stop();
    Ok(landscape)
}

async fn step<T>(
    screen: &Screen,
    report: &mut Report,
    name: &'static str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let bar = screen.begin(report.steps.len() + 1, name);
    let start = Instant::now();
    let outcome = work.await;
    let seconds = start.elapsed().as_secs_f64();
    bar.end(outcome.is_ok(), seconds);
    report.steps.push(StepReport { name, ok: outcome.is_ok(), seconds });
    outcome.with_context(|| format!("step failed: {name}"))
}
