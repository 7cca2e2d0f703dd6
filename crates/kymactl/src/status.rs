//! `kymactl status`.

mod fleet;
pub(crate) mod table;

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, ResourceExt as _,
    api::ListParams,
    runtime::{WatchStreamExt as _, watcher},
};
use kyma_api::Kyma;
use tokio::time::{Instant, timeout_at};

use crate::{
    duration::duration,
    error::Error,
    hub::HubFlags,
    output::{self, Format},
};

pub(crate) use fleet::{Row, rows, unsettled};

/// How many unfinished modules an error message names.
const NAMED: usize = 20;

/// Flags of `kymactl status`.
#[derive(Args)]
pub(crate) struct Status {
    #[command(flatten)]
    hub: HubFlags,
    /// Kymas to show. Default: all.
    kymas: Vec<String>,
    /// Show the Kymas of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Show only Kymas with these labels.
    #[arg(short = 'l', long)]
    selector: Option<String>,
    /// Wait until every Kyma and every module of it is Ready. Exit code 3 if that takes longer than the timeout.
    #[arg(long)]
    wait: bool,
    /// Longest time to wait, as 30s or 10m.
    #[arg(long, default_value = "10m", value_parser = duration)]
    timeout: Duration,
    /// How the fleet is written.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl Status {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let client = self.hub.client().await?;
        let api: Api<Kyma> = if self.all_namespaces {
            Api::all(client)
        } else {
            Api::namespaced(client, &self.hub.hub_namespace)
        };
        let listed = if self.wait { self.await_ready(&api).await? } else { self.list(&api).await? };
        let open = unsettled(listed.values());
        self.print(&rows(listed.values()))?;
        if self.wait && (!open.is_empty() || listed.is_empty()) {
            return Err(Error::not_ready(self.timeout, &open[..open.len().min(NAMED)]));
        }
        Ok(())
    }

    /// The Kymas of now, read in pages.
    async fn list(&self, api: &Api<Kyma>) -> Result<Kymas, Error> {
        const PAGE: u32 = 500;
        let mut parameters =
            ListParams { label_selector: self.selector.clone(), ..ListParams::default() }.limit(PAGE);
        let mut kymas = Kymas::new();
        loop {
            let page = api.list(&parameters).await?;
            parameters.continue_token = page.metadata.continue_.clone().filter(|token| !token.is_empty());
            kymas.extend(page.items.into_iter().filter(|kyma| self.wants(kyma)).map(keyed));
            if parameters.continue_token.is_none() {
                return Ok(kymas);
            }
        }
    }

    /// Follows the Kymas until all are Ready or time is up; what changes meanwhile is told on standard error.
    async fn await_ready(&self, api: &Api<Kyma>) -> Result<Kymas, Error> {
        let deadline = Instant::now() + self.timeout;
        // Errors of the first list are the caller's to know; later ones are retried.
        let mut kymas = self.list(api).await?;
        let config = watcher::Config { label_selector: self.selector.clone(), ..watcher::Config::default() };
        let mut events = watcher(api.clone(), config).default_backoff().into_stream().boxed();
        let mut shown = rows(kymas.values());
        while kymas.is_empty() || !unsettled(kymas.values()).is_empty() {
            let Ok(Ok(event)) = timeout_at(deadline, events.try_next()).await else {
                if Instant::now() >= deadline {
                    break;
                }
                continue;
            };
            match event {
                Some(watcher::Event::Init) => kymas.clear(),
                Some(watcher::Event::InitApply(kyma) | watcher::Event::Apply(kyma)) if self.wants(&kyma) => {
                    kymas.extend([keyed(kyma)]);
                }
                Some(watcher::Event::Delete(kyma)) => {
                    kymas.remove(&keyed(kyma).0);
                }
                Some(_) => {}
                None => break,
            }
            let now = rows(kymas.values());
            for row in now.iter().filter(|row| !shown.contains(row)) {
                output::remark(&row.line());
            }
            shown = now;
        }
        Ok(kymas)
    }

    fn wants(&self, kyma: &Kyma) -> bool {
        self.kymas.is_empty() || self.kymas.contains(&kyma.name_any())
    }

    fn print(&self, rows: &[Row]) -> Result<(), Error> {
        let text = match self.output {
            Format::Table => table::render(rows, self.all_namespaces),
            Format::Json => serde_json::to_string_pretty(rows).map_err(std::io::Error::other)?,
        };
        Ok(output::result(&text)?)
    }
}

/// Kymas by namespace and name.
type Kymas = BTreeMap<(String, String), Kyma>;

fn keyed(kyma: Kyma) -> ((String, String), Kyma) {
    ((kyma.namespace().unwrap_or_default(), kyma.name_any()), kyma)
}
