//! Every file of fuzz targets is built and has seeds, few and small.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::fuzz::{DIRECTORY, targets};

/// Seeds of one target at most, and their bytes in all.
const SEEDS: usize = 30;
const BYTES: u64 = 100 << 10;

#[derive(Deserialize)]
struct Manifest {
    bin: Vec<Bin>,
}

#[derive(Deserialize)]
struct Bin {
    name: String,
}

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let manifest = root.join(DIRECTORY).join("Cargo.toml");
    let text =
        fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let manifest: Manifest = toml::from_str(&text)?;
    let built: BTreeSet<String> = manifest.bin.into_iter().map(|bin| bin.name).collect();
    let targets: BTreeSet<String> = targets(root)?.into_iter().collect();
    let mut findings: Vec<String> =
        targets.symmetric_difference(&built).map(|name| one_sided(name, &built)).collect();
    for target in &targets {
        let place = Path::new(DIRECTORY).join("corpus").join(target);
        let seeds = files.iter().filter(|path| path.starts_with(&place));
        let sizes = seeds.map(|path| Ok(fs::metadata(root.join(path))?.len())).collect::<Result<Vec<_>>>()?;
        findings.extend(seeds_of(target, &sizes));
    }
    Ok(findings)
}

fn one_sided(name: &str, built: &BTreeSet<String>) -> String {
    if built.contains(name) {
        format!("{DIRECTORY}/Cargo.toml: {name} has no file in fuzz_targets")
    } else {
        format!("{DIRECTORY}/fuzz_targets/{name}.rs: no [[bin]] in {DIRECTORY}/Cargo.toml")
    }
}

fn seeds_of(target: &str, sizes: &[u64]) -> Option<String> {
    let bytes: u64 = sizes.iter().sum();
    let place = format!("{DIRECTORY}/corpus/{target}");
    match sizes.len() {
        0 => Some(format!("{place}: no seeds")),
        count if count > SEEDS || bytes > BYTES => {
            Some(format!("{place}: {count} seeds of {bytes} bytes; {SEEDS} of {BYTES} bytes are the most"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_needs_few_and_small_seeds() {
        assert!(seeds_of("a", &[1, 2]).is_none());
        for sizes in [vec![], vec![1; 31], vec![BYTES, 1]] {
            assert!(seeds_of("a", &sizes).is_some(), "{sizes:?}");
        }
    }

    #[test]
    fn a_target_that_is_not_built_is_told_from_one_without_its_file() {
        let built = BTreeSet::from(["a".to_owned()]);
        assert!(one_sided("a", &built).contains("no file"));
        assert!(one_sided("b", &built).contains("no [[bin]]"));
    }
}
