//! Flags that every command takes, with completion of their values in shells, and the client for the hub.
//!
//! A completion reads the flags of the unfinished command line. It shows no errors: if the hub does not answer within
//! [`COMPLETION_TIMEOUT`], there are no candidates.

use std::{
    ffi::{OsStr, OsString},
    fmt::Debug,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{
    Args, FromArgMatches as _,
    builder::{OsStringValueParser, TypedValueParser},
};
use clap_complete::{ArgValueCompleter, CompletionCandidate};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Config, Resource, api::ListParams};
use kyma_controller::{client_config, set_user_agent};
use serde::de::DeserializeOwned;

use crate::{error::Error, hub_address::note_address, output::Format};

/// Field manager of all writes of kymactl.
pub(crate) const MANAGER: &str = "kymactl";

/// Default namespace of the operators.
const DEFAULT_NAMESPACE: &str = "kcp-system";

/// User agent, for audit logs.
pub(crate) const USER_AGENT: &str = concat!("kymactl/", env!("CARGO_PKG_VERSION"));

/// Deadline for the hub's answer to a completion.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of candidates of a completion.
const MAX_CANDIDATES: u32 = 500;

/// Returns a parser of paths that takes an empty one too.
fn any_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Flags that every command takes, before or after its name. The last field of a command's flags: the heading would
/// also hold for flags after it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalFlags {
    /// Kubeconfig of the hub. Default: $KUBECONFIG, ~/.kube/config, ServiceAccount
    #[arg(long, global = true, value_name = "FILE", value_parser = any_path())]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: the current one
    #[arg(long, global = true, value_name = "NAME", add = contexts())]
    pub(crate) context: Option<String>,
    /// Namespace of the Kymas and components. Default: that of --hub-namespace
    #[arg(short, long, global = true, value_name = "NAME", add = namespaces())]
    pub(crate) namespace: Option<String>,
    /// Namespace on the hub that the operators serve
    #[arg(long, global = true, env, value_name = "NAME", default_value = DEFAULT_NAMESPACE)]
    pub(crate) hub_namespace: String,
    /// Output format
    #[arg(short, long, global = true, value_enum)]
    pub(crate) output: Option<Format>,
}

impl Default for GlobalFlags {
    fn default() -> Self {
        let hub_namespace = DEFAULT_NAMESPACE.to_owned();
        Self { kubeconfig: None, context: None, namespace: None, hub_namespace, output: None }
    }
}

impl GlobalFlags {
    /// Returns the namespace of the command.
    pub(crate) fn namespace(&self) -> &str {
        self.given_namespace().unwrap_or(self.hub_namespace())
    }

    /// Returns the namespace that the operators serve.
    pub(crate) fn hub_namespace(&self) -> &str {
        if self.hub_namespace.is_empty() { DEFAULT_NAMESPACE } else { &self.hub_namespace }
    }

    /// Returns the value of `--namespace`. As in kubectl, an empty value of a flag counts as absent.
    pub(crate) fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns the value of `--kubeconfig`.
    pub(crate) fn given_kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref().filter(|file| !file.as_os_str().is_empty())
    }

    /// Returns the value of `--context`.
    pub(crate) fn given_context(&self) -> Option<&str> {
        self.context.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns the output format.
    pub(crate) fn format(&self) -> Format {
        self.output.unwrap_or(Format::Table)
    }

    /// Returns the configuration of the hub's client.
    pub(crate) async fn config(&self) -> Result<Config, Error> {
        let mut config = client_config(self.given_kubeconfig(), self.given_context()).await?;
        set_user_agent(&mut config, USER_AGENT)?;
        note_address(&config);
        Ok(config)
    }

    /// Creates a client for the hub.
    pub(crate) async fn client(&self) -> Result<Client, Error> {
        Ok(kyma_targets::client_from(self.config().await?)?)
    }
}

/// Completes names of namespaces.
pub(crate) fn namespaces() -> ArgValueCompleter {
    let list = |flags: GlobalFlags| async move {
        list_names::<Namespace>(&Api::all(flags.client().await.ok()?)).await
    };
    ArgValueCompleter::new(move |current: &OsStr| complete(current, list))
}

/// Completes names of the kubeconfig's contexts.
pub(crate) fn contexts() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let flags = flags(std::env::args_os());
        let kubeconfig = flags.given_kubeconfig().map_or_else(kyma_controller::kubeconfig, |file| {
            kyma_controller::read_kubeconfig(file).map(Some)
        });
        let contexts = kubeconfig.ok().flatten().map(|kubeconfig| kubeconfig.contexts).unwrap_or_default();
        starting_with(current, contexts.into_iter().map(|context| context.name))
    })
}

/// Returns the candidates for `current` among the names from `list`.
pub(crate) fn complete<F>(current: &OsStr, list: impl FnOnce(GlobalFlags) -> F) -> Vec<CompletionCandidate>
where
    F: Future<Output = Option<Vec<String>>>,
{
    let flags = flags(std::env::args_os());
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let listed = runtime.block_on(async { tokio::time::timeout(COMPLETION_TIMEOUT, list(flags)).await });
    starting_with(current, listed.ok().flatten().unwrap_or_default().into_iter())
}

fn starting_with(current: &OsStr, names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    names.filter(|name| name.starts_with(typed.as_ref())).map(CompletionCandidate::new).collect()
}

/// Lists the names of objects; `None` if the hub does not answer.
pub(crate) async fn list_names<K>(api: &Api<K>) -> Option<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let found = api.list_metadata(&ListParams::default().limit(MAX_CANDIDATES)).await.ok()?;
    Some(found.items.iter().map(kube::ResourceExt::name_any).collect())
}

/// Parses the global flags of an incomplete command line and skips other words.
fn flags(words: impl Iterator<Item = OsString>) -> GlobalFlags {
    let command = clap::Command::new("kymactl").args_override_self(true).ignore_errors(true);
    let command = GlobalFlags::augment_args(command);
    let known: Vec<clap::Arg> = command.get_arguments().cloned().collect();
    let takes_value = |word: &str| {
        known.iter().any(|arg| {
            let long = arg.get_long().map(|long| format!("--{long}"));
            let short = arg.get_short().map(|short| format!("-{short}"));
            long.as_deref() == Some(word) || short.as_deref() == Some(word)
        })
    };
    let is_joined = |word: &str| word.split_once('=').is_some_and(|(flag, _)| takes_value(flag));
    // The completion script puts `--` before the command line, which begins with the program's name.
    let mut words =
        words.skip_while(|word| word != "--").skip(2).map(|word| word.to_string_lossy().into_owned());
    let mut kept = vec!["kymactl".to_owned()];
    while let Some(word) = words.next() {
        if is_joined(&word) {
            kept.push(word);
        } else if takes_value(&word)
            && let Some(value) = words.next().filter(|value| !value.is_empty())
        {
            kept.extend([word, value]);
        }
    }
    let parsed = command.clone().try_get_matches_from(kept).ok();
    let flags = parsed.and_then(|matches| GlobalFlags::from_arg_matches(&matches).ok());
    flags.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> GlobalFlags {
        flags(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn name_completion_uses_namespace_and_context_of_the_line() {
        let found = of("kymactl -- kymactl explain -n team --context=prod --selector a --kubeconfig k bl");
        assert_eq!(found.namespace(), "team");
        assert_eq!(found.context.as_deref(), Some("prod"));
        assert_eq!(found.kubeconfig.as_deref(), Some(std::path::Path::new("k")));
        assert_eq!(of("kymactl -- kymactl --hub-namespace hub status").namespace(), "hub");
        assert_eq!(of("kymactl -- kymactl explain -n").namespace(), "kcp-system");
        assert_eq!(of("kymactl -- kymactl -n one explain -n two").namespace(), "two");
        assert_eq!(of("kymactl").namespace(), "kcp-system");
    }

    #[test]
    fn only_names_that_begin_with_what_was_typed_are_candidates() {
        let names = ["blue", "black", "green"].map(str::to_owned);
        let found = starting_with(OsStr::new("bl"), names.into_iter());
        let values: Vec<_> = found.iter().map(CompletionCandidate::get_value).collect();
        assert_eq!(values, ["blue", "black"]);
    }
}
