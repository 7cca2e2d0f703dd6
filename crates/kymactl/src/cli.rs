//! The command line: one module per command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{
    diff, error::Error, explain, migrate, module, reconcile, reset, run, status, suspend, target, test, tree,
    values, why,
};

/// Modules for Kubernetes clusters: make them, run their operators, see where they run.
#[derive(Parser)]
#[command(name = "kymactl", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make modules.
    #[command(subcommand)]
    Module(module::Module),
    /// Check or take over the cluster of a Kyma.
    #[command(subcommand)]
    Target(target::Target),
    /// Move over from another system, and back.
    #[command(subcommand)]
    Migrate(migrate::Migrate),
    /// Show the fleet: cluster, module, version, state.
    Status(Box<status::Status>),
    /// Tell why each module of a Kyma has the version it has: what was asked for, what is offered, what decided, since
    /// when.
    Explain(explain::Explain),
    /// Tell what a Kyma waits for: its conditions and those of its components, its place in the operators' queues, how
    /// the last passes failed, when its cluster last answered.
    Why(why::Why),
    /// Put the modules of a Kyma's cluster back to its initial set, those in the hub's Kyma.
    ///
    /// Says what would change; writes only with --yes. Modules that are not in the set are removed then, as if the
    /// cluster's user had taken them out.
    Reset(reset::Reset),
    /// Show the values that a HelmComponent gives its chart, and where each comes from: module, valuesFrom, user or
    /// override.
    Values(values::Values),
    /// Show what a HelmComponent would change on its target now: objects to create, change and delete, and hooks to run.
    ///
    /// Everything is fetched, rendered and decided as the operator does it, and tried on the target as a dry run; nothing
    /// is written. Of Secrets only keys are shown. Exit code 0: nothing would change; 1: something would; 2: it cannot be
    /// told, or not all of it would be applied.
    Diff(Box<diff::Diff>),
    /// Show the objects of a HelmComponent on its target, with what they own: how each does, whether somebody changed it,
    /// and its age.
    Tree(tree::Tree),
    /// Leave a HelmComponent alone: nothing is done with it, not even put right, until it is resumed.
    Suspend(suspend::Suspend),
    /// Take care of a HelmComponent again that was suspended.
    Resume(suspend::Suspend),
    /// Have everything of a HelmComponent looked at anew, now: its objects are applied again, whatever is remembered of
    /// them, and no back-off is waited for.
    Reconcile(reconcile::Reconcile),
    /// Run the tests of a HelmComponent's chart, as `helm test` does, and tell how each ended.
    ///
    /// They run once the component is Ready. Ends with 1 where one failed, with 3 where they are not over in time.
    Test(test::Test),
    /// Run all reconcilers in this process.
    Run(Box<run::Run>),
}

impl Cli {
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
            Command::Run(run) => run.run().await,
            Command::Tree(tree) => tree.run().await,
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
