//! Helm itself on the target, beside the operator.

use std::process::Output;

use anyhow::{Result, ensure};
use testbed::Program;
use tokio::process::Command;

use crate::world::World;

impl World {
    /// Runs Helm on the target in this namespace, and returns its output.
    pub(crate) async fn helm(&self, namespace: &str, arguments: &[&str]) -> Result<String> {
        let done = self.run_helm(namespace, arguments).await?;
        ensure!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8(done.stdout)?)
    }

    /// Runs Helm, which must fail, and returns its error output.
    pub(crate) async fn helm_fails(&self, namespace: &str, arguments: &[&str]) -> Result<String> {
        let done = self.run_helm(namespace, arguments).await?;
        ensure!(!done.status.success(), "{arguments:?} succeeds: {}", String::from_utf8_lossy(&done.stdout));
        Ok(String::from_utf8(done.stderr)?)
    }

    async fn run_helm(&self, namespace: &str, arguments: &[&str]) -> Result<Output> {
        let kubeconfig = self.scratch(&format!("{namespace}.kubeconfig"));
        std::fs::write(&kubeconfig, self.target.kubeconfig())?;
        let mut command = Command::new(Program::Helm.path()?);
        command.args(arguments).args(["--namespace", namespace, "--kubeconfig"]).arg(&kubeconfig);
        Ok(command.output().await?)
    }
}
