//! Operators of other teams, built with the sdk, for components of their own kinds: `--component`.

mod child;
mod kubeconfig;
mod program;

use std::ffi::OsString;

use kyma_api::{labels, names::label_selector};
use kyma_controller::Settings;

pub(super) use kubeconfig::ProgramKubeconfig;
pub(super) use program::ComponentProgram;

/// Returns the arguments with which a program works on the same cluster and Kyma as the operators of this process.
pub(super) fn arguments(settings: &Settings, kubeconfig: &ProgramKubeconfig) -> Vec<OsString> {
    let of_kyma = settings.only_kyma.iter().map(|name| label_selector(labels::KYMA_NAME, name));
    let selector: Vec<String> = settings.selector.iter().cloned().chain(of_kyma).collect();
    let flags = [
        ("--hub-namespace", settings.hub_namespace.clone()),
        ("--target-namespace", settings.target_namespace.clone()),
        ("--mode", "single-cluster".to_owned()),
        ("--selector", selector.join(",")),
        ("--concurrency", settings.concurrency.to_string()),
        ("--resync", format!("{}ms", settings.resync.as_millis())),
        ("--reconcile-deadline", format!("{}ms", settings.reconcile_deadline.as_millis())),
        ("--brake-targets", settings.brake.targets.to_string()),
        ("--brake-percent", settings.brake.percent.to_string()),
        ("--admin-address", String::new()),
        ("--log-format", "text".to_owned()),
        ("--log-level", settings.log_level.clone()),
    ];
    let mut arguments: Vec<OsString> = vec!["run".into()];
    arguments
        .extend(flags.into_iter().flat_map(|(flag, value)| [OsString::from(flag), OsString::from(value)]));
    if let Some(file) = kubeconfig.file() {
        arguments.extend([OsString::from("--kubeconfig"), file.as_os_str().to_owned()]);
    }
    arguments
}

#[cfg(test)]
mod tests;
