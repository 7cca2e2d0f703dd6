//! `kymactl completion`.

use clap::Args;
use clap_complete::env::Shells;

use crate::{error::Error, output};

/// Environment variable with which a shell requests completions.
const COMPLETE: &str = "COMPLETE";
/// Name of this program in the script.
const PROGRAM: &str = "kymactl";

/// Flags of `kymactl completion`.
#[derive(Args)]
pub(crate) struct Completion {
    /// Shell that reads the script: `source <(kymactl completion bash)`
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    shell: String,
}

impl Completion {
    pub(crate) fn run(&self) -> Result<(), Error> {
        let shells = Shells::builtins();
        let shell =
            shells.completer(&self.shell).ok_or_else(|| Error::input(&self.shell, "no such shell"))?;
        let mut script = Vec::new();
        shell.write_registration(COMPLETE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
        output::result(&String::from_utf8_lossy(&script))
    }
}
