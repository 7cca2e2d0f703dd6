//! What `up` leaves for people and scripts: kubeconfigs and a shell file that says where they are.

use std::fs;

use anyhow::Result;

use super::Landscape;

/// Writes `hub.kubeconfig`, `target-N.kubeconfig` and `env` into the landscape's directory.
///
/// # Errors
/// A file cannot be written.
pub fn write_state(landscape: &Landscape) -> Result<()> {
    let directory = landscape.directory();
    for cluster in std::iter::once(landscape.hub()).chain(landscape.targets()) {
        fs::write(directory.join(format!("{}.kubeconfig", cluster.name())), cluster.kubeconfig())?;
    }
    fs::write(directory.join("env"), env_file(landscape))?;
    Ok(())
}

/// A shell file: `HUB_KUBECONFIG`, `TARGET_1_KUBECONFIG` …, `REGISTRY`, `LOGS`.
pub fn env_file(landscape: &Landscape) -> String {
    let directory = landscape.directory().display();
    let mut lines = vec![
        format!("HUB_KUBECONFIG={directory}/hub.kubeconfig"),
        format!("REGISTRY={}", landscape.registry().address()),
        format!("LOGS={directory}/logs"),
        format!("KYMACTL={}", landscape.bin("kymactl").display()),
    ];
    for number in 1..=landscape.targets().len() {
        lines.push(format!("TARGET_{number}_KUBECONFIG={directory}/target-{number}.kubeconfig"));
    }
    lines.join("\n") + "\n"
}
