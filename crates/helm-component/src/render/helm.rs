//! The `helm` program as engine.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kyma_artifacts::archive::unpacking;
use thiserror::Error;
use tokio::sync::Semaphore;

use super::chart::TemplateText;
use super::{Reads, RenderError, RenderLimits, RenderRequest, Rendered, Renderer, message, process};

/// Why there is no usable `helm` program.
#[derive(Debug, Error)]
pub enum HelmProgramError {
    /// Neither named nor found.
    #[error("no `helm` program (4.x): name it with --helm or put it on PATH")]
    Missing,
    /// Named, but not there.
    #[error("--helm names {0}, which is not a file")]
    NotAFile(PathBuf),
}

/// Runs `helm template` in a sandbox: empty environment, private home and working directory, bounds on time,
/// memory, processor time and output, values by pipe, no kubeconfig, no plugins, no network reads.
///
/// `.Release.IsInstall` is always true and `.Release.Revision` 1 (as in Argo CD), so that a release renders
/// alike every time; `lookup` finds nothing.
pub struct HelmProgram {
    program: PathBuf,
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
        Ok(Self { program, limits, slots: Arc::new(Semaphore::new(cores)) })
    }

    async fn template(&self, request: &RenderRequest) -> Result<Rendered, RenderError> {
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
            // Or whoever may enter the temporary directory may read the chart.
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(|error| RenderError::Engine { detail: error.to_string() })?;
        let archive = home.path().join("chart.tgz");
        tokio::fs::write(&archive, request.chart.archive())
            .await
            .map_err(|error| RenderError::Engine { detail: error.to_string() })?;
        let args = arguments(request, &archive);
        let deadline = request.deadline.unwrap_or(self.limits.deadline);
        let limits = RenderLimits { deadline, ..self.limits };
        let output = process::run(&self.program, &args, home.path(), values, &limits).await?;
        if output.success {
            let manifest = String::from_utf8(output.stdout).map_err(|_| RenderError::Template {
                summary: "the rendered text is not UTF-8".to_owned(),
            })?;
            let warnings = skipped_hooks(&String::from_utf8_lossy(&output.stderr));
            return Ok(Rendered { manifest: manifest.into(), reads: Reads::Unknown, warnings });
        }
        if is_out_of_memory(&output.stderr) {
            let limit = usize::try_from(limits.memory).unwrap_or(usize::MAX);
            return Err(RenderError::TooLarge { what: "what the templates keep in memory", limit });
        }
        let chart = Arc::clone(&request.chart);
        let text = unpacking(request.chart.archive().clone(), move |_| TemplateText::of(&chart))
            .await
            .map_err(|error| RenderError::Engine { detail: error.to_string() })?;
        Err(message::reduce(&String::from_utf8_lossy(&output.stderr), &text))
    }
}

impl Renderer for HelmProgram {
    fn render<'a>(&'a self, request: &'a RenderRequest) -> BoxFuture<'a, Result<Rendered, RenderError>> {
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
    // Where nobody looks at them they are not told: then one render serves targets of other kinds too.
    if request.chart.depends_on_api_versions(&request.values) {
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
        format!("a hook is left out, since helm.sh/hook names an unknown event ({})", events.trim())
    };
    events.into_iter().map(warning).collect()
}

/// Whether the Go runtime gave up for want of memory. Its words begin a line; those of a template do not.
fn is_out_of_memory(stderr: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stderr);
    let first = text.lines().next().unwrap_or_default();
    let is_fatal = |line: &str| line.starts_with("fatal error: ") || line.starts_with("runtime: ");
    is_fatal(first) && text.lines().take(5).any(|line| is_fatal(line) && line.contains("memory"))
}

#[cfg(test)]
pub(crate) mod tests;
