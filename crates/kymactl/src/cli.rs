//! The command line: one module per command.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::{
    command::completion, command::diff, command::explain, command::migrate, command::module,
    command::reconcile, command::reset, command::run, command::status, command::suspend, command::target,
    command::test, command::tree, command::values, command::why, error::Error, hub::GlobalFlags,
};

/// Build modules, run their operators and inspect a fleet of clusters
#[derive(Parser)]
#[command(name = "kymactl", version, after_help = ENVIRONMENT, args_override_self = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: GlobalFlags,
    #[command(subcommand)]
    command: Command,
}

const ENVIRONMENT: &str = "\
Environment: KUBECONFIG lists kubeconfig files, HTTPS_PROXY and NO_PROXY are
read as by kubectl, NO_COLOR turns colours off.
Exit codes: 0 success, 1 failure, 2 wrong input or usage, 3 not done in time.";

const RESET: &str = "\
Modules outside the set are removed, as if the cluster's user had removed them.";

const DIFF: &str = "\
Renders and decides as the operator does, by dry runs on the target. Nothing is
written; of Secrets only keys are shown.
Exit codes: 0 no changes, 1 changes, 2 the changes cannot be determined.";

const RECONCILE: &str = "\
Exit codes: 0 Ready afterwards, 1 it failed, 3 not done or not Ready in time.";

const RUN: &str = "\
Without --once or --remove it reconciles until it is stopped, as the operators
do: start it only where none of them serves the namespace.
With --once or --remove it works on one Kyma and ends.";

const TEST: &str = "\
The tests run once the component is Ready.
Exit codes: 0 all succeeded, 1 one failed, 3 not ended in time.";

#[derive(Subcommand)]
enum Command {
    /// Build, publish and assign modules
    #[command(subcommand)]
    Module(module::Module),
    /// Check or adopt the cluster of a Kyma
    #[command(subcommand)]
    Target(target::Target),
    /// Migrate from another system, and back
    #[command(subcommand)]
    Migrate(migrate::Migrate),
    /// Show the fleet: cluster, module, version, state
    Status(Box<status::Status>),
    /// Explain why each module of a Kyma has its version
    Explain(explain::Explain),
    /// Show what a Kyma and its components wait for
    Why(why::Why),
    /// Restore the initial set of modules on a Kyma's cluster
    #[command(after_help = RESET)]
    Reset(reset::Reset),
    /// Show the values of a HelmComponent and where each comes from
    Values(values::Values),
    /// Show what a HelmComponent would change on its target now
    #[command(after_help = DIFF)]
    Diff(Box<diff::Diff>),
    /// Show the objects of a HelmComponent on its target, with health and drift
    Tree(tree::Tree),
    /// Stop reconciling a HelmComponent until it is resumed
    Suspend(suspend::Suspend),
    /// Reconcile a suspended HelmComponent again
    Resume(suspend::Suspend),
    /// Reconcile a HelmComponent now: re-apply its objects, skip backoff
    #[command(after_help = RECONCILE)]
    Reconcile(reconcile::Reconcile),
    /// Run the tests of a HelmComponent's chart, as `helm test`
    #[command(after_help = TEST)]
    Test(test::Test),
    /// Run all operators in this process
    #[command(after_help = RUN)]
    Run(Box<run::Run>),
    /// Print the script that completes commands and names in a shell
    Completion(completion::Completion),
}

impl Cli {
    /// Parses the command line of the process.
    pub(crate) fn of_process() -> Self {
        Self::parse_from(boolean::without_values(&Self::command(), std::env::args_os()))
    }

    pub(crate) async fn run(self) -> Result<ExitCode, Error> {
        let done = match self.command {
            Command::Diff(diff) => return diff.run().await,
            Command::Module(module) => module.run().await,
            Command::Target(target) => target.run().await,
            Command::Migrate(migrate) => migrate.run().await,
            Command::Status(status) => status.run().await,
            Command::Explain(explain) => explain.run().await,
            Command::Why(why) => why.run().await,
            Command::Reset(reset) => reset.run().await,
            Command::Values(values) => values.run().await,
            Command::Suspend(component) => component.run(true).await,
            Command::Resume(component) => component.run(false).await,
            Command::Reconcile(reconcile) => reconcile.run().await,
            Command::Test(test) => test.run().await,
            Command::Run(run) => run.run(&self.global).await,
            Command::Tree(tree) => tree.run().await,
            Command::Completion(completion) => completion.run(),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

mod boolean;
#[cfg(test)]
mod exit_codes;
#[cfg(test)]
mod tests;
