//! helm-component without the time that rendering takes: what `helm` printed for one release is copied for all others.
//! Taking the time of the `helm` processes off would not do, since they also slow down whatever runs beside them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;

use super::{Bench, OPERATOR, patience};

/// Namespace of the releases, and how their names begin.
pub(super) const SIDE: &str = "apart";
/// Name of the release that helm rendered.
const FIRST: &str = "apart-of-helm";

/// Seconds until `count` releases are Ready.
pub(super) async fn measure(bench: &mut Bench, count: usize) -> Result<f64> {
    bench.landscape.render_with(stand_in(bench).await?);
    bench.landscape.start_again(OPERATOR).await?;
    bench.landscape.until_at_rest().await?;
    let start = Instant::now();
    bench.create_all(SIDE, count).await?;
    bench.until_ready(SIDE, count, patience(count)?).await?;
    let took = start.elapsed().as_secs_f64();
    bench.landscape.until_at_rest().await?;
    bench.landscape.kill(OPERATOR)?;
    Ok(took)
}

/// A program that is called as `helm template` is: the name of the release is the last word but one.
async fn stand_in(bench: &Bench) -> Result<PathBuf> {
    let version = bench.target.apiserver_version().await?.git_version;
    let text = bench.helm.template_with_hooks(&bench.chart, FIRST, SIDE, &version).await?;
    let quoted = text.replace('\'', "'\\''").replace(FIRST, "'\"$release\"'");
    let script = format!(
        "#!/bin/sh\nwhile read -r _; do :; done\nfor word; do release=$last; last=$word; done\n\
         printf %s '{quoted}'\n"
    );
    let program = bench.landscape.directory().join("stand-in");
    fs::write(&program, script)?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    Ok(program)
}
