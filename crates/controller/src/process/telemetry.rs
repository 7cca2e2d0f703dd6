//! Log lines: to standard error, JSON or text, filtered by directives.

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::process::args::LogFormat;
use crate::process::settings::Settings;

/// Error of the setup of logging.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `--log-level` is not a list of directives.
    #[error("--log-level: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// `--log-level` has a number, which Kyma Lifecycle Manager takes for how much is logged.
    #[error("--log-level: {0} is a number; use error, warn, info, debug or trace")]
    Number(String),
}

/// Sets up logging for this process. A second call in one process changes nothing, so that several operators
/// can share one.
///
/// # Errors
/// `--log-level` is not a list of directives, or one of them is a number.
pub fn init_telemetry(settings: &Settings) -> Result<(), TelemetryError> {
    let filter = filter(&settings.log_level)?;
    let registry = tracing_subscriber::registry().with(filter);
    // An error here means that a subscriber is already set.
    let _ = match settings.log_format {
        LogFormat::Json => {
            registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).try_init()
        }
        LogFormat::Text => registry.with(fmt::layer().with_writer(std::io::stderr)).try_init(),
    };
    Ok(())
}

/// Libraries that log, below level error, input that they cannot parse: answers of targets, signatures. Text of
/// untrusted senders must not get into the log.
const LIMITED_CRATES: [&str; 2] = ["kube_client", "pgp"];

/// Returns the directives, which limit these libraries to errors unless they name them.
fn filter(directives: &str) -> Result<EnvFilter, TelemetryError> {
    let is_number = |directive: &&str| directive.parse::<i64>().is_ok();
    if let Some(number) = directives.split(',').map(str::trim).find(is_number) {
        return Err(TelemetryError::Number(number.to_owned()));
    }
    let held = LIMITED_CRATES.iter().filter(|name| !directives.contains(**name));
    let all = held.fold(directives.to_owned(), |all, name| format!("{all},{name}=error"));
    Ok(EnvFilter::try_new(all)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_logs_with_foreign_data_are_off_unless_requested() {
        let held = |directives: &str, name: &str| {
            filter(directives).unwrap().to_string().contains(&format!("{name}=error"))
        };
        assert!(held("info", "kube_client") && held("info", "pgp"));
        assert!(!held("info,kube_client=debug", "kube_client") && held("info,kube_client=debug", "pgp"));
        assert!(!held("info,pgp=debug", "pgp") && held("info,pgp=debug", "kube_client"));
        assert!(filter("info=loud").is_err());
    }

    #[test]
    fn a_number_is_refused_because_it_would_turn_the_log_off() {
        for number in ["0", "info, 9", "-1"] {
            assert!(matches!(filter(number), Err(TelemetryError::Number(_))), "{number}");
        }
    }
}
