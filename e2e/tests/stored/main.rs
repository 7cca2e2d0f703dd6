//! Objects that earlier versions of helm-component stored are understood by the current one.
//!
//! A recording has the objects that hub and target stored when helm-component of its version stopped, with components
//! in ten states. It is restored into new clusters, the current CRDs and roles are applied as in an upgrade, and the
//! current helm-component starts: it writes nothing to the target, runs no hook twice, and continues from each state.
//!
//! With `TEST_WRITE=1` the suite first records the current version, unless `e2e/fixtures/stored` has its recording.

mod charts;
#[path = "../interrupted/clock.rs"]
mod clock;
mod clusters;
mod record;
mod recording;
mod replay;
mod states;

use anyhow::{Result, ensure};

use recording::Recording;

#[tokio::test(flavor = "multi_thread")]
async fn objects_stored_by_earlier_versions_are_understood() -> Result<()> {
    let file_server = charts::serve().await?;
    let path = recording::current();
    if std::env::var_os("TEST_WRITE").is_some_and(|value| value == "1") && !path.exists() {
        record::record(&file_server).await?.save(&path)?;
    }
    let paths = recording::all()?;
    ensure!(!paths.is_empty(), "there is no recording; run with TEST_WRITE=1");
    let mut failures = Vec::new();
    for path in paths {
        let recording = Recording::load(&path)?;
        if let Err(failure) = replay::replay(&recording, &file_server).await {
            failures.push(format!("{}: {failure:?}", path.display()));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}
