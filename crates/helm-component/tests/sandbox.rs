//! The launcher of render programs in the operator's binary.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::TcpListener;
use std::process::{Command, Output};

const BINARY: &str = env!("CARGO_BIN_EXE_helm-component");

fn sandboxed(program: &str, arguments: &[&str]) -> Output {
    let limits = "1073741824:20:1048576:256:4096";
    Command::new(BINARY).args(["render-sandbox", limits, program]).args(arguments).output().unwrap()
}

fn printed(script: &str) -> String {
    let output = sandboxed("/bin/sh", &["-c", script]);
    String::from_utf8(output.stdout).unwrap()
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
