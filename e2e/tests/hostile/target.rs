//! Runs the faults of the hostile target one by one.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::outputs;
use e2e::resident::{ResidentMemory, forget_peak, resident};
use testbed::{RequestMatcher, until_or_why};

use crate::calm::{Reactions, react};
use crate::faults::{Fault, PLANTED, all};
use crate::world::{HOSTILE, World};

/// Operators that send requests to targets of Kymas.
const OPERATORS: [&str; 3] = ["kyma-operator", "helm-component", "release-meta-syncer"];
/// Maximum memory of each operator in KiB: up to 80 MiB without faults, one large answer (16 MiB, copied twice by the
/// client) and its decoded form (96 MiB estimated).
const MAX_MEMORY_KIB: u64 = 256 * 1024;
/// Number of measurements; the median tolerates that nearly half of them are slow for another reason.
const MEASUREMENT_COUNT: usize = 9;
/// Maximum number of rounds in which a fault may slow down the healthy target.
const MAX_ROUNDS: usize = 3;
/// Time by which the slowest reaction of the healthy target may exceed twice the time before: a call that hangs
/// takes 15 s, and this machine may be busy.
const MAX_SLOWDOWN: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_mins(2);

pub(crate) async fn scenario(world: &World) -> Result<()> {
    for fault in all() {
        Box::pin(leaves_healthy_targets_alone(world, &fault)).await.with_context(|| fault.name.to_owned())?;
    }
    Ok(())
}

/// Repeats a fault that slowed down the healthy target: if the machine was busy, the next round passes.
async fn leaves_healthy_targets_alone(world: &World, fault: &Fault) -> Result<()> {
    let mut moved = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let mut before = Vec::new();
        for _ in 0..MEASUREMENT_COUNT {
            before.push(react(world).await?);
        }
        let during = meet(world, fault).await?;
        let [longest_before, longest] = [&before, &during].map(|tries| Reactions::slowest(tries));
        let [was, is] = [&before, &during].map(|tries| Reactions::median(tries));
        println!("{:<32} {is} at the median; before: {was}", "");
        if is.within(was, bearable) && longest <= longest_before * 2 + MAX_SLOWDOWN {
            return Ok(());
        }
        moved.push(format!(
            "{is} at the median, {longest:?} at most, after {was}, {longest_before:?} at most"
        ));
    }
    bail!("the calm target was moved each time: {moved:?}")
}

/// Returns the maximum median for a reaction with this median before.
fn bearable(before: Duration) -> Duration {
    before * 3 / 2 + Duration::from_millis(100)
}

/// Enables the fault until every operator has met it and the Kyma reports it. Returns the reaction times of the
/// healthy target meanwhile.
async fn meet(world: &World, fault: &Fault) -> Result<Vec<Reactions>> {
    let start = Instant::now();
    for name in OPERATORS {
        forget_peak(world.landscape.operator(name)?)?;
    }
    let seen = world.hostile.requests().len();
    let sent_before = fault.sent.as_ref().map_or(0, |(_, sent)| sent.load(Ordering::Relaxed));
    for (matching, answer) in fault.rules.clone() {
        world.hostile.always(matching, answer);
    }
    world.grant(HOSTILE, &world.access, world.next_number()).await?;
    until_or_why("every operator meets it", DEADLINE, || async {
        let requests = world.hostile.requests();
        let met = |name: &str| {
            let fits = |request: &testbed::ReceivedRequest| {
                fault.rules.iter().any(|(matching, _)| matching.fits(request))
            };
            requests[seen..].iter().any(|request| request.user_agent.starts_with(name) && fits(request))
        };
        let missing: Vec<_> = OPERATORS.into_iter().filter(|name| !met(name)).collect();
        Ok(if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} has not")) })
    })
    .await?;
    let mut during = vec![react(world).await?];
    if !fault.reasons.is_empty() {
        world.says(HOSTILE, "Ready", fault.reasons).await?;
    }
    if let Some((enough, sent)) = &fault.sent {
        until_or_why("enough was sent", DEADLINE, || async {
            let sent = sent.load(Ordering::Relaxed) - sent_before;
            Ok(if sent >= *enough { Ok(()) } else { Err(sent.to_string()) })
        })
        .await?;
    }
    for _ in 1..MEASUREMENT_COUNT {
        during.push(react(world).await?);
    }
    let memory = memory(world)?;
    world.hostile.clear();
    world.grant(HOSTILE, &world.access, world.next_number()).await?;
    world.is_ready(HOSTILE).await?;
    println!("{:<32} {memory} {:>6.1?}", fault.name, start.elapsed());
    ensure!(memory.most() <= MAX_MEMORY_KIB, "an operator holds too much: {memory}");
    Ok(during)
}

/// Checks that no output contains texts of the hostile target.
pub(crate) async fn check_no_output_repeats(world: &World) -> Result<()> {
    let clusters = [&world.calm, &world.behind, &world.shop];
    let outputs = outputs::collect(&world.landscape, &clusters).await?;
    let leaks = outputs.iter().filter(|output| output.text.contains(PLANTED));
    let leaks: Vec<String> = leaks.map(|output| format!("{}: {}", output.place, output.text)).collect();
    ensure!(leaks.is_empty(), "{} repeat it:\n{}", leaks.len(), leaks.join("\n"));
    let words = outputs.iter().any(|output| output.text.contains("TargetAnswerInvalid"));
    ensure!(words && world.hostile.count(&RequestMatcher::any()) > 0, "the search sees nothing");
    Ok(())
}

/// Resident memory of the operators.
struct MemoryUse(Vec<(&'static str, ResidentMemory)>);

fn memory(world: &World) -> Result<MemoryUse> {
    let of = |name: &'static str| Ok((name, resident(world.landscape.operator(name)?)?));
    OPERATORS.into_iter().map(of).collect::<Result<_>>().map(MemoryUse)
}

impl MemoryUse {
    fn most(&self) -> u64 {
        self.0.iter().map(|(_, memory)| memory.peak).max().unwrap_or_default()
    }
}

impl std::fmt::Display for MemoryUse {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<String> =
            self.0.iter().map(|(name, memory)| format!("{name} {} MiB", memory.peak / 1024)).collect();
        out.write_str(&all.join(", "))
    }
}
