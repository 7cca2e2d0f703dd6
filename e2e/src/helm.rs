//! The `helm` program: reference for benchmarks and tests.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testbed::{Cluster, Program};
use tokio::process::Command;

use crate::inputs::charts::Chart;

/// Timeout of helm for a chart.
const HELM_TIMEOUT: &str = "60s";
/// Text that helm prints after the reason of a failure.
const DEBUG_HINT: &str = "Use --debug flag";

/// Runs `helm` against one target.
pub struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Helm {
    /// Creates a runner whose files are below `home`.
    pub fn new(target: &Cluster, home: &Path) -> Result<Self> {
        std::fs::create_dir_all(home)?;
        let kubeconfig = home.join("target.kubeconfig");
        std::fs::write(&kubeconfig, target.kubeconfig())?;
        Ok(Self { program: Program::Helm.path()?, kubeconfig, home: home.to_owned() })
    }

    /// Runs `helm install --wait --no-hooks` and returns its duration.
    pub async fn install(&self, chart: &Chart, namespace: &str) -> Result<Duration> {
        let values = self.values(chart)?;
        let start = Instant::now();
        self.run([
            "install".as_ref(),
            "bench".as_ref(),
            chart.path.as_os_str(),
            "--namespace".as_ref(),
            namespace.as_ref(),
            "--create-namespace".as_ref(),
            "--wait".as_ref(),
            "--no-hooks".as_ref(),
            "--timeout".as_ref(),
            HELM_TIMEOUT.as_ref(),
            "--values".as_ref(),
            values.as_os_str(),
        ])
        .await?;
        Ok(start.elapsed())
    }

    /// Runs `helm install` with this release name, without waiting.
    pub async fn install_as(&self, chart: &Chart, release: &str, namespace: &str) -> Result<()> {
        let words = ["install", release, "--namespace", namespace, "--no-hooks"];
        let mut words: Vec<OsString> = words.map(OsString::from).into();
        words.push(chart.path.clone().into_os_string());
        for (key, value) in chart.values.as_object().into_iter().flatten() {
            words.extend(["--set-json".into(), format!("{key}={value}").into()]);
        }
        self.output(&words).await.map(drop)
    }

    /// Runs `helm install --wait` with hooks and this release name. Returns helm's error output if it fails.
    ///
    /// # Errors
    /// Helm cannot be started.
    pub async fn refusal(&self, chart: &Chart, release: &str, namespace: &str) -> Result<Option<String>> {
        let values = self.values(chart)?;
        let mut words: Vec<OsString> = vec!["install".into(), release.into()];
        words.push(chart.path.clone().into_os_string());
        words.extend(["--namespace", namespace, "--create-namespace", "--wait"].map(OsString::from));
        words.extend(["--timeout", HELM_TIMEOUT, "--values"].map(OsString::from));
        words.push(values.into_os_string());
        let output = self.ended(&words).await?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((!output.status.success()).then_some(stderr))
    }

    /// Runs `helm uninstall --no-hooks` without waiting: it would also wait for objects that the chart keeps.
    pub async fn uninstall(&self, namespace: &str) -> Result<()> {
        let words = ["uninstall", "bench", "--namespace", namespace, "--no-hooks", "--ignore-not-found"];
        self.run(words.map(AsRef::as_ref)).await
    }

    /// Packs the chart and pushes it, so that a component can pull it; returns its `oci://` address.
    pub async fn push(&self, chart: &Chart, registry: &str) -> Result<String> {
        let packed = self.home.join("packed").join(&chart.name);
        std::fs::create_dir_all(&packed)?;
        self.run(["package".as_ref(), chart.path.as_os_str(), "--destination".as_ref(), packed.as_os_str()])
            .await?;
        let archive = std::fs::read_dir(&packed)?.next().context("helm packed nothing")??.path();
        let repository = format!("oci://{registry}/charts");
        self.run(["push".as_ref(), archive.as_os_str(), repository.as_ref(), "--plain-http".as_ref()])
            .await?;
        Ok(repository)
    }

    /// Runs `helm template` with CRDs and without hooks, for a cluster of this version with these APIs. `revision` is
    /// that of the release: later ones than the first are upgrades.
    pub async fn template(
        &self,
        chart: &Chart,
        (release, revision): (&str, u32),
        namespace: &str,
        kube_version: &str,
        api_versions: &[String],
    ) -> Result<String> {
        let values = self.values(chart)?;
        let is_upgrade = revision > 1;
        let path = if is_upgrade { self.with_revision(chart, revision)? } else { chart.path.clone() };
        let mut words = vec!["template".into(), release.into(), path.into_os_string()];
        words.extend(is_upgrade.then(|| OsString::from("--is-upgrade")));
        words.extend(["--namespace", namespace, "--kube-version", kube_version].map(OsString::from));
        words.extend(["--include-crds", "--no-hooks", "--values"].map(OsString::from));
        words.push(values.into_os_string());
        words.extend(api_versions.iter().map(|version| format!("--api-versions={version}").into()));
        self.output(&words).await
    }

    /// Returns a copy of the chart with a template that sets the revision, for which `helm template` has no flag. Helm
    /// executes the template with the deepest path first.
    fn with_revision(&self, chart: &Chart, revision: u32) -> Result<PathBuf> {
        let path = self.home.join(format!("{}-revision-{revision}", chart.name));
        if !path.exists() {
            copy(&chart.path, &path, &|_| false)?;
            let folder = path.join("templates/revision").join("deep/".repeat(9));
            std::fs::create_dir_all(&folder)?;
            let text = format!("{{{{- $_ := set .Release \"Revision\" {revision} -}}}}\n");
            std::fs::write(folder.join("revision.yaml"), text)?;
        }
        Ok(path)
    }

    fn values(&self, chart: &Chart) -> Result<PathBuf> {
        let path = self.home.join(format!("{}.values.json", chart.name));
        let values = serde_json::to_vec(&chart.values)?;
        // Another run may be reading the file: an unchanged one is not written.
        if std::fs::read(&path).ok().as_ref() != Some(&values) {
            std::fs::write(&path, values)?;
        }
        Ok(path)
    }

    async fn run<const N: usize>(&self, words: [&OsStr; N]) -> Result<()> {
        self.output(&words).await.map(drop)
    }

    async fn output(&self, words: &[impl AsRef<OsStr>]) -> Result<String> {
        let output = self.ended(words).await?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}", reason(&stderr).unwrap_or("helm failed without a message"));
        Ok(String::from_utf8(output.stdout)?)
    }

    async fn ended(&self, words: &[impl AsRef<OsStr>]) -> Result<Output> {
        Command::new(&self.program)
            .args(words)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .output()
            .await
            .context("cannot start helm")
    }
}

/// Returns the last line with a reason.
fn reason(stderr: &str) -> Option<&str> {
    stderr.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with(DEBUG_HINT))
}

/// Copies the folder of a chart, except for some files and folders.
pub fn copy(from: &Path, to: &Path, is_left_out: &dyn Fn(&Path) -> bool) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if is_left_out(&from) {
            continue;
        }
        if from.is_dir() {
            copy(&from, &to, is_left_out)?;
        } else {
            std::fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_line_but_for_the_hint() {
        let stderr = "level=WARN msg=old\nError: execution error at (a/templates/b.yaml:1:4): no host\n\n\
                    Use --debug flag to render out invalid YAML\n";
        assert_eq!(reason(stderr), Some("Error: execution error at (a/templates/b.yaml:1:4): no host"));
        assert_eq!(reason("\n"), None);
    }
}
