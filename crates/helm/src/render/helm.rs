//! The `helm` program as renderer.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kyma_artifacts::archive::run_unpacking;
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tokio::sync::Semaphore;

use super::error::RenderError;
use super::renderer::{Reads, RenderLimits, RenderOutput, Renderer};
use super::request::RenderRequest;
use super::{message, process};
use crate::chart::{REVISION, TARGET_VERSIONS_BEGIN, TemplateText};

/// Why there is no usable `helm` program.
#[derive(Debug, Error)]
pub enum HelmProgramError {
    /// No flag names it, and it is not on `PATH`.
    #[error("no `helm` program (4.x): name it with --helm or put it on PATH")]
    Missing,
    /// A flag names it, and it is no file.
    #[error("--helm names {0}, which is not a file")]
    NotAFile(PathBuf),
    /// The program is not Helm 4, or does not run.
    #[error("{} is not Helm 4: its version is {found:?}", .path.display())]
    Version {
        /// The program.
        path: PathBuf,
        /// Output of the program.
        found: String,
    },
    /// The program has another digest than the expected one.
    #[error("{} has digest sha256:{found}, and --helm-sha256 expects {expected}", .path.display())]
    Digest {
        /// The program.
        path: PathBuf,
        /// The digest expected.
        expected: String,
        /// The digest of the file.
        found: String,
    },
    /// The program cannot be read.
    #[error("{}: {source}", .path.display())]
    Unreadable {
        /// The program.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
}

/// Maximum length of a version in messages, in characters.
const MAX_VERSION_LENGTH: usize = 64;

/// Identifies a file by its inode, size and times. It changes when the file is replaced or written.
#[derive(Debug, PartialEq, Eq)]
struct FileIdentity([i64; 6]);

impl FileIdentity {
    fn of(path: &Path) -> std::io::Result<Self> {
        let found = std::fs::metadata(path)?;
        let numbers = [found.dev(), found.ino(), found.size()].map(u64::cast_signed);
        let [device, inode, size] = numbers;
        Ok(Self([device, inode, size, found.mtime(), found.mtime_nsec(), found.ctime()]))
    }
}

/// Runs `helm template` in a sandbox: empty environment, private home and working directory, bounds on time,
/// memory, processor time and output, values by pipe, no kubeconfig, no plugins, no network reads.
///
/// `.Capabilities.APIVersions` has the API versions of the request and no others, unless the chart prints
/// `.Capabilities.KubeVersion` as a whole; `.Release.Revision`, `.IsInstall` and `.IsUpgrade` follow the request's
/// revision; `lookup` finds nothing.
pub struct HelmProgram {
    program: PathBuf,
    identity: Option<FileIdentity>,
    limits: RenderLimits,
    slots: Arc<Semaphore>,
}

impl HelmProgram {
    /// Uses `named`, or the `helm` on `PATH`; renders at most as many charts at a time as there are cores.
    pub fn find(named: Option<&Path>, limits: RenderLimits) -> Result<Self, HelmProgramError> {
        let program = match named {
            Some(path) if path.is_file() => path.to_path_buf(),
            Some(path) => return Err(HelmProgramError::NotAFile(path.to_path_buf())),
            None => std::env::var_os("PATH")
                .and_then(|path| {
                    std::env::split_paths(&path).map(|dir| dir.join("helm")).find(|file| file.is_file())
                })
                .ok_or(HelmProgramError::Missing)?,
        };
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let identity = FileIdentity::of(&program).ok();
        Ok(Self { program, identity, limits, slots: Arc::new(Semaphore::new(cores)) })
    }

    /// Checks that the program is Helm 4 and, if `sha256` (hex digits) is given, that its digest is that.
    ///
    /// # Errors
    /// If it is not Helm 4, has another digest, or cannot be read.
    pub fn check(&self, sha256: Option<&str>) -> Result<(), HelmProgramError> {
        let path = || self.program.clone();
        let unreadable = |source| HelmProgramError::Unreadable { path: path(), source };
        if let Some(expected) = sha256 {
            let expected = expected.trim_start_matches("sha256:").to_ascii_lowercase();
            let found = hex::encode(Sha256::digest(std::fs::read(&self.program).map_err(unreadable)?));
            if found != expected {
                return Err(HelmProgramError::Digest { path: path(), expected, found });
            }
        }
        let home = tempfile::tempdir().map_err(unreadable)?;
        let mut command = std::process::Command::new(&self.program);
        let command =
            command.args(["version", "--template={{.Version}}"]).env_clear().env("HOME", home.path());
        let output = command.stdin(std::process::Stdio::null()).output().map_err(unreadable)?;
        let found: String =
            String::from_utf8_lossy(&output.stdout).trim().chars().take(MAX_VERSION_LENGTH).collect();
        if output.status.success() && found.starts_with("v4.") {
            return Ok(());
        }
        Err(HelmProgramError::Version { path: path(), found })
    }

    /// Refuses a program that was replaced or changed since the operator started.
    fn check_unchanged(&self) -> Result<(), RenderError> {
        if FileIdentity::of(&self.program).ok() == self.identity {
            return Ok(());
        }
        let detail = format!("{} changed since the operator started: restart it", self.program.display());
        Err(RenderError::Engine { detail })
    }

    async fn template(&self, request: &RenderRequest) -> Result<RenderOutput, RenderError> {
        let values = serde_json::to_vec(&request.values)
            .map_err(|error| RenderError::Engine { detail: error.to_string() })?;
        let values = kyma_api::yaml_safe(&values);
        if values.len() > self.limits.values {
            return Err(RenderError::TooLarge { what: "the text of all values", limit: self.limits.values });
        }
        let _slot =
            self.slots.acquire().await.map_err(|error| RenderError::Engine { detail: error.to_string() })?;
        let home = tempfile::Builder::new()
            .prefix("helm-render-")
            // Otherwise any user with access to the temporary directory could read the chart.
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(|error| RenderError::Engine { detail: error.to_string() })?;
        let archive = home.path().join("chart.tgz");
        tokio::fs::write(&archive, request.chart.archive())
            .await
            .map_err(|error| RenderError::Engine { detail: error.to_string() })?;
        self.check_unchanged()?;
        let args = arguments(request, &archive);
        let deadline = request.deadline.unwrap_or(self.limits.deadline);
        let limits = RenderLimits { deadline, ..self.limits };
        let output = process::run(&self.program, &args, home.path(), values, &limits).await?;
        if output.success {
            let manifest = String::from_utf8(output.stdout).map_err(|_| RenderError::Template {
                summary: "the rendered text is not UTF-8".to_owned(),
            })?;
            let warnings = skipped_hooks(&String::from_utf8_lossy(&output.stderr));
            return Ok(RenderOutput { manifest: manifest.into(), reads: Reads::Unknown, warnings });
        }
        if is_out_of_memory(&output.stderr) {
            let limit = usize::try_from(limits.memory).unwrap_or(usize::MAX);
            return Err(RenderError::TooLarge { what: "what the templates keep in memory", limit });
        }
        let error_text = String::from_utf8_lossy(&output.stderr);
        if let Some(fault) = request.chart.schema_fault(&error_text) {
            return Err(RenderError::Chart(fault));
        }
        let chart = Arc::clone(&request.chart);
        let text = run_unpacking(request.chart.archive().clone(), move |_| TemplateText::of(&chart))
            .await
            .map_err(|error| RenderError::Engine { detail: error.to_string() })?;
        Err(message::reduce(&error_text, &text))
    }
}

impl Renderer for HelmProgram {
    fn render<'a>(&'a self, request: &'a RenderRequest) -> BoxFuture<'a, Result<RenderOutput, RenderError>> {
        self.template(request).boxed()
    }
}

fn arguments(request: &RenderRequest, archive: &Path) -> Vec<String> {
    let mut args = vec![
        "template".to_owned(),
        format!("--namespace={}", request.namespace),
        format!("--kube-version={}", request.kube_version),
        "--values=-".to_owned(),
    ];
    if request.crds {
        args.push("--include-crds".to_owned());
    }
    // Inputs that the chart does not read are not passed: then one render also serves other targets.
    if let Some(revision) = request.revision {
        args.push(format!("--api-versions={REVISION}{revision}"));
        if revision > 1 {
            args.push("--is-upgrade".to_owned());
        }
    }
    if request.chart.depends_on_api_versions(&request.values) {
        if !request.chart.keeps_compiled_versions() {
            args.push(format!("--api-versions={TARGET_VERSIONS_BEGIN}"));
        }
        args.extend(request.api_versions.iter().map(|version| format!("--api-versions={version}")));
    }
    args.push("--".to_owned());
    args.push(request.release.clone());
    args.push(archive.to_string_lossy().into_owned());
    args
}

/// Returns warnings about hooks with an unknown event, which Helm leaves out of its output. Source: `skipping unknown
/// hooks` in `pkg/release/v1/util/manifest_sorter.go` of Helm 4.
fn skipped_hooks(stderr: &str) -> Vec<String> {
    let skipped = stderr.lines().filter(|line| line.contains("skipping unknown hook"));
    let events = skipped.filter_map(|line| line.split_once("hookTypes=").map(|(_, events)| events.trim()));
    let is_word = |c: &char| c.is_ascii_alphanumeric() || "-,_ ".contains(*c);
    let events: BTreeSet<String> =
        events.map(|events| events.chars().filter(is_word).take(100).collect::<String>()).collect();
    let warning = |events: String| {
        format!("a hook is ignored, because helm.sh/hook names an unknown event ({})", events.trim())
    };
    events.into_iter().map(warning).collect()
}

/// Reports whether the Go runtime ran out of memory. Its messages begin a line; those of a template do not.
fn is_out_of_memory(stderr: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stderr);
    let first = text.lines().next().unwrap_or_default();
    let is_fatal = |line: &str| line.starts_with("fatal error: ") || line.starts_with("runtime: ");
    is_fatal(first) && text.lines().take(5).any(|line| is_fatal(line) && line.contains("memory"))
}

#[cfg(test)]
pub(crate) mod tests;
