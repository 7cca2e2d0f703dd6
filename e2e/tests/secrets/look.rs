//! What people are shown, and whether the search would see anything.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use e2e::emitted::Output;

use crate::planted::WORD;
use crate::world::World;

/// What people are shown who ask.
pub(crate) async fn kymactl(world: &World) -> Result<Vec<Output>> {
    let mut all = Vec::new();
    let way = ["target", "test", WORD, "--allow-loopback-targets"];
    for arguments in [&["status"] as &[&str], &["status", "--output=json"], &way] {
        let output = world.landscape.kymactl().args(arguments).output().await?;
        let text = [output.stdout, output.stderr].concat();
        let kind = format!("kymactl {}", arguments.join(" "));
        all.push(Output { place: kind.clone(), kind, text: String::from_utf8_lossy(&text).into_owned() });
    }
    Ok(all)
}

/// Kinds of output in which the harmless word is not to be found.
pub(crate) fn without_the_word(outputs: &[Output]) -> BTreeSet<&str> {
    let mut seen: BTreeMap<&str, bool> = BTreeMap::new();
    for output in outputs {
        // Metrics name no object but Kymas, and those are kyma-operator's: a reason has to do.
        let has_no_names = output.kind.starts_with("metrics of ") && !output.kind.ends_with("kyma-operator");
        let word = if has_no_names { "AccessInvalid" } else { WORD };
        *seen.entry(&output.kind).or_default() |= output.text.contains(word);
    }
    seen.into_iter().filter(|(_, found)| !found).map(|(kind, _)| kind).collect()
}
