//! A component's operator as a child process.

use std::{collections::VecDeque, ffi::OsString, process::Stdio, sync::Arc, time::Duration};

use kyma_controller::Process;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStderr, Command},
    time::timeout,
};

use super::program::{ComponentProgram, unstartable};
use crate::{
    error::Error,
    output::{one_line, remark},
};

/// Time between SIGTERM and SIGKILL. Shorter than the grace period of all operators.
const GRACE_PERIOD: Duration = Duration::from_secs(15);
/// Time to read the rest of the log after the child has exited. Descendants of the child can keep the log open.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of the last log lines in an error.
const MAX_LOG_LINES: usize = 10;

/// The last lines of a log.
type LogTail = Arc<Mutex<VecDeque<String>>>;

impl ComponentProgram {
    /// Runs the program until the process shuts down, and then stops it.
    ///
    /// # Errors
    /// If the program cannot be started or exits before.
    pub(in crate::command::run) async fn run(
        self,
        arguments: Vec<OsString>,
        process: Process,
    ) -> Result<(), Error> {
        let mut command = Command::new(&self.path);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // The variable excludes the mode; colours would reach the user as control characters.
        command.env_remove("LOCAL_KYMA").env("NO_COLOR", "1");
        // Ctrl-C reaches kymactl alone, which stops the child.
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| unstartable(&self.path, &error))?;
        let tail = LogTail::default();
        let log = child.stderr.take().map(|log| tokio::spawn(copy_log(log, self.name.clone(), tail.clone())));
        let ended = tokio::select! {
            status = child.wait() => Some(status),
            () = process.shutdown.cancelled() => {
                stop(&mut child, &self.name).await;
                None
            }
        };
        if let Some(log) = log {
            // After the timeout the lines read so far are reported.
            _ = timeout(LOG_TIMEOUT, log).await;
        }
        let Some(status) = ended.filter(|_| !process.shutdown.is_cancelled()) else { return Ok(()) };
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let lines: Vec<String> = tail.lock().iter().cloned().collect();
        Err(Error::component_ended(&self.name, status, &lines))
    }
}

/// Copies the log to standard error line by line and keeps its last lines.
async fn copy_log(log: ChildStderr, program: String, tail: LogTail) {
    let mut lines = BufReader::new(log).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = one_line(&String::from_utf8_lossy(&line));
        remark_line(&program, &line);
        let mut tail = tail.lock();
        if tail.len() == MAX_LOG_LINES {
            tail.pop_front();
        }
        tail.push_back(line);
    }
}

/// Writes a line of a program's log to standard error.
fn remark_line(program: &str, line: &str) {
    remark(&format!("{program}: {line}"));
}

/// Stops the child by SIGTERM, and after the grace period by SIGKILL.
async fn stop(child: &mut Child, program: &str) {
    if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
        // An error means that it has exited.
        _ = kill(Pid::from_raw(id), Signal::SIGTERM);
    }
    if timeout(GRACE_PERIOD, child.wait()).await.is_err() {
        tracing::warn!(program, "component program did not stop in time and is killed");
        // An error means that it has exited.
        _ = child.kill().await;
    }
}
