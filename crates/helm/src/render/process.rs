//! Runs one short-lived program with an empty environment and limits on time, memory, processor time and output.

use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::error::RenderError;
use super::launcher;
use super::renderer::RenderLimits;

/// Maximum number of bytes of standard error that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// Output of the program.
pub(super) struct Output {
    /// Whether it exited with 0.
    pub(super) success: bool,
    /// Standard output, complete.
    pub(super) stdout: Vec<u8>,
    /// The first part of standard error. May contain values: reduce it before it is shown or logged.
    pub(super) stderr: Vec<u8>,
}

/// Runs `program` in the private directory `home`, with `stdin` as its input.
///
/// The launcher sets the limits before the program starts. The program and all its descendants end with this call.
pub(super) async fn run(
    program: &Path,
    args: &[String],
    home: &Path,
    stdin: Vec<u8>,
    limits: &RenderLimits,
) -> Result<Output, RenderError> {
    let mut child = spawn(program, args, home, limits)?;
    let _group = ProcessGroup::of(&child);
    let (Some(mut input), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(RenderError::Engine { detail: "its pipes are missing".to_owned() });
    };
    let work = async {
        let feed = async {
            // A program that stops before it has read everything reports the reason on standard error.
            let _ = input.write_all(&stdin).await;
            drop(input);
        };
        let ((), stdout, stderr) =
            tokio::join!(feed, read_up_to(stdout, limits.output), read_up_to(stderr, MAX_ERROR_BYTES));
        let (stdout, stderr) = (stdout.map_err(engine)?, stderr.map_err(engine)?);
        if stdout.len() > limits.output {
            return Err(RenderError::TooLarge { what: "the rendered text", limit: limits.output });
        }
        let status = child.wait().await.map_err(engine)?;
        Ok(Output { success: status.success(), stdout, stderr })
    };
    // On time-out the future is dropped; `kill_on_drop` kills the program, then `ProcessGroup` its descendants.
    match tokio::time::timeout(limits.deadline, work).await {
        Ok(result) => result,
        Err(_) => Err(RenderError::Timeout { after: limits.deadline }),
    }
}

fn spawn(program: &Path, args: &[String], home: &Path, limits: &RenderLimits) -> Result<Child, RenderError> {
    let launcher = launcher::find(limits);
    let mut command = match &launcher {
        Some((path, arguments)) => {
            let mut command = Command::new(path);
            command.args(arguments).arg(program);
            command
        }
        // Only tests run without a launcher.
        None if cfg!(debug_assertions) => Command::new(program),
        None => {
            let detail = "this binary is not a launcher: call run_if_launcher first in its main".to_owned();
            return Err(RenderError::Engine { detail });
        }
    };
    let child = command
        .args(args)
        .process_group(0)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .env("TMPDIR", home)
        .env("HELM_CACHE_HOME", home)
        .env("HELM_CONFIG_HOME", home)
        .env("HELM_DATA_HOME", home)
        .env("HELM_PLUGINS", home.join("no-plugins"))
        .env("KUBECONFIG", home.join("no-kubeconfig"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(engine)?;
    if launcher.is_none() {
        restrict(&child, limits)?;
    }
    Ok(child)
}

/// The process group of a program; dropping it kills the processes in it.
struct ProcessGroup {
    leader: Option<Pid>,
}

impl ProcessGroup {
    fn of(child: &Child) -> Self {
        let leader = child.id().and_then(|id| i32::try_from(id).ok());
        Self { leader: leader.map(Pid::from_raw) }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            // The group may be empty.
            let _ = killpg(leader, Signal::SIGKILL);
        }
    }
}

/// Reads until the end or one byte past `limit`; past the limit of standard error the rest is left unread.
async fn read_up_to(stream: impl AsyncRead + Unpin, limit: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(limit as u64 + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn engine(error: std::io::Error) -> RenderError {
    RenderError::Engine { detail: error.to_string() }
}

#[cfg(target_os = "linux")]
fn restrict(child: &Child, limits: &RenderLimits) -> Result<(), RenderError> {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let Some(pid) = pid else {
        return Err(RenderError::Engine { detail: "it ended before its limits were set".to_owned() });
    };
    for (resource, bound) in [
        (Resource::As, limits.memory),
        (Resource::Cpu, launcher::cpu_seconds(limits)),
        (Resource::Fsize, launcher::MAX_FILE_BYTES),
        (Resource::Nofile, launcher::MAX_OPEN_FILES),
        (Resource::Core, 0),
    ] {
        prlimit(Some(pid), resource, Rlimit { current: Some(bound), maximum: Some(bound) })
            .map_err(|error| engine(error.into()))?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn restrict(_child: &Child, _limits: &RenderLimits) -> Result<(), RenderError> {
    Ok(())
}

#[cfg(test)]
mod tests;
