//! The command line.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use super::definition::Program;
use super::serve::run_alone;
use crate::process::args::Args;
use crate::process::metrics::Metrics;
use crate::process::settings::Settings;
use crate::rbac;
use crate::rbac::Side;

#[derive(Parser)]
struct CommandLine<F: clap::Args> {
    #[command(subcommand)]
    command: Command<F>,
}

#[derive(Subcommand)]
enum Command<F: clap::Args> {
    /// Run the operator until it is stopped
    Run(Box<RunFlags<F>>),
    /// Print the CRDs as YAML
    Crd,
    /// Print the roles as YAML, each rule with its reason
    Rbac {
        /// Namespace of the ServiceAccount and of the namespaced role
        #[arg(long, env = "HUB_NAMESPACE", default_value = "kcp-system")]
        namespace: String,
        /// Cluster for which the roles are printed
        #[arg(long, value_enum, default_value_t = RoleScope::Both)]
        r#for: RoleScope,
    },
    /// Print the reasons of conditions, events and metrics, with class and meaning
    Reasons,
    /// Print the metrics, with kind, labels and meaning
    Metrics,
    /// Print name and version
    Version,
}

#[derive(clap::Args)]
struct RunFlags<F: clap::Args> {
    #[command(flatten)]
    args: Args,
    #[command(flatten)]
    own: F,
}

/// Cluster for which roles are printed.
#[derive(Clone, Copy, ValueEnum)]
enum RoleScope {
    /// The hub
    Hub,
    /// A target
    Target,
    /// The hub, and the role for targets
    Both,
    /// A hub that is its own target
    SingleCluster,
}

pub(super) fn dispatch<P: Program>(program: P) -> ExitCode {
    let command = CommandLine::<P::Flags>::command()
        .name(P::OPERATOR.name)
        .about(P::ABOUT)
        .version(P::OPERATOR.version)
        .subcommand_required(true)
        .arg_required_else_help(true);
    let line = CommandLine::<P::Flags>::from_arg_matches(&command.get_matches());
    let done = match line {
        Err(error) => error.exit(),
        Ok(CommandLine { command: Command::Run(flags) }) => {
            let RunFlags { args, own } = *flags;
            match Settings::resolve(args) {
                Ok(settings) => run_alone(program, own, settings).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        }
        Ok(CommandLine { command }) => print::<P>(&command).map_err(|error| error.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print<P: Program>(command: &Command<P::Flags>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match command {
        Command::Run(_) => {}
        Command::Crd => {
            for crd in P::crds() {
                let yaml = serde_saphyr::to_string(&crd).map_err(io::Error::other)?;
                write!(out, "---\n{yaml}")?;
            }
        }
        Command::Rbac { namespace, r#for } => {
            let side = match r#for {
                RoleScope::Hub => Side::Hub,
                RoleScope::Target => Side::Target,
                RoleScope::Both => Side::Both,
                RoleScope::SingleCluster => Side::SingleCluster,
            };
            write!(out, "{}", P::rbac().render(namespace, side))?;
            if P::COLLECTS_COMPONENTS && side != Side::Target {
                write!(out, "{}", rbac::render_collector(P::OPERATOR.name, namespace))?;
            }
        }
        Command::Reasons => {
            for reason in P::reasons() {
                let class = reason.class().map_or("-", kyma_api::ErrorClass::as_str);
                writeln!(out, "{reason}\t{class}\t{}", reason.summary())?;
            }
        }
        Command::Metrics => {
            let metrics = Metrics::new().map_err(io::Error::other)?;
            P::metrics(&metrics).map_err(io::Error::other)?;
            for one in metrics.described() {
                writeln!(out, "{}\t{}\t{}\t{}", one.name, one.kind, one.labels.join(", "), one.help)?;
            }
        }
        Command::Version => writeln!(out, "{} {}", P::OPERATOR.name, P::OPERATOR.version)?,
    }
    out.flush()
}
