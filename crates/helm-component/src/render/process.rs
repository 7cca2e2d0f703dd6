//! One short-lived program with an empty environment, bounded in time, memory, processor time and output.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::{RenderError, RenderLimits};

/// How much of the program's error text is looked at.
const ERROR_TEXT: usize = 64 << 10;

/// What the program left behind.
pub(super) struct Output {
    /// Whether it exited with 0.
    pub(super) success: bool,
    /// Standard output, complete.
    pub(super) stdout: Vec<u8>,
    /// The first part of standard error. Holds values: reduce it before anybody sees it.
    pub(super) stderr: Vec<u8>,
}

/// Runs `program` in the private directory `home`, with `stdin` as its input.
///
/// The limits are set from outside after the start: `program` must not do anything that matters before it has
/// read its whole input, which is written only then.
pub(super) async fn run(
    program: &Path,
    args: &[String],
    home: &Path,
    stdin: Vec<u8>,
    limits: &RenderLimits,
) -> Result<Output, RenderError> {
    let mut child = spawn(program, args, home)?;
    restrict(&child, limits)?;
    let (Some(mut input), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(RenderError::Engine { detail: "its pipes are missing".to_owned() });
    };
    let work = async {
        let feed = async {
            // A program that stops before it has read everything says why on standard error.
            let _ = input.write_all(&stdin).await;
            drop(input);
        };
        let ((), stdout, stderr) =
            tokio::join!(feed, read_up_to(stdout, limits.output), read_up_to(stderr, ERROR_TEXT));
        let (stdout, stderr) = (stdout.map_err(engine)?, stderr.map_err(engine)?);
        if stdout.len() > limits.output {
            return Err(RenderError::TooLarge { what: "the rendered text", limit: limits.output });
        }
        let status = child.wait().await.map_err(engine)?;
        Ok(Output { success: status.success(), stdout, stderr })
    };
    // On time-out the future is dropped and the program with it (`kill_on_drop`).
    match tokio::time::timeout(limits.deadline, work).await {
        Ok(result) => result,
        Err(_) => Err(RenderError::Timeout { after: limits.deadline }),
    }
}

fn spawn(program: &Path, args: &[String], home: &Path) -> Result<Child, RenderError> {
    Command::new(program)
        .args(args)
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
        .map_err(engine)
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
    let cpu = limits.deadline.as_secs().max(1) * 2;
    for (resource, bound) in [
        (Resource::As, limits.memory),
        (Resource::Cpu, cpu),
        (Resource::Fsize, 1 << 20),
        (Resource::Nofile, 256),
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
