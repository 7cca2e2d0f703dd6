//! `cargo xtask up` and `cargo xtask down`: the landscape under a supervisor of its own.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use e2e::landscape::{Landscape, Options};
use futures::FutureExt;
use indicatif::ProgressBar;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use testbed::until;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Hub, targets, registry and operators on this machine.
#[derive(Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
    /// Where state, kubeconfigs and logs are
    #[arg(long, value_name = "DIR", default_value = ".state", global = true)]
    state_dir: PathBuf,
}

#[derive(Subcommand)]
enum Action {
    /// Start it and return
    Up {
        /// Number of targets
        #[arg(long, default_value_t = 2)]
        targets: usize,
        /// Clusters with nothing of ours, no operators, and a registry with a chart: for docs/helm-component.md
        #[arg(long)]
        empty: bool,
        /// End it when this process ends
        #[arg(long, value_name = "PID")]
        with_process: Option<i32>,
    },
    /// Stop it
    Down,
    /// Start it and stay until told to stop
    #[command(hide = true)]
    Supervise {
        #[arg(long)]
        targets: usize,
        #[arg(long)]
        empty: bool,
        #[arg(long)]
        with_process: Option<i32>,
    },
}

/// The landscape to start.
#[derive(Clone, Copy)]
struct Size {
    targets: usize,
    empty: bool,
}

/// Deadline until everything has started or stopped.
const START_STOP_DEADLINE: Duration = Duration::from_mins(3);

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { command, state_dir } = Arguments::parse();
    fs::create_dir_all(&state_dir).with_context(|| format!("cannot make {}", state_dir.display()))?;
    let directory = fs::canonicalize(&state_dir)?;
    match command {
        Action::Up { targets, empty, with_process } => {
            up(&directory, Size { targets, empty }, with_process).await
        }
        Action::Down => down(&directory).await,
        Action::Supervise { targets, empty, with_process } => {
            supervise(&directory, Size { targets, empty }, with_process).await
        }
    }
}

async fn up(directory: &Path, size: Size, with_process: Option<i32>) -> Result<()> {
    let stop = format!("cargo xtask down --state-dir '{}'", directory.display());
    if let Some(pid) = running(directory) {
        bail!("it runs already in {} (process {pid}); stop it with `{stop}`", directory.display());
    }
    let _ = fs::remove_file(directory.join("env"));
    let bar = ProgressBar::new_spinner().with_message("starting hub, targets, registry and operators");
    bar.enable_steady_tick(Duration::from_millis(100));
    let mut supervisor = start_supervisor(directory, size, with_process)?;
    fs::write(pid_file(directory), supervisor.id().to_string())?;
    let started = until("the landscape is up", START_STOP_DEADLINE, || {
        let ended = supervisor.try_wait();
        async {
            ensure!(ended?.is_none(), "it ended early; see {}", log(directory).display());
            Ok(directory.join("env").is_file().then_some(()))
        }
    })
    .await;
    bar.finish_and_clear();
    if started.is_err() {
        down(directory).await?;
    }
    started?;
    say(&format!(
        "up; for a shell: `set -a; . '{dir}/env'; set +a`\nlogs are in {dir}/logs; `{stop}` stops it",
        dir = directory.display()
    ));
    Ok(())
}

fn start_supervisor(directory: &Path, size: Size, with_process: Option<i32>) -> Result<Child> {
    let log = fs::File::create(log(directory))?;
    Command::new(std::env::current_exe()?)
        .args(["supervise", "--targets", &size.targets.to_string()])
        .args(size.empty.then_some("--empty"))
        .args(with_process.map(|pid| format!("--with-process={pid}")))
        .arg("--state-dir")
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C in the terminal must not reach the supervisor.
        .process_group(0)
        .spawn()
        .context("cannot start the supervisor")
}

async fn down(directory: &Path) -> Result<()> {
    let Some(pid) = running(directory) else {
        say("nothing runs there");
        return Ok(());
    };
    kill(pid, Signal::SIGTERM).context("cannot stop the supervisor")?;
    until("the landscape is down", START_STOP_DEADLINE, || async {
        Ok(running(directory).is_none().then_some(()))
    })
    .await?;
    let _ = fs::remove_file(pid_file(directory));
    Ok(())
}

/// Runs the landscape until SIGTERM, until `with_process` ends, or until a part of the landscape ends by itself.
async fn supervise(directory: &Path, size: Size, with_process: Option<i32>) -> Result<()> {
    let mut stop = signal(SignalKind::terminate())?;
    let mut deaths = signal(SignalKind::child())?;
    let mut gone = Box::pin(end_of(with_process)?);
    let Size { targets, empty } = size;
    let options = Options { targets, empty, directory: Some(directory.to_owned()), ..Options::default() };
    let landscape = tokio::select! {
        landscape = Box::pin(Landscape::start(options)) => landscape?,
        _ = stop.recv() => return Ok(()),
        ended = &mut gone => return ended,
    };
    let outcome = loop {
        tokio::select! {
            _ = stop.recv() => break Ok(()),
            ended = &mut gone => break ended,
            _ = deaths.recv() => if let Err(error) = landscape.check() {
                break Err(error);
            },
        }
    };
    landscape.stop().await?;
    outcome
}

/// Returns a future that is ready when the process has ended, and never without a process.
fn end_of(process: Option<i32>) -> Result<impl Future<Output = Result<()>>> {
    let handle = process.map(handle_of).transpose()?;
    let (sender, receiver) = oneshot::channel();
    if let Some(handle) = handle {
        std::thread::spawn(move || {
            let mut end = [PollFd::new(&handle, PollFlags::IN)];
            // The receiver is gone if the landscape has ended for another reason.
            let _ = sender.send(poll(&mut end, None));
        });
        return Ok(async { receiver.await?.map(drop).context("cannot see the process's end") }.left_future());
    }
    Ok(std::future::pending().right_future())
}

fn handle_of(process: i32) -> Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(process).context("no process has this number")?;
    pidfd_open(pid, PidfdFlags::empty()).context("the process has ended already")
}

/// Returns the supervisor of this directory, if it runs.
fn running(directory: &Path) -> Option<Pid> {
    let pid: i32 = fs::read_to_string(pid_file(directory)).ok()?.trim().parse().ok()?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    String::from_utf8_lossy(&line).contains("supervise").then(|| Pid::from_raw(pid))
}

fn pid_file(directory: &Path) -> PathBuf {
    directory.join("supervisor.pid")
}

fn log(directory: &Path) -> PathBuf {
    directory.join("supervisor.log")
}

#[expect(clippy::print_stdout, reason = "the answer to the person who typed the command")]
fn say(line: &str) {
    println!("{line}");
}
