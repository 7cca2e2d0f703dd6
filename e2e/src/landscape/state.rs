//! Files that `up` writes: kubeconfigs, and a shell file with their paths.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::Landscape;

/// Writes `hub.kubeconfig`, `target-N.kubeconfig` and, last, `env` with these further lines into the landscape's
/// directory.
pub(super) fn write(landscape: &Landscape, more: &[String]) -> Result<()> {
    let directory = landscape.directory();
    for cluster in std::iter::once(landscape.hub()).chain(landscape.targets()) {
        private(&directory.join(format!("{}.kubeconfig", cluster.name())), &cluster.kubeconfig())?;
    }
    let more: String = more.iter().map(|line| format!("{line}\n")).collect();
    private(&directory.join("env"), &(env_file(landscape) + &more))
}

/// Writes a file with owner-only permissions: kubeconfigs contain credentials.
pub(super) fn private(path: &Path, content: &str) -> Result<()> {
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| file.write_all(content.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Returns a shell file with `HUB_KUBECONFIG`, `TARGET_1_KUBECONFIG` …, `REGISTRY`, `LOGS`, `KYMACTL`.
pub fn env_file(landscape: &Landscape) -> String {
    let file = |name: &str| quoted(&landscape.directory().join(name).display().to_string());
    let mut lines = vec![
        format!("HUB_KUBECONFIG={}", file("hub.kubeconfig")),
        format!("REGISTRY={}", landscape.registry().address()),
        format!("LOGS={}", file("logs")),
        format!("KYMACTL={}", quoted(&landscape.bin("kymactl").display().to_string())),
    ];
    for number in 1..=landscape.targets().len() {
        lines.push(format!("TARGET_{number}_KUBECONFIG={}", file(&format!("target-{number}.kubeconfig"))));
    }
    lines.join("\n") + "\n"
}

/// Quotes any text as one word for a shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_one_word_in_a_shell() {
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
    }
}
