//! One etcd, one certificate authority and one directory, which the clusters of a test share.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::certificates::Authority;
use crate::server::etcd::Etcd;
use crate::tools::binaries;

/// Maximum number of apiservers that start at the same time: on two cores, two starts in parallel take as long as one.
const APISERVERS_AT_A_TIME: usize = 2;

/// A running etcd and everything that its clusters share. Clones are handles to the same test environment. With the
/// last handle, clusters included, all processes end and the directory is removed; so they do when the process ends in
/// any other way, even if it is killed.
#[derive(Clone)]
pub struct TestEnv {
    pub(crate) inner: Arc<TestEnvInner>,
}

/// Fields are dropped from first to last: etcd before the directory that it writes to.
pub(crate) struct TestEnvInner {
    pub(crate) etcd: Etcd,
    pub(crate) authority: Authority,
    pub(crate) starts: Semaphore,
    pub(crate) names: Mutex<BTreeSet<String>>,
    pub(crate) directory: Directory,
}

impl TestEnv {
    /// Starts a test environment in a directory of its own under the system's temporary directory; `TESTBED_KEEP=1` in
    /// the environment keeps it, with all logs, beyond the end.
    ///
    /// # Errors
    /// A program is missing or etcd does not start; the message contains the end of its log.
    pub async fn start() -> Result<Self> {
        let directory = Directory::temporary(std::env::var_os("TESTBED_KEEP").is_none())?;
        Self::start_with(directory).await
    }

    /// Starts a test environment in `directory`, which stays when the test environment ends; data and logs of an
    /// earlier test environment in it are deleted.
    ///
    /// # Errors
    /// As [`Self::start`]; the directory cannot be written, or another test environment runs in it.
    pub async fn start_in(directory: impl AsRef<Path>) -> Result<Self> {
        Self::start_with(Directory::kept(directory.as_ref())?).await
    }

    async fn start_with(directory: Directory) -> Result<Self> {
        let etcd =
            Etcd::start("etcd", directory.path().join("etcd"), directory.logs().join("etcd.log")).await?;
        let authority = Authority::new("testbed")?;
        let starts = Semaphore::new(APISERVERS_AT_A_TIME);
        let inner = TestEnvInner { etcd, authority, starts, names: Mutex::default(), directory };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Fails, with the end of its log, if etcd has ended.
    ///
    /// # Errors
    /// Etcd has ended.
    pub fn check(&self) -> Result<()> {
        self.inner.etcd.check()
    }

    /// Returns the directory of the test environment's files.
    pub fn directory(&self) -> &Path {
        self.inner.directory.path()
    }

    /// Returns the directory with the logs of all processes, one file each.
    pub fn logs(&self) -> PathBuf {
        self.inner.directory.logs()
    }
}

/// The directory of a test environment. A temporary one is removed by a process that outlives this one.
pub(crate) struct Directory {
    path: PathBuf,
    sweeper: Option<(Child, Option<ChildStdin>)>,
    /// Lock of a directory that is kept: two test environments in it would delete each other's data.
    lock: Option<File>,
}

impl Directory {
    fn temporary(swept: bool) -> Result<Self> {
        let path = tempfile::Builder::new().prefix("testbed-").tempdir()?.keep();
        if !swept {
            return Self { path, sweeper: None, lock: None }.prepare();
        }
        let mut command = Command::new(binaries::wrapper()?);
        command.arg("sweep").arg(&path).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut sweeper = command.process_group(0).spawn().context("cannot start testbed-exec")?;
        let line = sweeper.stdin.take();
        Self { path, sweeper: Some((sweeper, line)), lock: None }.prepare()
    }

    fn kept(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path)?;
        let path = path.canonicalize()?;
        let lock = File::create(path.join(".lock"))?;
        if lock.try_lock().is_err() {
            bail!("a test environment runs in {} already", path.display());
        }
        for stale in ["etcd", "logs"].map(|name| path.join(name)).iter().filter(|place| place.exists()) {
            std::fs::remove_dir_all(stale)?;
        }
        Self { path, sweeper: None, lock: Some(lock) }.prepare()
    }

    fn prepare(self) -> Result<Self> {
        std::fs::create_dir_all(self.logs())?;
        Ok(self)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            // Closing the file does not release the lock while a process that was just forked has it open.
            lock.unlock().ok();
        }
        if let Some((sweeper, line)) = &mut self.sweeper {
            drop(line.take());
            // A directory that cannot be removed is left.
            sweeper.wait().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_free_at_once_although_a_fork_holds_its_lock() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = Directory::kept(scratch.path()).unwrap();
        assert!(Directory::kept(scratch.path()).is_err());
        // A process that another thread starts has a copy of each open file until it runs its program.
        let copy = directory.lock.as_ref().unwrap().try_clone().unwrap();
        drop(directory);
        assert!(Directory::kept(scratch.path()).is_ok());
        drop(copy);
    }
}
