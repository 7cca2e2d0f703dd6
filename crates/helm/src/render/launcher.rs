//! Starts a render program in a sandbox.
//!
//! The operator's own binary is the launcher: with a hidden command it sets the limits of its process and executes
//! the program. So no instruction of the program runs without limits, and no code runs between fork and exec.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::OnceLock;

use super::renderer::RenderLimits;

#[cfg(target_os = "linux")]
mod system_calls;

/// First argument of the binary as a launcher.
const COMMAND: &str = "render-sandbox";

/// Maximum size of a file that the program writes, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum number of open files of the program.
pub(super) const MAX_OPEN_FILES: u64 = 256;
/// Maximum number of processes and threads of the operator's user. The kernel counts all of that user, also those in
/// other containers.
pub(super) const MAX_PROCESSES: u64 = 4_096;

static IS_LAUNCHER: OnceLock<()> = OnceLock::new();

/// Executes the render program if the process was started as a launcher. A program that renders charts calls this
/// first in `main`.
pub fn run_if_launcher() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(COMMAND)) {
        let _ = IS_LAUNCHER.set(());
        return;
    }
    let why = launch(arguments);
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{why}\n"));
    std::process::exit(126);
}

/// Returns the launcher with its first arguments; `None` if the process has none, as in most tests.
pub(super) fn find(limits: &RenderLimits) -> Option<(PathBuf, Vec<OsString>)> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let path = if IS_LAUNCHER.get().is_some() {
        // Refers to the running binary even after its file was replaced.
        PathBuf::from("/proc/self/exe")
    } else {
        built_beside().filter(|_| cfg!(debug_assertions))?
    };
    let numbers = [limits.memory, cpu_seconds(limits), MAX_FILE_BYTES, MAX_OPEN_FILES, MAX_PROCESSES];
    let numbers = numbers.map(|number| number.to_string()).join(":");
    Some((path, vec![COMMAND.into(), numbers.into()]))
}

/// Returns the limit of processor time, in seconds.
pub(super) fn cpu_seconds(limits: &RenderLimits) -> u64 {
    limits.deadline.as_secs().max(1) * 2
}

/// Returns the operator's binary in the target directory of a test.
fn built_beside() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let directory = test.parent()?.parent()?;
    Some(directory.join("helm-component")).filter(|path| path.is_file())
}

/// Sets the limits of this process and executes the program of the arguments; returns the error.
#[cfg(target_os = "linux")]
fn launch(mut arguments: impl Iterator<Item = OsString>) -> String {
    use std::os::unix::process::CommandExt as _;

    let limits = arguments.next().and_then(|text| parse(text.to_str()?));
    let (Some(limits), Some(program)) = (limits, arguments.next()) else {
        return "the render sandbox lacks limits or a program".to_owned();
    };
    if let Err(why) = restrict(limits) {
        return format!("the render sandbox cannot be set up: {why}");
    }
    let error = std::process::Command::new(program).args(arguments).exec();
    format!("the render program cannot be started: {error}")
}

#[cfg(not(target_os = "linux"))]
fn launch(_arguments: impl Iterator<Item = OsString>) -> String {
    "the render sandbox needs Linux".to_owned()
}

fn parse(text: &str) -> Option<[u64; 5]> {
    let numbers: Vec<u64> = text.split(':').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

#[cfg(target_os = "linux")]
fn restrict([memory, cpu, file, open_files, processes]: [u64; 5]) -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    for (resource, bound) in [
        (Resource::As, memory),
        (Resource::Cpu, cpu),
        (Resource::Fsize, file),
        (Resource::Nofile, open_files),
        (Resource::Nproc, processes),
        (Resource::Core, 0),
    ] {
        // A lower limit stays.
        let hard = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let bound = bound.min(hard);
        let limit = Rlimit { current: Some(bound), maximum: Some(bound) };
        setrlimit(resource, limit).map_err(|error| error.to_string())?;
    }
    system_calls::deny()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_passed_as_text() {
        assert_eq!(parse("1:2:3:4:5"), Some([1, 2, 3, 4, 5]));
        for text in ["", "1:2:3:4", "1:2:3:4:x", "1:2:3:4:5:6"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
