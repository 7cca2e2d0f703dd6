//! `kymactl values`.

use clap::Args;
use kube::Api;
use kyma_api::HelmComponent;
use kyma_helm::values::Origin;
use serde_json::Value;

use crate::{error::Error, hub::GlobalFlags, output};

/// Placeholder for a hidden value.
const HIDDEN: &str = "(hidden)";

/// Flags of `kymactl values`.
#[derive(Args)]
pub(crate) struct Values {
    /// The HelmComponent
    #[arg(value_parser = crate::name::component, add = crate::command::complete::components())]
    component: String,
    /// Show values that come from Secrets
    #[arg(long)]
    show_secrets: bool,
    #[command(flatten)]
    hub: GlobalFlags,
}

impl Values {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let hub = self.hub.client().await?;
        let namespace = self.hub.namespace();
        let components: Api<HelmComponent> = Api::namespaced(hub.clone(), namespace);
        let missing = || Error::no_component(&self.component, namespace);
        let component = components.get_opt(&self.component).await?.ok_or_else(missing)?;
        let found = helm_component::origins(&hub, &component).await?;
        let found: Vec<Origin> = found.into_iter().map(|one| self.shown(one)).collect();
        let names = || found.iter().map(|one| one.path.clone()).collect();
        output::result(&self.hub.format().text(&found, || table(&found), names)?)
    }

    fn shown(&self, one: Origin) -> Origin {
        let hides = one.is_secret && !self.show_secrets;
        Origin { value: if hides { Value::from(HIDDEN) } else { one.value }, ..one }
    }
}

/// Formats key path, value, source, and the sources that it overrides.
fn table(found: &[Origin]) -> String {
    let line = |one: &Origin| {
        let value = match &one.value {
            Value::String(text) => output::one_line(text),
            other => other.to_string(),
        };
        [one.path.clone(), value, one.from.clone(), one.replaced.join(", ")]
    };
    let heads = ["KEY", "VALUE", "FROM", "INSTEAD OF"].map(str::to_owned);
    let lines: Vec<[String; 4]> = [heads].into_iter().chain(found.iter().map(line)).collect();
    output::columns(&lines)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_key_value_and_origin() {
        let one = |path: &str, value: Value, from: &str, replaced: &[&str]| Origin {
            path: path.to_owned(),
            value,
            from: from.to_owned(),
            is_secret: false,
            replaced: replaced.iter().map(|one| (*one).to_owned()).collect(),
        };
        let found = [
            one("a.b", json!({"c": [1]}), "module", &[]),
            one("text", json!("two\nlines"), "override", &["module", "user"]),
        ];
        let expected = "\
KEY   VALUE      FROM      INSTEAD OF
a.b   {\"c\":[1]}  module
text  two lines  override  module, user
";
        assert_eq!(table(&found), expected);
    }
}
