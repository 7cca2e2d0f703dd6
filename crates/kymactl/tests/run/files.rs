//! Files of a user: a kubeconfig, a catalogue and a Kyma.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::{Value, json};
use testbed::{Cluster, Program, Registry};
use tokio::process::Command;

use crate::{RUN_TIMEOUT, TEST_ENV};

/// A directory with the files for one cluster, and the registry of the modules.
pub(crate) struct Files {
    directory: tempfile::TempDir,
    registry: &'static Registry,
}

impl Files {
    /// Writes a Kyma `one` with these modules in channel regular, and an empty catalogue.
    pub(crate) async fn new(cluster: &Cluster, modules: &[&str]) -> Self {
        let files =
            Self { directory: tempfile::tempdir().unwrap(), registry: TEST_ENV.registry().await.unwrap() };
        fs::create_dir(files.path("catalogue")).unwrap();
        fs::write(files.path("kubeconfig"), cluster.kubeconfig()).unwrap();
        let modules: Vec<Value> = modules.iter().map(|module| json!({"name": module})).collect();
        let kyma = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "one", "namespace": "kcp-system"},
            "spec": {"channel": "regular", "modules": modules},
        });
        fs::write(files.path("kyma.yaml"), kyma.to_string()).unwrap();
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Publishes a version of the demo module lantern and assigns it to the channel.
    pub(crate) async fn lantern(&self, version: &str) {
        let config = own_modules().join("lantern").join(version).join("module-config.yaml");
        self.publish("lantern", version, &["--config", config.to_str().unwrap()]).await;
    }

    /// Publishes a module version, adds its ModuleTemplate to the catalogue and assigns the version to the channel.
    pub(crate) async fn publish(&self, module: &str, version: &str, flags: &[&str]) {
        let mut push = self.command(&["module", "push", "--insecure", "--namespace", "kcp-system"]);
        let pushed = push.args(["--registry", self.registry.address()]).args(flags).output().await.unwrap();
        assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
        fs::write(self.path(&format!("catalogue/{module}-{version}.yaml")), pushed.stdout).unwrap();
        self.assign(module, version);
    }

    /// Assigns a version to the channel.
    pub(crate) fn assign(&self, module: &str, version: &str) {
        let release = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
            "metadata": {"name": module, "namespace": "kcp-system"},
            "spec": {
                "moduleName": module, "ocmComponentName": format!("kyma-project.io/module/{module}"),
                "channels": [{"channel": "regular", "version": version}],
            },
        });
        fs::write(self.path(&format!("catalogue/{module}.yaml")), release.to_string()).unwrap();
    }

    /// Runs `kymactl run --once`, which must succeed, and returns its output.
    pub(crate) async fn once(&self) -> String {
        self.once_with(&[]).await
    }

    /// Does the same as [`Self::once`], with more flags.
    pub(crate) async fn once_with(&self, flags: &[&str]) -> String {
        let output = self.run("--once", "5m", flags).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `kymactl run` for the Kyma and the catalogue; `mode` is `--once` or `--remove`.
    pub(crate) async fn run(&self, mode: &str, timeout: &str, flags: &[&str]) -> Output {
        let mut command = self.kymactl(&["run", mode, "--timeout", timeout]);
        command.args(flags).arg("--kyma").arg(self.path("kyma.yaml"));
        command.arg("--catalogue").arg(self.path("catalogue"));
        tokio::time::timeout(RUN_TIMEOUT, command.output()).await.unwrap().unwrap()
    }

    /// Returns a command for the cluster.
    pub(crate) fn kymactl(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.arg("--kubeconfig").arg(self.path("kubeconfig"));
        if arguments[0] == "run" {
            let registry = self.registry.address();
            command.args([
                "--log-format",
                "text",
                "--oci-registry",
                registry,
                "--oci-insecure-hosts",
                registry,
            ]);
            command.arg("--helm").arg(Program::Helm.path().unwrap());
            command.arg("--artifact-cache-dir").arg(self.path("cache"));
        }
        command
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymactl"));
        command.args(arguments).env("HOME", self.directory.path()).kill_on_drop(true);
        command
    }
}

/// Returns the directory of the demo modules.
pub(crate) fn own_modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/modules")
}
