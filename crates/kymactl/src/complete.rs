//! Completes names of objects on the hub in shells.
//!
//! Errors are not shown: if the hub does not answer within [`DEADLINE`], there are no candidates.

use std::{ffi::OsStr, ffi::OsString, fmt::Debug, time::Duration};

use clap::{Args as _, FromArgMatches as _};
use clap_complete::{ArgValueCompleter, CompletionCandidate};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kube::{Api, Client, Resource, api::ListParams};
use kyma_api::{HelmComponent, Kyma, ModuleReleaseMeta};
use serde::de::DeserializeOwned;

use crate::hub::GlobalFlags;

/// Deadline for the hub's answer.
const DEADLINE: Duration = Duration::from_secs(3);
/// Maximum number of candidates.
const MAX_NAMES: u32 = 500;

/// Completes names of Kymas.
pub(crate) fn kymas() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete(current, in_namespace::<Kyma>))
}

/// Completes names of HelmComponents.
pub(crate) fn components() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete(current, in_namespace::<HelmComponent>))
}

/// Completes names of modules.
pub(crate) fn modules() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| complete(current, in_namespace::<ModuleReleaseMeta>))
}

/// Completes names of namespaces.
pub(crate) fn namespaces() -> ArgValueCompleter {
    let list =
        |flags: GlobalFlags| async move { list::<Namespace>(&Api::all(flags.client().await.ok()?)).await };
    ArgValueCompleter::new(move |current: &OsStr| complete(current, list))
}

/// Completes names of the kubeconfig's contexts.
pub(crate) fn contexts() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let flags = flags(std::env::args_os());
        let kubeconfig = flags
            .given_kubeconfig()
            .map_or_else(kyma_sdk::kubeconfig, |file| kyma_sdk::read_kubeconfig(file).map(Some));
        let contexts = kubeconfig.ok().flatten().map(|kubeconfig| kubeconfig.contexts).unwrap_or_default();
        starting_with(current, contexts.into_iter().map(|context| context.name))
    })
}

/// Returns the candidates for `current` among the names from `list`.
fn complete<F>(current: &OsStr, list: impl FnOnce(GlobalFlags) -> F) -> Vec<CompletionCandidate>
where
    F: Future<Output = Option<Vec<String>>>,
{
    let flags = flags(std::env::args_os());
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let listed = runtime.block_on(async { tokio::time::timeout(DEADLINE, list(flags)).await });
    starting_with(current, listed.ok().flatten().unwrap_or_default().into_iter())
}

fn starting_with(current: &OsStr, names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    names.filter(|name| name.starts_with(typed.as_ref())).map(CompletionCandidate::new).collect()
}

async fn in_namespace<K>(flags: GlobalFlags) -> Option<Vec<String>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let client: Client = flags.client().await.ok()?;
    list(&Api::<K>::namespaced(client, flags.namespace())).await
}

async fn list<K>(api: &Api<K>) -> Option<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let found = api.list_metadata(&ListParams::default().limit(MAX_NAMES)).await.ok()?;
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
    fn names_come_from_the_namespace_and_context_of_the_unfinished_line() {
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
