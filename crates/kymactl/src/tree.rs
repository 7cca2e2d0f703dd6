//! `kymactl tree`.

mod draw;
mod node;
mod read;

use std::io::{IsTerminal as _, stdout};

use clap::Args;
use jiff::Timestamp;
use kyma_sdk::targets::Streams;

use crate::{
    error::Error,
    output::{self, Format},
    reach::Reach,
};

/// Flags of `kymactl tree`.
#[derive(Args)]
pub(crate) struct Tree {
    /// The HelmComponent.
    component: String,
    #[command(flatten)]
    reach: Reach,
    /// How it is written.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl Tree {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let runtime = self.reach.runtime().await?;
        let component = self.reach.component(&runtime, &self.component).await?;
        let target = runtime.look_at(&component).await?;
        let now = Timestamp::now();
        let nodes = read::nodes(&Streams::from(&target).client(), &component, now).await?;
        let text = match self.output {
            Format::Table => {
                let colours = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
                draw::text(&nodes, now, colours)
            }
            Format::Json => serde_json::to_string_pretty(&nodes).map_err(std::io::Error::other)?,
        };
        if nodes.is_empty() {
            output::remark("nothing was applied for this component yet");
        }
        Ok(output::result(&text)?)
    }
}
