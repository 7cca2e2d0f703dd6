//! `kymactl tree`.

mod draw;
mod node;
mod read;

use clap::Args;
use jiff::Timestamp;
use kyma_sdk::Context;
use kyma_targets::Streams;

use crate::{error::Error, output, reader::ReaderArgs};

/// Flags of `kymactl tree`.
#[derive(Args)]
pub(crate) struct Tree {
    /// The HelmComponent
    #[arg(value_parser = crate::name::component, add = crate::command::complete::components())]
    component: String,
    #[command(flatten)]
    reader: ReaderArgs,
}

impl Tree {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let runtime = self.reader.runtime().await?;
        let component = self.reader.component(&runtime, &self.component).await?;
        let target = Context::resolve_target(&runtime, &component).await?;
        let now = Timestamp::now();
        let nodes = read::nodes(&Streams::from(&target).client(), &component, now).await?;
        let drawn = || draw::text(&nodes, now, output::has_colours());
        let text = self.reader.hub.format().text(&nodes, drawn, || node::names(&nodes))?;
        if nodes.is_empty() {
            output::remark("nothing was applied for this component yet");
        }
        output::result(&text)
    }
}
