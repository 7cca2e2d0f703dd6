//! The launcher of render programs in the operator's binary.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::TcpListener;
use std::process::{Child, Command, Output};

const BINARY: &str = env!("CARGO_BIN_EXE_helm-component");

fn sandboxed(program: &str, arguments: &[&str]) -> Output {
    let limits = "1073741824:20:1048576:256:4096";
    Command::new(BINARY).args(["render-sandbox", limits, program]).args(arguments).output().unwrap()
}

fn printed(script: &str) -> String {
    let output = sandboxed("/bin/sh", &["-c", script]);
    String::from_utf8(output.stdout).unwrap()
}

/// A program that makes a system call with numbers as arguments and prints the error number, or 0. It replaces the
/// argument `self` by its process id.
const MAKE_CALL: &str = r#"
my @call = map { $_ eq "self" ? $$ : $_ + 0 } @ARGV;
my $result = syscall(shift @call, @call);
print $result < 0 ? $! + 0 : 0;
"#;

/// Returns the error number of a system call, or 0.
fn call_error(number: i64, arguments: &[&str]) -> i32 {
    let number = number.to_string();
    let mut all = vec!["-e", MAKE_CALL, number.as_str()];
    all.extend_from_slice(arguments);
    let output = sandboxed("/usr/bin/perl", &all);
    assert!(output.status.success(), "call {number}: {output:?}");
    String::from_utf8(output.stdout).unwrap().parse().unwrap()
}

/// A process outside the sandbox; dropping it ends it.
struct OtherProcess(Child);

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn limits_are_in_force_before_the_first_instruction() {
    let limits = printed("ulimit -v; ulimit -t; ulimit -c; ulimit -n; ulimit -f; /bin/cat /proc/self/limits");
    assert!(limits.starts_with("1048576\n20\n0\n256\n2048\n"), "{limits}");
    let processes = limits.lines().find(|line| line.starts_with("Max processes")).unwrap();
    let bound: u64 = processes.split_whitespace().nth(2).unwrap().parse().unwrap();
    assert!(bound <= 4096, "{processes}");
}

#[test]
fn the_program_gains_no_privileges() {
    let status = printed("/bin/cat /proc/self/status");
    assert!(status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"])), "{status}");
    assert!(status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"])), "{status}");
}

#[test]
fn the_program_reaches_no_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
    let output = sandboxed("/bin/bash", &["-c", &connect]);
    assert!(!output.status.success());
    assert!(listener.accept().is_err(), "the program connected");
    let outside = Command::new("/bin/bash").args(["-c", &connect]).output().unwrap();
    assert!(outside.status.success() && listener.accept().is_ok(), "the command is one that connects");
}

#[test]
fn descendants_cannot_leave_the_process_group() {
    // The child of setsid fails, not the program itself.
    let output = sandboxed("/usr/bin/setsid", &["-f", "/bin/true"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("not permitted"), "{output:?}");
}

#[test]
fn without_limits_nothing_is_started() {
    let output = Command::new(BINARY).args(["render-sandbox", "1:2", "/bin/echo", "x"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(126), &b""[..]));
}

#[test]
fn the_program_cannot_signal_or_limit_other_processes() {
    let other = OtherProcess(Command::new("/bin/sleep").arg("600").spawn().unwrap());
    let id = other.0.id().to_string();
    let id = id.as_str();
    let core = libc::RLIMIT_CORE.to_string();
    let set_owner = libc::F_SETOWN.to_string();
    let calls: [(i64, &[&str]); 14] = [
        (libc::SYS_kill, &[id, "0"]),
        (libc::SYS_tkill, &[id, "0"]),
        (libc::SYS_tgkill, &[id, id, "0"]),
        (libc::SYS_rt_sigqueueinfo, &[id, "0", "0"]),
        (libc::SYS_rt_tgsigqueueinfo, &[id, id, "0", "0"]),
        (libc::SYS_pidfd_open, &[id, "0"]),
        (libc::SYS_pidfd_send_signal, &["-1", "0", "0", "0"]),
        (libc::SYS_prlimit64, &[id, core.as_str(), "0", "0"]),
        (libc::SYS_setpriority, &["0", id, "19"]),
        (libc::SYS_sched_setaffinity, &[id, "0", "0"]),
        (libc::SYS_fcntl, &["1", set_owner.as_str(), id]),
        // F_SETOWN_EX, FIOSETOWN and SIOCSPGRP, with an address that cannot be read.
        (libc::SYS_fcntl, &["1", "15", "0"]),
        (libc::SYS_ioctl, &["1", "35073", "0"]),
        (libc::SYS_ioctl, &["1", "35074", "0"]),
    ];
    for (number, arguments) in calls {
        assert_eq!(call_error(number, arguments), libc::EPERM, "call {number}");
    }
    let outside = Command::new("/bin/sh").args(["-c", &format!("kill -0 {id}")]).status().unwrap();
    assert!(outside.success(), "the process is one that can be signalled");
}

#[test]
fn the_program_can_signal_and_limit_itself() {
    let core = libc::RLIMIT_CORE.to_string();
    let get_owner = libc::F_GETOWN.to_string();
    let calls: [(i64, &[&str]); 5] = [
        (libc::SYS_fcntl, &["1", get_owner.as_str()]),
        (libc::SYS_kill, &["self", "0"]),
        (libc::SYS_tgkill, &["self", "self", "0"]),
        (libc::SYS_prlimit64, &["self", core.as_str(), "0", "0"]),
        (libc::SYS_prlimit64, &["0", core.as_str(), "0", "0"]),
    ];
    for (number, arguments) in calls {
        assert_eq!(call_error(number, arguments), 0, "call {number}");
    }
}

#[test]
fn the_program_cannot_create_namespaces() {
    let clone = |flags: i32| call_error(libc::SYS_clone, &[flags.to_string().as_str(), "0", "0", "0", "0"]);
    // The kernel rejects CLONE_THREAD without CLONE_SIGHAND as invalid, so no call creates a process.
    assert_eq!(clone(libc::CLONE_THREAD), libc::EINVAL, "the filter lets other flags pass");
    for flag in [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ] {
        assert_eq!(clone(flag | libc::CLONE_THREAD), libc::EPERM, "{flag:#x}");
    }
    assert_eq!(call_error(libc::SYS_clone3, &["0", "0"]), libc::ENOSYS, "callers use clone instead");
    assert_eq!(call_error(libc::SYS_unshare, &["0"]), libc::EPERM);
}
