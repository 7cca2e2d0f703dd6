//! `kymactl explain`.

use std::fmt::Write as _;

use clap::Args;
use kube::{Api, Client, api::ListParams};
use kyma_api::Kyma;
use kyma_controller::HubResource;
use kyma_operator::explain::{Explanation, Sources, explain};

use crate::{components, error::Error, hub::GlobalFlags, output};

/// Flags of `kymactl explain`.
#[derive(Args)]
pub(crate) struct Explain {
    /// The Kyma
    #[arg(value_parser = crate::name::kyma, add = crate::command::complete::kymas())]
    kyma: String,
    /// The module. Default: all
    #[arg(add = crate::command::complete::modules())]
    module: Option<String>,
    #[command(flatten)]
    hub: GlobalFlags,
}

impl Explain {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let hub = Hub { client: self.hub.client().await?, namespace: self.hub.namespace() };
        let kyma = hub.api::<Kyma>().get_opt(&self.kyma).await?;
        let missing = || Error::no_kyma(&self.kyma, hub.namespace);
        let mut found = explain(&hub.sources(kyma.ok_or_else(missing)?).await?);
        if let Some(module) = &self.module {
            found.retain(|one| one.module == *module);
            if found.is_empty() {
                return Err(Error::input(module, format!("Kyma {} has no such module", self.kyma)));
            }
        }
        let paragraphs = || found.iter().map(paragraph).collect::<Vec<_>>().join("\n");
        let names = || found.iter().map(|one| one.module.clone()).collect();
        output::result(&self.hub.format().text(&found, paragraphs, names)?)
    }
}

struct Hub<'a> {
    client: Client,
    namespace: &'a str,
}

impl Hub<'_> {
    fn api<K: HubResource>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    async fn all<K: HubResource>(&self) -> Result<Vec<K>, Error> {
        Ok(self.api::<K>().list(&ListParams::default()).await?.items)
    }

    async fn sources(&self, kyma: Kyma) -> Result<Sources, Error> {
        Ok(Sources {
            templates: self.all().await?,
            releases: self.all().await?,
            configs: self.all().await?,
            components: components::of(&self.client, self.namespace, &kyma).await?,
            kyma,
        })
    }
}

/// Formats the explanation of one module.
fn paragraph(one: &Explanation) -> String {
    let version = one.version.as_deref().unwrap_or("-");
    let since = one.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
    let mut text = format!("{} {version} {}{since}\n", one.module, one.state);
    let rule = one.reason.iter().chain(one.rule.map(str::to_owned).as_ref()).cloned().collect::<Vec<_>>();
    if !rule.is_empty() {
        _ = writeln!(text, "  {}", rule.join(": "));
    }
    if let Some(message) = &one.message {
        _ = writeln!(text, "  {}", output::one_line(message));
    }
    let width = one.inputs.iter().map(|input| input.about.chars().count()).max().unwrap_or(0);
    for input in &one.inputs {
        _ = writeln!(text, "    {:width$}  {}", input.about, input.says);
    }
    text
}

#[cfg(test)]
mod tests {
    use kyma_operator::explain::Input;

    use super::*;

    #[test]
    fn a_module_is_a_paragraph_of_lines_that_nothing_breaks() {
        let input = |about: &str, says: &str| Input { about: about.to_owned(), says: says.to_owned() };
        let one = Explanation {
            module: "keda".to_owned(),
            version: Some("1.1.0".to_owned()),
            state: "Warning",
            reason: Some("Paused".to_owned()),
            rule: Some("Somebody said so."),
            since: Some("2026-06-01T00:00:00Z".to_owned()),
            message: Some("one\ntwo".to_owned()),
            inputs: vec![input("choice", "channel fast"), input("component", "none")],
        };
        let expected = "\
keda 1.1.0 Warning since 2026-06-01T00:00:00Z
  Paused: Somebody said so.
  one two
    choice     channel fast
    component  none
";
        assert_eq!(paragraph(&one), expected);
    }
}
