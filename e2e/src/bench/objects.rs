//! Sends generated objects of all kinds in chunks; each chunk is deleted before the next.

use std::time::Instant;

use anyhow::Result;
use indicatif::ProgressBar;
use serde_json::json;

use super::{Outcome, Row};
use crate::landscape::{Landscape, Options};
use crate::objects::{MIN_STORED_SHARE, ObjectLoad, kinds};
use crate::resident::resident;

/// Maximum number of objects of one kind on the hub.
const MAX_OBJECTS_PER_KIND: usize = 500;
/// Maximum time in seconds until operators report on a regular object.
const MAX_REACTION_SECONDS: f64 = 5.0;

/// Sends `count` objects from `seed`, equally many of each kind. Fails if one gets neither a condition nor a
/// refusal, or if an operator panics, ends, or no longer reports on objects.
///
/// # Errors
/// The landscape does not start, or an object did harm.
pub async fn objects(count: usize, seed: u64) -> Result<Outcome> {
    let landscape = Landscape::start(Options::default()).await?;
    let kinds = kinds()?;
    let mut load = ObjectLoad::new(&landscape, seed)?;
    let start = Instant::now();
    let mut left = vec![count.div_ceil(kinds.len()); kinds.len()];
    let before = memory(&landscape)?;
    let bar = ProgressBar::new(u64::try_from(count)?);
    while left.iter().any(|left| *left > 0) {
        for (kind, left) in kinds.iter().zip(&mut left) {
            let chunk = MAX_OBJECTS_PER_KIND.min(*left);
            if chunk > 0 {
                load.send(kind, chunk).await?;
                load.sweep(kind).await?;
                *left -= chunk;
                bar.inc(u64::try_from(chunk)?);
            }
        }
    }
    bar.finish_and_clear();
    let took = start.elapsed().as_secs_f64();
    let mut rows = Vec::new();
    let (mut stored, mut refused, mut conditions) = (0, 0, 0);
    for (kind, counts) in &load.counts {
        rows.push(Row::plain(format!("{kind}: stored"), number(counts.stored), "objects"));
        rows.push(Row::plain(format!("{kind}: refused by the API"), number(counts.refused), "objects"));
        rows.push(Row::at_least(format!("{kind}: stored share"), counts.share(), "", MIN_STORED_SHARE));
        stored += counts.stored;
        refused += counts.refused;
        conditions += counts.conditions;
    }
    rows.push(Row::plain("objects", number(stored + refused), "objects"));
    rows.push(Row::plain("given a condition", number(conditions), "objects"));
    rows.push(Row::at_most(
        "slowest reaction in between",
        load.slowest.as_secs_f64(),
        "s",
        MAX_REACTION_SECONDS,
    ));
    for ((name, before), (_, after)) in before.into_iter().zip(memory(&landscape)?) {
        rows.push(Row::plain(format!("{name}: memory before"), before, "MiB"));
        rows.push(Row::plain(format!("{name}: memory after"), after, "MiB"));
    }
    rows.push(Row::plain("time", took, "s"));
    landscape.stop().await?;
    Ok(Outcome::new("objects", &json!({"count": count, "seed": seed, "chunk": MAX_OBJECTS_PER_KIND}), rows))
}

fn memory(landscape: &Landscape) -> Result<Vec<(String, f64)>> {
    let of = |process: &testbed::Process| {
        let memory = usize::try_from(resident(process)?.now / 1024)?;
        Ok((process.name().to_owned(), number(memory)))
    };
    landscape.operators().map(of).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a count")]
fn number(count: usize) -> f64 {
    count as f64
}
