//! Output of kymactl, and the check that the search covers every kind of output.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use e2e::outputs::Output;

use crate::planted::HARMLESS_WORD;
use crate::world::World;

/// Returns the output of kymactl commands about the Kyma.
pub(crate) async fn kymactl(world: &World) -> Result<Vec<Output>> {
    let mut all = Vec::new();
    let way = ["target", "test", HARMLESS_WORD, "--allow-loopback-targets"];
    for arguments in [&["status"] as &[&str], &["status", "--output=json"], &way] {
        let output = world.landscape.kymactl().args(arguments).output().await?;
        let text = [output.stdout, output.stderr].concat();
        let kind = format!("kymactl {}", arguments.join(" "));
        all.push(Output { place: kind.clone(), kind, text: String::from_utf8_lossy(&text).into_owned() });
    }
    Ok(all)
}

/// Returns the kinds of output that do not contain the harmless word.
pub(crate) fn without_the_word(outputs: &[Output]) -> BTreeSet<&str> {
    let mut seen: BTreeMap<&str, bool> = BTreeMap::new();
    for output in outputs {
        // Only kyma-operator's metrics name objects, namely Kymas; in those of other operators a reason is
        // searched.
        let has_no_names = output.kind.starts_with("metrics of ") && !output.kind.ends_with("kyma-operator");
        let word = if has_no_names { "AccessInvalid" } else { HARMLESS_WORD };
        *seen.entry(&output.kind).or_default() |= output.text.contains(word);
    }
    seen.into_iter().filter(|(_, found)| !found).map(|(kind, _)| kind).collect()
}
