//! Generated objects of all kinds of this project, within and beyond their schemas: no operator panics or stops its
//! queue, and each object gets a condition or is refused by the API server.

#![allow(clippy::print_stdout, reason = "results, shown with --nocapture")]

use anyhow::{Context, Result, ensure};
use e2e::landscape::{Landscape, Options};
use e2e::objects::{Kind, MIN_STORED_SHARE, ObjectLoad, kinds};

/// Seed of the objects, the same in each run; `cargo xtask bench objects` uses others.
const SEED: u64 = 20_260_101;

/// Number of objects of each kind, in this order. A Pause that is left over would block all later objects.
const COUNTS: [(&str, usize); 7] = [
    ("Watcher", 100),
    ("ModuleConfig", 100),
    ("Pause", 100),
    ("ModuleTemplate", 400),
    ("ModuleReleaseMeta", 400),
    ("Kyma", 450),
    ("HelmComponent", 450),
];

#[tokio::test(flavor = "multi_thread")]
async fn each_generated_object_gets_a_condition_or_a_refusal() {
    scenario().await.unwrap();
}

async fn scenario() -> Result<()> {
    let landscape = Landscape::start(Options::default()).await?;
    let kinds = kinds()?;
    ensure!(kinds.len() == COUNTS.len(), "a kind is missing here");
    let mut load = ObjectLoad::new(&landscape, SEED)?;
    for (name, count) in COUNTS {
        let kind = kinds.iter().find(|kind: &&Kind| kind.resource.kind == name);
        load.send(kind.with_context(|| format!("there is no kind {name}"))?, count).await?;
    }
    println!("{:#?} slowest {:?}", load.counts, load.slowest);
    for (kind, counts) in &load.counts {
        let is_sample = counts.share() >= MIN_STORED_SHARE && counts.refused > 10;
        ensure!(is_sample, "{kind}: {counts:?} is no sample of both sides");
    }
    landscape.stop().await
}
