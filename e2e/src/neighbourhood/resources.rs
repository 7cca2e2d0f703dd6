//! System resources of an operator.

use std::convert::Infallible;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::OPERATOR;
use crate::landscape::Landscape;

/// Sampling interval.
const SAMPLING_INTERVAL: Duration = Duration::from_millis(200);

/// Peak values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperatorResources {
    /// Sockets, including those to the hub.
    pub sockets: usize,
    /// Threads.
    pub threads: usize,
    /// Tasks of its async runtime.
    pub tasks: usize,
}

impl OperatorResources {
    /// Returns the maximum of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            sockets: self.sockets.max(other.sockets),
            threads: self.threads.max(other.threads),
            tasks: self.tasks.max(other.tasks),
        }
    }
}

/// Samples the operator's resources during a task.
pub(super) async fn during<T>(
    landscape: &Landscape,
    work: impl Future<Output = Result<T>>,
) -> Result<(T, OperatorResources)> {
    let peak = Mutex::new(OperatorResources::default());
    let sampling = async {
        let mut ticks = interval(SAMPLING_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let now = read(landscape).await?;
            let mut peak = peak.lock();
            *peak = peak.or(now);
        }
    };
    let done = tokio::select! {
        done = work => done?,
        failed = sampling => match failed { Err(error) => return Err(error), Ok(never) => never_ends(never) },
    };
    Ok((done, peak.into_inner()))
}

fn never_ends<T>(never: Infallible) -> T {
    match never {}
}

/// Returns the present resources.
pub(super) async fn read(landscape: &Landscape) -> Result<OperatorResources> {
    let process = landscape.operator(OPERATOR)?.id();
    let open = fs::read_dir(format!("/proc/{process}/fd")).context("the operator has ended")?;
    let is_socket = |link: &fs::DirEntry| {
        fs::read_link(link.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    };
    let sockets = open.filter_map(Result::ok).filter(is_socket).count();
    let threads = fs::read_dir(format!("/proc/{process}/task")).context("the operator has ended")?.count();
    let metrics = landscape.metrics(OPERATOR).await?;
    let tasks = metrics.lines().find_map(|line| line.strip_prefix("runtime_tasks ")?.trim().parse().ok());
    Ok(OperatorResources { sockets, threads, tasks: tasks.context("the operator does not count its tasks")? })
}
