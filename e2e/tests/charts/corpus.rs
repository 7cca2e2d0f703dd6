//! Which values a chart is installed with, and changed to.

use anyhow::Result;
use e2e::inputs::charts::Chart;
use serde_json::{Value, json};

/// One installation of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// What people call its values.
    pub(crate) name: String,
    /// The chart with these values.
    pub(crate) chart: Chart,
    /// What they are changed to, and how people call that.
    pub(crate) then: Option<(String, Value)>,
}

/// The chart as it comes, not changed.
pub(crate) fn only(chart: &Chart) -> Vec<Run> {
    vec![Run { name: "default".to_owned(), chart: chart.clone(), then: None }]
}

/// The chart as it comes and with all values that its own project tests it with, each changed to the next; all names
/// change where there is no other.
pub(crate) fn all(chart: &Chart) -> Result<Vec<Run>> {
    let default = ("default".to_owned(), chart.values.clone());
    let mut sets = vec![default];
    sets.extend(chart.tested_values()?);
    let next = sets.iter().cycle().skip(1);
    let runs = sets.iter().zip(next).map(|((name, values), next)| {
        let then = if sets.len() > 1 { next.clone() } else { renamed(values) };
        let chart = Chart { values: values.clone(), ..chart.clone() };
        Run { name: name.clone(), chart, then: Some(then) }
    });
    Ok(runs.collect())
}

/// Nearly all charts know this value.
fn renamed(values: &Value) -> (String, Value) {
    let mut values = if values.is_object() { values.clone() } else { json!({}) };
    values["fullnameOverride"] = "renamed".into();
    ("fullnameOverride".to_owned(), values)
}
