//! Resident memory of a process.

use std::fs;

use anyhow::{Context, Result};
use testbed::Process;

/// Memory of a process that is in RAM, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentMemory {
    /// Present value.
    pub now: u64,
    /// Peak since the process began or [`forget_peak`] was called.
    pub peak: u64,
}

/// Returns the resident memory of a process.
///
/// # Errors
/// If the process has ended.
pub fn resident(process: &Process) -> Result<ResidentMemory> {
    let path = format!("/proc/{}/status", process.id());
    let status = fs::read_to_string(&path).with_context(|| path.clone())?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let value = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
        value.with_context(|| format!("{path} has no {name}"))
    };
    Ok(ResidentMemory { now: field("VmRSS")?, peak: field("VmHWM")? })
}

/// Resets the peak.
///
/// # Errors
/// If the process has ended.
pub fn forget_peak(process: &Process) -> Result<()> {
    let path = format!("/proc/{}/clear_refs", process.id());
    fs::write(&path, "5").context(path)
}
