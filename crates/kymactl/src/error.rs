//! Errors of commands and their exit codes.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use kube::runtime::wait;
use kyma_artifacts::ArtifactError;
use kyma_controller::{describe_cause, describe_watch_cause};

use crate::hub_address::at_address;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A value in flags or files is invalid.
    #[error("{what}: {problem}")]
    Input {
        /// Flag, field or file.
        what: String,
        /// The problem and the expected value.
        problem: String,
    },
    /// There is no usable kubeconfig and no ServiceAccount of a Pod.
    #[error("{0}")]
    NoAccess(kyma_controller::HubError),
    /// A call to the cluster's API failed.
    #[error("the cluster{}: {}", at_address(), describe_cause(.0))]
    Cluster(#[from] kube::Error),
    /// A watch of the cluster failed.
    #[error("the cluster{}: {}", at_address(), describe_watch(.0))]
    Watch(#[from] wait::Error),
    /// The cluster accepted the CRDs but does not serve them.
    #[error("the cluster does not serve the CRDs within {waited}: check its apiserver")]
    CrdsLate {
        /// The timeout.
        waited: String,
    },
    /// A CRD that an apply would downgrade.
    #[error(
        "CRD {name} is of version {version}, newer than this program, and lacks fields that it needs: use kymactl {version}"
    )]
    NewerCrd {
        /// Name of the CRD.
        name: String,
        /// The version that wrote it.
        version: String,
    },
    /// Not everything became Ready in time.
    #[error("not Ready within {waited}: {open}")]
    NotReady {
        /// The timeout.
        waited: String,
        /// The objects that are not Ready.
        open: String,
    },
    /// Not everything was removed in time.
    #[error("not removed within {waited}: {left}; run the same command again")]
    NotRemoved {
        /// The timeout.
        waited: String,
        /// The remaining objects.
        left: String,
    },
    /// The connection to a target failed, or its identity forbids the command.
    #[error("{}: {}", .0.reason, .0.message)]
    Target(Box<kyma_controller::Failure>),
    /// Some clusters were not adopted; each was reported.
    #[error("{count} clusters were not adopted: see their reasons above")]
    NotAdopted {
        /// Number of clusters.
        count: usize,
    },
    /// Some Kymas were not handed over or given back; each was reported.
    #[error("{count} Kymas were not moved: see their reasons above, and run the same command again")]
    NotMoved {
        /// Number of Kymas.
        count: usize,
    },
    /// Another writer changed an object between the read and the write.
    #[error("{name} changed in the meantime, nothing was written: run the command again")]
    Changed {
        /// The object.
        name: String,
    },
    /// A component is not Ready after a reconcile.
    #[error("{name} is not Ready: {why}")]
    Unready {
        /// The component.
        name: String,
        /// State, reason and message.
        why: String,
    },
    /// A test of a chart failed; its name was reported.
    #[error("a test of {name} failed: see above")]
    TestFailed {
        /// The component.
        name: String,
    },
    /// Some HelmReleases stay with Flux; the reasons were reported.
    #[error("these HelmReleases were not migrated, see their reasons above: {names}")]
    NotMigrated {
        /// Names of the HelmReleases.
        names: String,
    },
    /// Flags of the operators.
    #[error(transparent)]
    Settings(#[from] kyma_controller::SettingsError),
    /// The operators' shared state could not be created.
    #[error(transparent)]
    Start(#[from] kyma_controller::StartError),
    /// An operator ended with an error.
    #[error("{name}: {problem}")]
    Operator {
        /// Name of the operator.
        name: &'static str,
        /// The cause.
        problem: String,
    },
    /// The program of a component exited before the command was done.
    #[error("component program {program} exited early ({status}); its log ends with:\n{lines}")]
    ComponentEnded {
        /// Name of the program's operator.
        program: String,
        /// The exit status.
        status: String,
        /// The last lines of its log.
        lines: String,
    },
    /// A signal came first.
    #[error("stopped before all steps were done: run the same command again")]
    Stopped,
    /// A call to a registry or another source failed.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The changes are unknown or incomplete.
    #[error("{0}")]
    NoDiff(Box<Error>),
    /// Standard output is closed or full.
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
}

impl Error {
    pub(crate) fn input(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Input { what: what.into(), problem: problem.into() }
    }

    /// Returns the error for a HelmComponent that does not exist.
    pub(crate) fn no_component(name: &str, namespace: &str) -> Self {
        Self::no_object("HelmComponent", name, namespace)
    }

    /// Returns the error for a Kyma that does not exist.
    pub(crate) fn no_kyma(name: &str, namespace: &str) -> Self {
        Self::no_object("Kyma", name, namespace)
    }

    fn no_object(kind: &str, name: &str, namespace: &str) -> Self {
        let problem =
            format!("there is no such {kind} in namespace {namespace}; --namespace names another one");
        Self::input(name, problem)
    }

    /// Returns the error for a component program that exited before the command was done.
    pub(crate) fn component_ended(program: &str, status: String, log: &[String]) -> Self {
        let lines = if log.is_empty() { "(it is empty)".to_owned() } else { log.join("\n") };
        Self::ComponentEnded { program: program.to_owned(), status, lines }
    }

    /// Returns the error after a timeout; `open` names the objects that are not Ready.
    pub(crate) fn not_ready(waited: Duration, open: &[String]) -> Self {
        let open = if open.is_empty() { "there is no Kyma".to_owned() } else { open.join("; ") };
        Self::NotReady { waited: format!("{waited:?}"), open }
    }

    /// Reports whether another writer changed the object between read and write. The API server answers a failed test
    /// of a JSON patch with Invalid.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            Self::Cluster(kube::Error::Api(status)) => matches!(status.code, 409 | 422),
            Self::Target(failure) => failure.reason == kyma_api::Reason::ApplyConflict,
            _ => false,
        }
    }

    /// Returns 3 for objects that are not Ready or not removed in time; 2 for wrong input, as for a wrong flag,
    /// and for every failure of `diff`, where 1 means a difference; 1 for everything else.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::NotReady { .. } | Self::NotRemoved { .. } => ExitCode::from(3),
            Self::Read { .. }
            | Self::Input { .. }
            | Self::NoAccess(_)
            | Self::NoDiff(_)
            | Self::Settings(_) => ExitCode::from(2),
            Self::Artifact(_)
            | Self::Output(_)
            | Self::Cluster(_)
            | Self::Watch(_)
            | Self::CrdsLate { .. }
            | Self::NewerCrd { .. }
            | Self::Start(_)
            | Self::Operator { .. }
            | Self::ComponentEnded { .. }
            | Self::Target(_)
            | Self::NotAdopted { .. }
            | Self::NotMoved { .. }
            | Self::TestFailed { .. }
            | Self::Unready { .. }
            | Self::Changed { .. }
            | Self::NotMigrated { .. }
            | Self::Stopped => ExitCode::FAILURE,
        }
    }
}

/// Describes the failure of a watch.
fn describe_watch(error: &wait::Error) -> String {
    let wait::Error::ProbeFailed(error) = error;
    describe_watch_cause(error)
}

impl From<kyma_controller::Failure> for Error {
    fn from(failure: kyma_controller::Failure) -> Self {
        Self::Target(Box::new(failure))
    }
}

impl From<kyma_controller::TelemetryError> for Error {
    fn from(error: kyma_controller::TelemetryError) -> Self {
        Self::Start(error.into())
    }
}

impl From<kyma_controller::AdminError> for Error {
    fn from(error: kyma_controller::AdminError) -> Self {
        Self::Start(error.into())
    }
}

impl From<kyma_controller::HubError> for Error {
    fn from(error: kyma_controller::HubError) -> Self {
        use kyma_controller::HubError;
        match error {
            HubError::Kubeconfig(_)
            | HubError::NoAccess { .. }
            | HubError::NoKubeconfig { .. }
            | HubError::Proxy { .. } => Self::NoAccess(error),
            error => Self::Start(error.into()),
        }
    }
}

impl From<kyma_controller::MetricsError> for Error {
    fn from(error: kyma_controller::MetricsError) -> Self {
        Self::Start(error.into())
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher;

    use super::*;

    #[test]
    fn a_failed_watch_is_described_by_its_cause() {
        let gone = kube::core::Status::failure("too old resource version", "Expired").with_code(410);
        let text = Error::Watch(wait::Error::ProbeFailed(watcher::Error::WatchError(gone.boxed())));
        let text = text.to_string();
        assert!(text.ends_with(": too old resource version") && !text.contains("probe"), "{text}");
    }

    #[test]
    fn an_unknown_name_has_a_hint_about_the_namespace_flag() {
        let hint = "in namespace kcp-system; --namespace names another one";
        let kyma = Error::no_kyma("blue", "kcp-system").to_string();
        assert_eq!(kyma, format!("blue: there is no such Kyma {hint}"));
        let component = Error::no_component("shop", "kcp-system").to_string();
        assert_eq!(component, format!("shop: there is no such HelmComponent {hint}"));
    }
}
