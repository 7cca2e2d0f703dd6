//! Effect of unhealthy targets on healthy ones: rounds in which all targets are healthy, and rounds with unhealthy
//! ones, in turn.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::quantile::quantile;
use super::{Outcome, Row};
use crate::neighbourhood::{Neighbourhood, OperatorResources, Round};

/// Number of unhealthy targets in ten.
const UNHEALTHY_TARGETS_IN_TEN: usize = 3;
/// Maximum growth of a value of the healthy targets.
const MAX_GROWTH: f64 = 1.05;

/// All rounds of one kind.
#[derive(Default)]
struct Rounds {
    installed: Vec<f64>,
    changed: Vec<f64>,
    resources: OperatorResources,
}

impl Rounds {
    fn add(&mut self, round: &Round) {
        let seconds = |times: &[Duration]| times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
        self.installed.extend(seconds(&round.installed));
        self.changed.extend(seconds(&round.changed));
        self.resources = self.resources.or(round.peak);
    }
}

/// Runs `rounds` rounds of each kind with `targets` targets, three in ten of which are unhealthy in every second
/// round.
///
/// # Errors
/// The landscape does not start, or a healthy target does not become Ready.
pub async fn neighbours(targets: usize, rounds: u32) -> Result<Outcome> {
    ensure!(targets >= 2 && rounds > 0, "at least two targets and one round");
    let bad = (targets * UNHEALTHY_TARGETS_IN_TEN).div_ceil(10);
    let neighbourhood = Neighbourhood::start(targets - bad, bad).await?;
    // Not measured: this round fetches content and writes the targets' stamps.
    neighbourhood.round("first", false).await?;
    let (mut well, mut sick, mut reasons) = (Rounds::default(), Rounds::default(), Vec::new());
    for number in 0..rounds {
        well.add(&neighbourhood.round(&format!("well-{number}"), false).await?);
        let round = neighbourhood.round(&format!("bad-{number}"), true).await?;
        sick.add(&round);
        reasons.push(round.bad);
    }
    let after = neighbourhood.resources().await?;
    neighbourhood.stop().await?;
    let mut rows = Vec::new();
    for (what, well, sick) in
        [("installed", &well.installed, &sick.installed), ("changed", &well.changed, &sick.changed)]
    {
        for (name, share) in [("median", 0.5), ("p99", 0.99)] {
            rows.push(moved(format!("{what}: {name}"), quantile(well, share), quantile(sick, share)));
        }
    }
    for (what, of) in [
        ("sockets", (|resources: &OperatorResources| resources.sockets) as fn(&OperatorResources) -> usize),
        ("tasks", |resources| resources.tasks),
        ("threads", |resources| resources.threads),
    ] {
        rows.push(Row::plain(format!("{what} at most, all well"), figure(of(&well.resources)), what));
        rows.push(Row::plain(format!("{what} at most, with bad ones"), figure(of(&sick.resources)), what));
        rows.push(Row::plain(format!("{what} at the end"), figure(of(&after)), what));
    }
    let setup = json!({
        "targets": targets, "bad": bad, "rounds of each sort": rounds,
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "targets are": "access Secrets that lead to one kube-apiserver; those that may be bad through a server that can misbehave, in every round",
        "bad are": "silent, refusing, slow (10 s), without end, 500, in turn", "bad ones said": reasons,
        "value": "seconds until Ready of those that are never bad, with bad ones beside them", "peer": "the same with all well",
        "goal": format!("at most {MAX_GROWTH} of the peer"),
        "mind": "the peer installs all targets at once, on the same cores: a bad one takes no part in that",
    });
    Ok(Outcome::new("neighbours", &setup, rows))
}

/// Returns a value with unhealthy neighbours beside the value without.
fn moved(name: String, well: f64, sick: f64) -> Row {
    let ratio = (well > 0.0).then(|| sick / well);
    Row { peer: Some(well), ratio, ..Row::at_most(name, sick, "s", well * MAX_GROWTH) }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn figure(count: usize) -> f64 {
    count as f64
}
