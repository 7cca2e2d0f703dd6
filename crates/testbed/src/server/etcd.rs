//! An etcd of a test environment, or of a cluster that can be restored from a snapshot.

mod dump;

pub use dump::EtcdDump;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use crate::server::plain_http::answers;
use crate::server::port::{self, free_address};
use crate::server::process::{Process, ProgramStart};
use crate::tools::binaries::Program;
use crate::wait::until;

/// A running etcd.
pub(crate) struct Etcd {
    start: ProgramStart,
    process: Mutex<Option<Process>>,
    data: PathBuf,
    url: String,
}

impl Etcd {
    /// Starts etcd at a free port, and waits until it is healthy. `data` is its directory, `log` the file of its
    /// output.
    pub(crate) async fn start(name: &str, data: PathBuf, log: PathBuf) -> Result<Self> {
        for _ in 0..port::MAX_START_ATTEMPTS {
            let url = format!("http://{}", free_address()?);
            let start = ProgramStart {
                name: name.to_owned(),
                program: Program::Etcd.path()?,
                arguments: arguments(&data, &url, &format!("http://{}", free_address()?)),
                environment: Vec::new(),
                log: log.clone(),
            };
            let process = Process::spawn(&start)?;
            match healthy(&process, &url).await {
                Ok(()) => return Ok(Self { start, process: Mutex::new(Some(process)), data, url }),
                Err(_) if port::has_lost_port(&process) => {}
                Err(error) => return Err(error),
            }
        }
        bail!("etcd found no free port in {} attempts", port::MAX_START_ATTEMPTS)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Fails if etcd has ended by itself.
    pub(crate) fn check(&self) -> Result<()> {
        self.process.lock().as_ref().map_or(Ok(()), Process::check)
    }

    /// Copies the data as a power failure would leave them now, and replaces an earlier copy.
    pub(crate) fn save(&self, place: &Path) -> Result<()> {
        if place.exists() {
            fs::remove_dir_all(place)?;
        }
        let process = self.process.lock();
        let process = process.as_ref().context("etcd is stopped")?;
        process.freeze()?;
        let copied = copy(&self.data, place);
        process.thaw()?;
        copied
    }

    /// Restores a copy of the data: later writes and their revisions are lost.
    pub(crate) async fn restore(&self, place: &Path) -> Result<()> {
        drop(self.process.lock().take());
        fs::remove_dir_all(&self.data)?;
        copy(place, &self.data)?;
        let process = Process::spawn(&self.start)?;
        healthy(&process, &self.url).await?;
        *self.process.lock() = Some(process);
        Ok(())
    }
}

fn arguments(data: &Path, url: &str, peer: &str) -> Vec<std::ffi::OsString> {
    let mut arguments = vec!["--data-dir".into(), data.into()];
    let flags = [
        ("--listen-client-urls", url),
        ("--advertise-client-urls", url),
        ("--listen-peer-urls", peer),
        ("--initial-advertise-peer-urls", peer),
        ("--initial-cluster", &format!("default={peer}")),
        ("--log-level", "warn"),
        ("--quota-backend-bytes", "8589934592"),
    ];
    arguments.extend(flags.iter().flat_map(|(flag, value)| [flag.into(), value.into()]));
    arguments.push("--unsafe-no-fsync".into());
    arguments
}

async fn healthy(process: &Process, url: &str) -> Result<()> {
    let health = format!("{url}/health");
    until("etcd is healthy", Duration::from_mins(1), || async {
        process.check()?;
        Ok(answers(&health).await.then_some(()))
    })
    .await
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &place)?;
        } else {
            fs::copy(entry.path(), place)?;
        }
    }
    Ok(())
}
