//! Helm itself on the target, beside the operator.

use anyhow::{Result, ensure};
use testbed::Program;
use tokio::process::Command;

use crate::world::World;

impl World {
    /// Runs Helm on the target, in this namespace; what it printed.
    pub(crate) async fn helm(&self, namespace: &str, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.scratch(&format!("{namespace}.kubeconfig"));
        std::fs::write(&kubeconfig, self.target.kubeconfig())?;
        let mut command = Command::new(Program::Helm.path()?);
        let done = command.args(arguments).args(["--namespace", namespace, "--kubeconfig"]).arg(&kubeconfig);
        let done = done.output().await?;
        ensure!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8(done.stdout)?)
    }
}
