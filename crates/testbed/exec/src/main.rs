//! Ends processes and removes directories of a test environment with the process that uses them.
//!
//! - `testbed-exec run PARENT PROGRAM [ARGUMENT]...` becomes PROGRAM, which the kernel kills as soon as the
//!   process PARENT has ended, for any reason.
//! - `testbed-exec sweep DIRECTORY` waits for the end of its standard input, which the user of the test environment
//!   holds open for as long as it lives, then removes DIRECTORY.

use std::env::args_os;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

/// Exit status for a failure, as a shell reports a program that cannot be started.
const EXIT_CANNOT_EXECUTE: u8 = 126;

fn main() -> ExitCode {
    let mut arguments = args_os().skip(1);
    let problem = match arguments.next().as_deref().and_then(|mode| mode.to_str()) {
        Some("run") => run(arguments),
        Some("sweep") => match arguments.next() {
            Some(directory) => return sweep(Path::new(&directory)),
            None => "sweep: which directory?".to_owned(),
        },
        _ => "usage: testbed-exec run PARENT PROGRAM [ARGUMENT]... | sweep DIRECTORY".to_owned(),
    };
    print_error(&problem);
    ExitCode::from(EXIT_CANNOT_EXECUTE)
}

/// Returns only what went wrong: on success the program has taken this process over.
fn run(mut arguments: impl Iterator<Item = OsString>) -> String {
    let parent = arguments.next().and_then(|pid| pid.to_str()?.parse::<i32>().ok());
    let (Some(parent), Some(program)) = (parent, arguments.next()) else {
        return "run: which parent, which program?".to_owned();
    };
    // SIGKILL and not SIGTERM: an apiserver that is asked to stop after its etcd has gone hangs for minutes.
    if let Err(error) = set_pdeathsig(Signal::SIGKILL) {
        return format!("cannot set the death signal: {error}");
    }
    // The signal is sent for deaths from now on; a parent that died before is seen by the adoption.
    if getppid().as_raw() != parent {
        return format!("process {parent} has gone already");
    }
    let error = Command::new(&program).args(arguments).exec();
    format!("cannot start {}: {error}", program.display())
}

fn sweep(directory: &Path) -> ExitCode {
    let mut ignored = [0_u8; 64];
    while matches!(std::io::stdin().read(&mut ignored), Ok(read) if read > 0) {}
    // The dying processes may still be creating files for some milliseconds.
    let deadline = Instant::now() + Duration::from_secs(30);
    while directory.exists() && Instant::now() < deadline {
        if std::fs::remove_dir_all(directory).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    ExitCode::from(u8::from(directory.exists()))
}

#[expect(clippy::print_stderr, reason = "standard error is the log of the process that is being started")]
fn print_error(problem: &str) {
    eprintln!("testbed-exec: {problem}");
}
