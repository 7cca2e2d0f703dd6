//! Memory of a process and its children during a task, and the children's processor time.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// Sampling interval. Children live for tens of milliseconds, so hundreds of samples include many with the maximum
/// number of children; shorter intervals would affect the measurement.
const SAMPLING_INTERVAL: Duration = Duration::from_millis(100);

/// A running measurement.
pub(in crate::bench) struct Footprint {
    process: u32,
    before: Seconds,
    stop: oneshot::Sender<()>,
    most: JoinHandle<u64>,
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct ResourceUsage {
    /// Peak memory in RAM of the process and its children, in MiB; the shared program file counts once.
    pub(in crate::bench) most_mib: f64,
    /// Memory in RAM of the process alone at the end, in MiB.
    pub(in crate::bench) own_mib: f64,
    /// Processor time during the measurement.
    pub(in crate::bench) seconds: Seconds,
}

/// Processor time, in seconds.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Seconds {
    /// Processor time of the process.
    pub(in crate::bench) own: f64,
    /// Processor time of its terminated children.
    pub(in crate::bench) children: f64,
}

impl Footprint {
    /// Begins to measure a process.
    ///
    /// # Errors
    /// If the process does not exist.
    pub(in crate::bench) fn begin(process: u32) -> Result<Self> {
        let (stop, mut stopped) = oneshot::channel();
        let most = tokio::spawn(async move {
            let mut ticks = interval(SAMPLING_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let mut most = 0;
            loop {
                tokio::select! {
                    _ = &mut stopped => return most,
                    _ = ticks.tick() => most = most.max(with_children(process)),
                }
            }
        });
        Ok(Self { process, before: seconds(process)?, stop, most })
    }

    /// Ends the measurement.
    ///
    /// # Errors
    /// If the process has ended.
    pub(in crate::bench) async fn end(self) -> Result<ResourceUsage> {
        let Self { process, before, stop, most } = self;
        drop(stop);
        let most = most.await?;
        let own = pages(process).context("the process has ended")?;
        let now = seconds(process)?;
        let seconds = Seconds { own: now.own - before.own, children: now.children - before.children };
        Ok(ResourceUsage { most_mib: mib(most), own_mib: mib(own.resident), seconds })
    }
}

/// Returns the pages in RAM of a process and its children, which run one program: shared file pages count once. Only
/// this file is read of each child, since more would slow down its exit. Children that end meanwhile are not counted.
fn with_children(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<Pages> = lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|child| pages(child.parse().ok()?)).collect::<Vec<_>>()
        })
        .collect();
    let own: u64 = children.iter().map(|child| child.resident - child.shared).sum();
    let shared = children.iter().map(|child| child.shared).max().unwrap_or_default();
    pages(process).map_or(0, |parent| parent.resident) + own + shared
}

/// Memory in RAM, in pages.
struct Pages {
    /// All pages.
    resident: u64,
    /// Pages of files, which may be shared.
    shared: u64,
}

/// Parses proc_pid_statm(5).
fn pages(process: u32) -> Option<Pages> {
    let statm = fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let mut fields = statm.split_whitespace().skip(1).map(str::parse);
    let (resident, shared) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(Pages { resident, shared: u64::min(shared, resident) })
}

/// Parses `utime`, `stime`, `cutime` and `cstime` of proc_pid_stat(5).
fn seconds(process: u32) -> Result<Seconds> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The program's name in brackets may contain any character.
    let (_, fields) = stat.rsplit_once(')').with_context(|| path.clone())?;
    let ticks: Vec<f64> =
        fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    let [user, system, children_user, children_system] = ticks[..] else { bail!("{path} is cut off") };
    let per_second = f64::from(u32::try_from(rustix::param::clock_ticks_per_second())?);
    Ok(Seconds {
        own: (user + system) / per_second,
        children: (children_user + children_system) / per_second,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn mib(pages: u64) -> f64 {
    (pages * rustix::param::page_size() as u64) as f64 / 1024.0 / 1024.0
}
