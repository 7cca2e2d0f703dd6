//! A test's chart in the registry.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::Registry;
use crate::binaries::Program;

impl Registry {
    /// Writes the files of a chart with this name and version below `directory`, each at its path in the chart;
    /// packs it with Helm and pushes it to `oci://<address>/charts`. Returns the archive.
    ///
    /// # Errors
    /// The files cannot be written, or Helm is missing or refuses the chart.
    pub async fn push_chart(
        &self,
        directory: &Path,
        (name, version): (&str, &str),
        files: &[(&str, &str)],
    ) -> Result<PathBuf> {
        let chart = directory.join(name);
        for (path, text) in files {
            let path = chart.join(path);
            std::fs::create_dir_all(path.parent().context("a file in a chart")?)?;
            std::fs::write(path, text)?;
        }
        helm(&["package".as_ref(), chart.as_os_str(), "--destination".as_ref(), directory.as_os_str()])
            .await?;
        let archive = directory.join(format!("{name}-{version}.tgz"));
        let charts = format!("oci://{}/charts", self.address());
        helm(&["push".as_ref(), archive.as_os_str(), charts.as_ref(), "--plain-http".as_ref()]).await?;
        Ok(archive)
    }
}

async fn helm(arguments: &[&OsStr]) -> Result<()> {
    let done = Command::new(Program::Helm.path()?).args(arguments).output().await;
    let done = done.context("cannot start helm")?;
    ensure!(done.status.success(), "helm: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}
