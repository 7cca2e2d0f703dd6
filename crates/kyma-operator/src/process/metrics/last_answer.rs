//! Time at which each Kyma's cluster last answered, computed at scrape time.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use kyma_controller::{Metrics, MetricsError};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, Opts};

/// A function that returns the names of Kymas and the time since their clusters last answered.
type AnswerSource = dyn Fn() -> Vec<(String, Duration)> + Send + Sync;

/// One series for each Kyma whose cluster has answered.
#[derive(Clone, Default)]
pub(super) struct LastAnswer {
    source: Arc<OnceLock<Box<AnswerSource>>>,
}

impl LastAnswer {
    /// Registers the collector. It has no series until [`Self::set_source`] sets the source.
    pub(super) fn new(process: &Metrics) -> Result<Self, MetricsError> {
        let last = Self::default();
        process.register(last.clone())?;
        Ok(last)
    }

    /// Sets the source of the series.
    pub(super) fn set_source(&self, source: impl Fn() -> Vec<(String, Duration)> + Send + Sync + 'static) {
        // Set only once, at the start.
        drop(self.source.set(Box::new(source)));
    }

    fn gauge() -> Option<GaugeVec> {
        let help =
            "Unix time in seconds of the last answer of the Kyma's cluster, to a request or through a watch.";
        GaugeVec::new(Opts::new("target_last_answer_timestamp_seconds", help), &["kyma_name"]).ok()
    }
}

impl Collector for LastAnswer {
    fn desc(&self) -> Vec<&Desc> {
        // Never freed: a collector lives as long as the process.
        static DESCRIPTOR: OnceLock<Option<GaugeVec>> = OnceLock::new();
        DESCRIPTOR.get_or_init(Self::gauge).iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (Some(source), Some(gauge)) = (self.source.get(), Self::gauge()) else { return Vec::new() };
        let now = Timestamp::now();
        for (kyma, ago) in source() {
            let answered = now - jiff::SignedDuration::try_from(ago).unwrap_or_default();
            #[allow(clippy::cast_precision_loss, reason = "a metric is a float")]
            gauge.with_label_values(&[kyma]).set(answered.as_millisecond() as f64 / 1000.0);
        }
        gauge.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_kymas_that_answered_have_a_series() {
        let process = Metrics::new().unwrap();
        let last = LastAnswer::new(&process).unwrap();
        let series = || {
            let text = process.render().unwrap();
            text.lines()
                .filter(|line| line.starts_with("target_last_answer"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(series(), [""; 0]);
        let known = Arc::new(parking_lot::Mutex::new(vec![("sample".to_owned(), Duration::from_mins(1))]));
        let answers = Arc::clone(&known);
        last.set_source(move || answers.lock().clone());
        let shown = series();
        let [line] = shown.as_slice() else { panic!("{shown:?}") };
        let value: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        let answered = Timestamp::from_duration(jiff::SignedDuration::from_secs_f64(value)).unwrap();
        let ago = Timestamp::now().duration_since(answered).as_secs();
        assert!(line.contains(r#"kyma_name="sample""#) && (60..90).contains(&ago), "{line}");
        known.lock().clear();
        assert_eq!(series(), [""; 0]);
    }
}
