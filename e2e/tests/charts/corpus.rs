//! Selects the values with which a chart is installed, and to which they are changed.

use anyhow::Result;
use e2e::inputs::charts::Chart;
use serde_json::{Value, json};

/// One installation of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Name of the values.
    pub(crate) name: String,
    /// The chart with these values.
    pub(crate) chart: Chart,
    /// Name and content of the values to which they are changed.
    pub(crate) then: Option<(String, Value)>,
}

/// Returns one run with the chart's default values, which are not changed.
pub(crate) fn only(chart: &Chart) -> Vec<Run> {
    vec![Run { name: "default".to_owned(), chart: chart.clone(), then: None }]
}

/// Returns runs with the chart's default values and with all values that its project tests, each changed to the
/// next ones. If there is only one set, it is changed by another name of the release's objects.
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

/// Returns the values with `fullnameOverride`, which nearly all charts support.
fn renamed(values: &Value) -> (String, Value) {
    let mut values = if values.is_object() { values.clone() } else { json!({}) };
    values["fullnameOverride"] = "renamed".into();
    ("fullnameOverride".to_owned(), values)
}
