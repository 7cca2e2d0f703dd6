//! Benchmarks on real control planes. Each prints a table and optionally writes it as JSON.

mod catalogue;
mod current;
mod expressions;
mod fleet;
mod idle;
mod install;
mod neighbours;
mod objects;
mod quantile;
mod react;
mod releases;
mod sequences;

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Value, json};

pub use catalogue::catalogue_size;
pub use expressions::expressions;
pub use fleet::fleet;
pub use idle::idle;
pub use install::install;
pub use neighbours::neighbours;
pub use objects::objects;
pub use react::react;
pub use releases::{releases, upgrade};
pub use sequences::sequences;

/// Result of a benchmark.
#[derive(Debug, Serialize)]
pub struct Outcome {
    bench: &'static str,
    setup: Value,
    rows: Vec<Row>,
}

/// A measured value, with a peer's value and a goal if there are any.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    peer: Option<f64>,
    ratio: Option<f64>,
    goal: Option<f64>,
    ok: Option<bool>,
}

impl Row {
    /// Returns a row whose value should be at most `goal`.
    fn at_most(name: impl Into<String>, value: f64, unit: &'static str, goal: f64) -> Self {
        Self { goal: Some(goal), ok: Some(value <= goal), ..Self::plain(name, value, unit) }
    }

    /// Returns a row whose value should be at least `goal`.
    fn at_least(name: impl Into<String>, value: f64, unit: &'static str, goal: f64) -> Self {
        Self { goal: Some(goal), ok: Some(value >= goal), ..Self::plain(name, value, unit) }
    }

    /// Returns a row whose value should be below the peer's.
    fn beside(name: impl Into<String>, value: f64, unit: &'static str, peer: f64) -> Self {
        let ratio = (value > 0.0).then_some(peer / value);
        Self { peer: Some(peer), ratio, ok: Some(value < peer), ..Self::plain(name, value, unit) }
    }

    /// Returns a row without goal or peer.
    fn plain(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, peer: None, ratio: None, goal: None, ok: None }
    }
}

impl Outcome {
    fn new(bench: &'static str, setup: &Value, rows: Vec<Row>) -> Self {
        let machine = json!({"cores": std::thread::available_parallelism().map_or(0, usize::from)});
        let setup = json!({"machine": machine, "bench": setup});
        Self { bench, setup, rows }
    }

    /// Returns the result as a text table.
    pub fn table(&self) -> String {
        let mut text = format!("{}  {}\n\n", self.bench, self.setup);
        text.push_str(&format!(
            "{:<44} {:>12} {:<10} {:>12} {:>7} {:>10}\n",
            "", "value", "unit", "peer", "ratio", "goal"
        ));
        for row in &self.rows {
            let number = |value: Option<f64>| value.map(|value| format!("{value:.2}")).unwrap_or_default();
            let mark = row.ok.map_or("", |ok| if ok { "  ok" } else { "  MISSED" });
            text.push_str(&format!(
                "{:<44} {:>12.2} {:<10} {:>12} {:>7} {:>10}{mark}\n",
                row.name,
                row.value,
                row.unit,
                number(row.peer),
                number(row.ratio),
                number(row.goal)
            ));
        }
        text
    }

    /// Writes the result as JSON.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
