//! `kymactl status`.

mod fleet;
pub(crate) mod table;

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use kube::{
    Api, ResourceExt as _,
    api::ListParams,
    runtime::{WatchStreamExt as _, watcher},
};
use kyma_api::Kyma;
use tokio::time::{Instant, timeout_at};

use crate::{
    command::complete,
    duration::duration,
    error::Error,
    hub::GlobalFlags,
    name,
    output::{self, Format},
};

pub(crate) use fleet::{Row, list_unready_modules, rows};

/// Maximum number of unfinished modules in an error message.
const MAX_NAMED: usize = 20;

/// Flags of `kymactl status`.
#[derive(Args)]
pub(crate) struct Status {
    /// Kymas to show. Default: all
    #[arg(value_name = "KYMA", value_parser = name::kyma, add = complete::kymas())]
    kymas: Vec<String>,
    /// Show the Kymas of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Show only Kymas with these labels
    #[arg(short = 'l', long)]
    selector: Option<String>,
    /// Wait until all Kymas and modules are Ready; exit code 3 after the timeout
    #[arg(long)]
    wait: bool,
    /// Maximum time to wait, such as 30s or 10m
    #[arg(long, default_value = "10m", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    hub: GlobalFlags,
}

impl Status {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let client = self.hub.client().await?;
        let api: Api<Kyma> = if self.all_namespaces {
            Api::all(client)
        } else {
            Api::namespaced(client, self.hub.namespace())
        };
        let listed = self.list(&api).await?;
        if self.wait {
            self.ensure_all_exist(&listed)?;
        }
        let listed = if self.wait { self.await_ready(&api, listed).await? } else { listed };
        self.print(&listed)?;
        if self.wait {
            let open = self.open(&listed);
            return if open.is_empty() {
                Ok(())
            } else {
                Err(Error::not_ready(self.timeout, &open[..open.len().min(MAX_NAMED)]))
            };
        }
        self.ensure_all_exist(&listed)
    }

    /// Lists the Kymas in pages.
    async fn list(&self, api: &Api<Kyma>) -> Result<Kymas, Error> {
        const LIST_PAGE_SIZE: u32 = 500;
        let mut parameters = ListParams { label_selector: self.selector.clone(), ..ListParams::default() }
            .limit(LIST_PAGE_SIZE);
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

    /// Checks that all named Kymas exist.
    ///
    /// # Errors
    /// If a named Kyma does not exist.
    fn ensure_all_exist(&self, kymas: &Kymas) -> Result<(), Error> {
        let absent = self.absent(kymas);
        if absent.is_empty() {
            return Ok(());
        }
        let place = if self.all_namespaces {
            "any namespace".to_owned()
        } else {
            format!("namespace {}; --namespace names another one", self.hub.namespace())
        };
        let labels = self.selector.iter().map(|selector| format!(" with labels {selector}"));
        let labels: String = labels.collect();
        Err(Error::input(absent.join(", "), format!("there is no such Kyma{labels} in {place}")))
    }

    /// Returns the named Kymas that do not exist.
    fn absent(&self, kymas: &Kymas) -> Vec<String> {
        let exists = |name: &String| kymas.keys().any(|(_, known)| known == name);
        self.kymas.iter().filter(|name| !exists(name)).cloned().collect()
    }

    /// Returns the missing Kymas and the modules that are not Ready; empty once everything is Ready.
    fn open(&self, kymas: &Kymas) -> Vec<String> {
        let absent = self.absent(kymas).into_iter().map(|name| format!("{name}: it does not exist"));
        let mut open: Vec<String> = absent.chain(list_unready_modules(kymas.values())).collect();
        if kymas.is_empty() && open.is_empty() {
            open.push("there is no Kyma".to_owned());
        }
        open
    }

    /// Follows the Kymas until all are Ready or the timeout passes. Writes changes to standard error.
    async fn await_ready(&self, api: &Api<Kyma>, listed: Kymas) -> Result<Kymas, Error> {
        let config = watcher::Config { label_selector: self.selector.clone(), ..watcher::Config::default() };
        let events = watcher(api.clone(), config).default_backoff().into_stream().boxed();
        Ok(self.follow(events, listed, Instant::now() + self.timeout).await)
    }

    /// Applies events until all Kymas are Ready. During a relist the previous Kymas count until the list is complete.
    async fn follow<E>(
        &self,
        mut events: impl Stream<Item = Result<watcher::Event<Kyma>, E>> + Unpin,
        listed: Kymas,
        deadline: Instant,
    ) -> Kymas {
        let mut kymas = listed;
        let mut relisted = Kymas::new();
        let mut shown = rows(kymas.values());
        for row in shown.iter().filter(|row| !row.is_settled()) {
            output::remark(&row.line());
        }
        while !self.open(&kymas).is_empty() {
            let Ok(Ok(event)) = timeout_at(deadline, events.try_next()).await else {
                if Instant::now() >= deadline {
                    break;
                }
                continue;
            };
            match event {
                Some(watcher::Event::Init) => relisted.clear(),
                Some(watcher::Event::InitApply(kyma)) if self.wants(&kyma) => relisted.extend([keyed(kyma)]),
                Some(watcher::Event::InitDone) => kymas = std::mem::take(&mut relisted),
                Some(watcher::Event::Apply(kyma)) if self.wants(&kyma) => kymas.extend([keyed(kyma)]),
                Some(watcher::Event::Delete(kyma)) => drop(kymas.remove(&keyed(kyma).0)),
                Some(_) => {}
                None => break,
            }
            let now = rows(kymas.values());
            for row in now.iter().filter(|row| !shown.contains(row)) {
                output::remark(&row.line());
            }
            shown = now;
        }
        kymas
    }

    fn wants(&self, kyma: &Kyma) -> bool {
        self.kymas.is_empty() || self.kymas.contains(&kyma.name_any())
    }

    fn print(&self, kymas: &Kymas) -> Result<(), Error> {
        let rows = rows(kymas.values());
        let format = self.hub.format();
        if rows.is_empty() && self.kymas.is_empty() {
            let place = if self.all_namespaces { "any" } else { self.hub.namespace() };
            output::remark(&format!("No Kymas found in {place} namespace."));
        }
        let table = || table::render(&rows, self.all_namespaces, format == Format::Wide);
        let names = || kymas.values().map(output::resource_name).collect();
        output::result(&format.text(&rows, table, names)?)
    }
}

/// Kymas by namespace and name.
type Kymas = BTreeMap<(String, String), Kyma>;

fn keyed(kyma: Kyma) -> ((String, String), Kyma) {
    ((kyma.namespace().unwrap_or_default(), kyma.name_any()), kyma)
}

#[cfg(test)]
mod tests;
