//! An OCI registry on loopback.

mod password;
mod tls;

pub use password::PasswordProxy;
pub use tls::TlsProxy;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::server::plain_http::answers;
use crate::server::process::{Process, ProgramStart};
use crate::test_env::TestEnv;
use crate::tools::binaries::Program;
use crate::wait::until;

/// A running registry with plain HTTP and content in memory; it ends when this is dropped.
pub struct Registry {
    process: Process,
    address: String,
    _test_env: TestEnv,
}

impl Registry {
    async fn start(test_env: TestEnv) -> Result<Self> {
        let log = new_log(&test_env);
        let process = Process::spawn(&ProgramStart {
            name: "registry".to_owned(),
            program: Program::Registry.path()?,
            arguments: vec!["-port".into(), "0".into()],
            environment: Vec::new(),
            log,
        })?;
        // The registry picks the port itself, so no process can take it, and prints it.
        let address = until("the registry serves", Duration::from_mins(1), || async {
            process.check()?;
            let log = process.log_end(50);
            let port =
                log.lines().find_map(|line| line.rsplit_once("serving on port ")?.1.parse::<u16>().ok());
            let Some(port) = port else { return Ok(None) };
            let address = format!("127.0.0.1:{port}");
            Ok(answers(&format!("http://{address}/v2/")).await.then_some(address))
        })
        .await?;
        Ok(Self { process, address, _test_env: test_env })
    }

    /// Returns host and port, `127.0.0.1:PORT`: the first part of a reference to an image or artifact in it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Opens a second address of the registry, which requires this user and password.
    ///
    /// # Errors
    /// No port is free.
    pub async fn behind_password(&self, user: &str, password: &str) -> Result<PasswordProxy> {
        PasswordProxy::start(&self.address, user, password).await
    }

    /// Opens a second address of the registry, with TLS.
    ///
    /// # Errors
    /// No port is free.
    pub async fn behind_tls(&self) -> Result<TlsProxy> {
        TlsProxy::start(&self.address).await
    }

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

    /// Returns the process, to freeze or kill it.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

impl TestEnv {
    /// Starts an empty OCI registry with plain HTTP on loopback.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub async fn registry(&self) -> Result<Registry> {
        Registry::start(self.clone()).await
    }
}

/// Returns a new log file, since a test environment may run several registries.
fn new_log(test_env: &TestEnv) -> PathBuf {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    test_env.logs().join(format!("registry-{}.log", STARTED.fetch_add(1, Ordering::Relaxed) + 1))
}

async fn helm(arguments: &[&OsStr]) -> Result<()> {
    let done = Command::new(Program::Helm.path()?).args(arguments).output().await;
    let done = done.context("cannot start helm")?;
    ensure!(done.status.success(), "helm: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}
