//! An OCI registry on loopback.

mod chart;
mod password;
mod tls;

pub use password::PasswordProxy;
pub use tls::TlsProxy;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::binaries::Program;
use crate::process::{Process, ProgramStart};
use crate::test_env::TestEnv;
use crate::wait::until;

/// A running registry with plain HTTP and content in memory; it ends when this is dropped.
pub struct Registry {
    process: Process,
    address: String,
    _test_env: TestEnv,
}

impl Registry {
    pub(crate) async fn start(test_env: TestEnv) -> Result<Self> {
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

    /// Returns the process, to freeze or kill it.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// Returns a new log file, since a test environment may run several registries.
fn new_log(test_env: &TestEnv) -> PathBuf {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    test_env.logs().join(format!("registry-{}.log", STARTED.fetch_add(1, Ordering::Relaxed) + 1))
}

/// Reports whether a plain HTTP server responds to a GET with success.
pub(crate) async fn answers(url: &str) -> bool {
    let Ok(url) = url.parse() else { return false };
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    client.get(url).await.is_ok_and(|answer| answer.status().is_success())
}
