//! Memory of a process and its children while something happens, and the time that the children computed.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// From one look to the next. A child lives for tens of milliseconds, so of some hundreds of looks many see as many as
/// there are at once; looking more often would take part in what is measured.
const EVERY: Duration = Duration::from_millis(100);

/// A measurement that goes on.
pub(super) struct Footprint {
    process: u32,
    before: Seconds,
    stop: oneshot::Sender<()>,
    most: JoinHandle<u64>,
}

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    /// Most memory in RAM of the process and its children at one moment, in MiB; what children share of their program's
    /// file counts once.
    pub(super) most_mib: f64,
    /// Memory in RAM of the process alone at the end, in MiB.
    pub(super) own_mib: f64,
    /// Processor time meanwhile.
    pub(super) seconds: Seconds,
}

/// Processor time, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seconds {
    /// Of the process itself.
    pub(super) own: f64,
    /// Of children that have ended.
    pub(super) children: f64,
}

impl Footprint {
    /// Begins to look at a process.
    ///
    /// # Errors
    /// There is none of that number.
    pub(super) fn begin(process: u32) -> Result<Self> {
        let (stop, mut stopped) = oneshot::channel();
        let most = tokio::spawn(async move {
            let mut ticks = interval(EVERY);
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

    /// What there was until now.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) async fn end(self) -> Result<Used> {
        let Self { process, before, stop, most } = self;
        drop(stop);
        let most = most.await?;
        let own = pages(process).context("the process has ended")?;
        let now = seconds(process)?;
        let seconds = Seconds { own: now.own - before.own, children: now.children - before.children };
        Ok(Used { most_mib: mib(most), own_mib: mib(own.resident), seconds })
    }
}

/// Pages in RAM of a process and its children, which run one program: what they share with its file counts once. Of the
/// children no more is read than this one file, or the kernel would have more to tidy up at the end of each. Those that
/// end meanwhile count for nothing.
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
    /// All of it.
    resident: u64,
    /// Of files, which others may have too.
    shared: u64,
}

/// As proc_pid_statm(5) says.
fn pages(process: u32) -> Option<Pages> {
    let statm = fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let mut fields = statm.split_whitespace().skip(1).map(str::parse);
    let (resident, shared) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(Pages { resident, shared: u64::min(shared, resident) })
}

/// `utime`, `stime`, `cutime` and `cstime` of proc_pid_stat(5).
fn seconds(process: u32) -> Result<Seconds> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The program's name, in brackets, may hold anything.
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
