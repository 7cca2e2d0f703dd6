//! Programs that end with the test.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use parking_lot::Mutex;

use crate::tools::binaries;

/// The program to start.
#[derive(Clone)]
pub(crate) struct ProgramStart {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(String, OsString)>,
    /// File to which standard output and error are appended.
    pub(crate) log: PathBuf,
}

/// A running program. It is killed when this is dropped, and when this process ends in any way.
pub struct Process {
    name: String,
    log: PathBuf,
    child: Mutex<Child>,
}

impl Process {
    /// Starts `program`, with standard output and error appended to the file `log`.
    ///
    /// # Errors
    /// The program cannot be started or the log cannot be written.
    pub fn start<A: Into<OsString>>(
        name: &str,
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = A>,
        environment: impl IntoIterator<Item = (String, String)>,
        log: impl Into<PathBuf>,
    ) -> Result<Self> {
        Self::spawn(&ProgramStart {
            name: name.to_owned(),
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: environment.into_iter().map(|(key, value)| (key, value.into())).collect(),
            log: log.into(),
        })
    }

    pub(crate) fn spawn(start: &ProgramStart) -> Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(&start.log);
        let log = log.with_context(|| format!("cannot write {}", start.log.display()))?;
        let mut command = Command::new(binaries::wrapper()?);
        command.arg("run").arg(std::process::id().to_string()).arg(&start.program).args(&start.arguments);
        command.envs(start.environment.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = on_starter_thread(command).with_context(|| format!("cannot start {}", start.name))?;
        Ok(Self { name: start.name.clone(), log: start.log.clone(), child: Mutex::new(child) })
    }

    /// Returns the name that was given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file with its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.lock().id()
    }

    /// Returns its exit status, if it ended.
    pub fn exited(&self) -> Option<ExitStatus> {
        self.child.lock().try_wait().ok().flatten()
    }

    /// Fails, with the end of the log, if it has ended.
    ///
    /// # Errors
    /// The process has ended.
    pub fn check(&self) -> Result<()> {
        match self.exited() {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}); its log ends with\n{}", self.name, self.log_end(30)),
        }
    }

    /// Freezes the process (SIGSTOP), and returns once all its threads have stopped: connections stay open without
    /// responses.
    ///
    /// # Errors
    /// The process has ended.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        // Its threads stop one by one and may respond until the last one has stopped. WNOWAIT leaves its exit
        // status for later waits.
        let stands = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(pid(&self.child.lock())?), stands)
            .with_context(|| format!("cannot wait for {}", self.name))?;
        self.check()
    }

    /// Continues the process after [`Self::freeze`].
    ///
    /// # Errors
    /// The process has ended.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Asks the process to stop (SIGTERM), without waiting.
    ///
    /// # Errors
    /// The process has ended.
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Kills the process (SIGKILL) and waits until it is gone.
    pub fn kill(&self) {
        let mut child = self.child.lock();
        if matches!(child.try_wait(), Ok(None)) && child.kill().is_ok() {
            // An error means that it was waited for elsewhere, so it is gone as well.
            child.wait().ok();
        }
    }

    /// Returns the last `lines` lines of its output.
    pub fn log_end(&self, lines: usize) -> String {
        log_end(&self.log, lines)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.child.lock();
        if let Ok(Some(status)) = child.try_wait() {
            bail!("{} has ended already ({status})", self.name);
        }
        kill(pid(&child)?, signal).with_context(|| format!("cannot send {signal} to {}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pid(child: &Child) -> Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(child.id())?))
}

pub(crate) fn log_end(path: &Path, lines: usize) -> String {
    let mut last = VecDeque::with_capacity(lines);
    let Ok(file) = File::open(path) else {
        return String::new();
    };
    for line in BufReader::new(file).lines().map_while(Result::ok) {
        if last.len() == lines {
            last.pop_front();
        }
        last.push_back(line);
    }
    last.make_contiguous().join("\n")
}

type SpawnRequest = (Command, Sender<std::io::Result<Child>>);

/// Starts a command on a thread that ends with this process. The kernel sends the death signal when the thread that
/// started a process ends, and the thread of a test ends before processes that tests share.
fn on_starter_thread(mut command: Command) -> Result<Child> {
    static SPAWN_REQUESTS: OnceLock<Mutex<Sender<SpawnRequest>>> = OnceLock::new();
    // The process gets its own group, so that an interrupt from the terminal reaches only this process, which then
    // stops the others in the right order.
    command.process_group(0);
    let requests = SPAWN_REQUESTS.get_or_init(|| {
        let (requests, inbox) = channel::<SpawnRequest>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                // If no caller waits for the result any more, the dropped child is left to the death signal.
                answer.send(command.spawn()).ok();
            }
        });
        Mutex::new(requests)
    });
    let (answer, started) = channel();
    requests.lock().send((command, answer))?;
    Ok(started.recv()??)
}
