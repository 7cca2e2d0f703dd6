//! A component that runs inside of a test.

use clap::Parser;
use kube::Config;
use kyma_controller::{Args, MetricsError, NoFlags, Process, Settings, StartError, serve};
use tokio::task::JoinHandle;

use crate::component::Component;
use crate::driver::ComponentProgram;

/// A component that runs inside of a test, as the command `run` of its binary does.
///
/// ```
/// use std::error::Error;
///
/// use kube::Config;
/// use kyma_sdk::Component;
/// use kyma_sdk::testing::TestOperator;
///
/// async fn test<C: Component>(component: C, hub: Config) -> Result<(), Box<dyn Error>> {
///     let flags = ["--hub-namespace=test", "--allow-loopback-targets"].map(str::to_owned);
///     let operator = TestOperator::start(component, &flags, hub)?;
///     // Create objects of the kind here, and wait until they are Ready.
///     operator.stop().await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct TestOperator {
    process: Process,
    task: JoinHandle<Result<(), StartError>>,
}

impl TestOperator {
    /// Starts the component as this user of the hub. `flags` are those of the command `run`, such as
    /// `--hub-namespace=test`. Must be called inside of a tokio runtime.
    ///
    /// # Errors
    /// A flag is unknown or has a value that cannot be used.
    pub fn start<C: Component>(component: C, flags: &[String], hub: Config) -> Result<Self, StartError> {
        let settings = settings(flags)?;
        let process = Process::new()?;
        let served = serve(ComponentProgram(component), NoFlags {}, settings, hub, process.clone());
        Ok(Self { task: tokio::spawn(served), process })
    }

    /// Returns the metrics of the component in the text format of Prometheus.
    ///
    /// # Errors
    /// A collector returned a metric that cannot be encoded.
    pub fn metrics(&self) -> Result<String, MetricsError> {
        self.process.metrics.render()
    }

    /// Stops the component, and waits until it has stopped.
    ///
    /// # Errors
    /// The component could not start, or stopped with an error.
    pub async fn stop(self) -> Result<(), StartError> {
        self.process.shutdown.cancel();
        self.task.await.unwrap_or_else(|error| Err(StartError::Run(error.into())))
    }
}

/// The flags of the command `run`.
#[derive(Parser)]
struct RunFlags {
    #[command(flatten)]
    args: Args,
}

/// Parses and validates flags of the command `run`.
///
/// # Errors
/// A flag is unknown or has a value that cannot be used.
pub(super) fn settings(flags: &[String]) -> Result<Settings, StartError> {
    let words = std::iter::once("run").chain(flags.iter().map(String::as_str));
    let parsed = RunFlags::try_parse_from(words).map_err(|error| StartError::Run(error.into()))?;
    Settings::resolve(parsed.args).map_err(|error| StartError::Run(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_command_run_become_settings() {
        let flags = ["--hub-namespace=test", "--resync", "1h"].map(str::to_owned);
        let found = settings(&flags).unwrap();
        assert_eq!((found.hub_namespace.as_str(), found.resync.as_secs()), ("test", 3600));
        for wrong in ["--no-such-flag", "--resync=never"] {
            assert!(settings(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
