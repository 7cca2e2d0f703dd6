//! The program of a component's operator: its name and the kinds that it reconciles.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Crd;
use kyma_api::{COMPONENT_GROUP, OPERATOR_GROUP};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
    time::timeout,
};

use crate::{error::Error, output::one_line};

/// Longest time for a program to print its CRDs or its version.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that are read of what a program prints.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// The program of an operator that reconciles components of its own kinds.
#[derive(Clone, Debug)]
pub(in crate::command::run) struct ComponentProgram {
    /// Path, or a name that is searched in `PATH`.
    pub(super) path: PathBuf,
    /// Name of the operator, which its records on the hub contain.
    pub(super) name: String,
    crds: Vec<Crd>,
}

impl ComponentProgram {
    /// Asks each program for its name and CRDs.
    ///
    /// # Errors
    /// If a program is no such operator, or two operators would reconcile the same kind.
    pub(in crate::command::run) async fn read_all(paths: &[PathBuf]) -> Result<Vec<Self>, Error> {
        let mut programs: Vec<Self> = Vec::new();
        for path in paths {
            let program = Self::read(path).await?;
            for crd in &program.crds {
                let (group, kind) = (crd.spec.group.as_str(), crd.spec.names.kind.as_str());
                if [OPERATOR_GROUP, COMPONENT_GROUP].contains(&group) {
                    return Err(invalid(path, format!("kymactl itself reconciles {kind} of {group}")));
                }
                if let Some(other) = programs.iter().find(|other| other.reconciles(group, kind)) {
                    let other = other.path.display();
                    return Err(invalid(path, format!("{other} reconciles {kind} of {group} as well")));
                }
            }
            programs.push(program);
        }
        Ok(programs)
    }

    async fn read(path: &Path) -> Result<Self, Error> {
        let no_crd = || invalid(path, "its command `crd` prints no CRD; it must be built with kyma-sdk");
        let documents: Vec<Value> =
            serde_saphyr::from_slice_multiple(ask(path, "crd").await?.as_bytes()).map_err(|_| no_crd())?;
        let documents = documents.into_iter().filter(|document| !document.is_null());
        let crds: Vec<Crd> =
            documents.map(serde_json::from_value::<Crd>).collect::<Result<_, _>>().map_err(|_| no_crd())?;
        if crds.is_empty() {
            return Err(no_crd());
        }
        let version = ask(path, "version").await?;
        let Some(name) = version.split_whitespace().next() else {
            return Err(invalid(
                path,
                "its command `version` prints no name; it must be built with kyma-sdk",
            ));
        };
        Ok(Self { path: path.to_owned(), name: name.to_owned(), crds })
    }

    /// Returns the name of the operator.
    pub(in crate::command::run) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the CRDs of the kinds that the program reconciles.
    pub(in crate::command::run) fn crds(&self) -> &[Crd] {
        &self.crds
    }

    /// Reports whether the program reconciles this kind.
    pub(in crate::command::run) fn reconciles(&self, group: &str, kind: &str) -> bool {
        self.crds.iter().any(|crd| crd.spec.group == group && crd.spec.names.kind == kind)
    }
}

/// Runs a command of the program and returns what it prints.
async fn ask(path: &Path, command: &str) -> Result<String, Error> {
    let mut program = Command::new(path);
    program.arg(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.kill_on_drop(true).spawn().map_err(|error| unstartable(path, &error))?;
    let (answer, log) = (child.stdout.take(), child.stderr.take());
    let output = async {
        let (answer, log) = tokio::try_join!(read_answer(answer), read_answer(log))?;
        std::io::Result::Ok((child.wait().await?, answer, log))
    };
    let Ok(output) = timeout(ANSWER_TIMEOUT, output).await else {
        let waited = ANSWER_TIMEOUT.as_secs();
        return Err(invalid(path, format!("its command `{command}` does not end within {waited}s")));
    };
    let (status, answer, log) = output.map_err(|error| unstartable(path, &error))?;
    if !status.success() {
        let log = String::from_utf8_lossy(&log);
        let cause = one_line(log.lines().next().unwrap_or_default());
        return Err(invalid(path, format!("its command `{command}` fails: {status}: {cause}")));
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Reads a stream up to [`MAX_ANSWER_BYTES`]. A program that prints more ends by SIGPIPE.
async fn read_answer(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

pub(super) fn unstartable(path: &Path, error: &std::io::Error) -> Error {
    invalid(path, format!("it cannot be started: {error}; name a path, or a program in PATH"))
}

fn invalid(path: &Path, problem: impl Into<String>) -> Error {
    Error::input(format!("--component {}", path.display()), problem)
}
