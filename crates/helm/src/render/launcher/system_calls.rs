//! The system calls that a render program cannot make.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Rules for system calls, by number. A call is denied if one of its rules matches, or if it has none.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that are denied whatever their arguments.
const DENIED: [i64; 24] = [
    // The network.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    // Makes other calls past the filter.
    libc::SYS_io_uring_setup,
    libc::SYS_bpf,
    // Process groups and sessions, in which a descendant could outlive the program.
    libc::SYS_setsid,
    libc::SYS_setpgid,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    // Memory, files, signals and scheduling of other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
];

/// Calls that send a signal to the process or thread in the first argument. The Go runtime sends signals to its own
/// process to preempt goroutines.
const SIGNALS: [i64; 5] = [
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// Calls that set the process to which the kernel sends the signals of a file, each with the value of its second
/// argument: `F_SETOWN`, `F_SETOWN_EX`, `FIOSETOWN` and `SIOCSPGRP`. The program chooses the signal with `F_SETSIG`.
const SIGNAL_RECEIVERS: [(i64, [u64; 2]); 2] =
    [(libc::SYS_fcntl, [8, 15]), (libc::SYS_ioctl, [0x8901, 0x8902])];

/// Flags of `clone` that create a namespace.
const NAMESPACE_FLAGS: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Denies this process, and the program that it executes, the calls of this module. Sets `no_new_privs`.
pub(super) fn deny() -> Result<(), String> {
    let rules = denied_calls(std::process::id()).map_err(|error| error.to_string())?;
    apply(rules, libc::EPERM)?;
    // A filter cannot read the flags of `clone3`. After this error, C libraries and Go use `clone`.
    apply(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)
}

/// Returns the rules for a program with the process id `own_id`.
fn denied_calls(own_id: u32) -> Result<Rules, BackendError> {
    let own_id = u64::from(own_id);
    let mut rules: Rules = DENIED.into_iter().map(|call| (call, Vec::new())).collect();
    for call in SIGNALS {
        rules.insert(call, vec![SeccompRule::new(vec![argument(0, SeccompCmpOp::Ne, own_id)?])?]);
    }
    for (call, commands) in SIGNAL_RECEIVERS {
        let rule = |command| SeccompRule::new(vec![argument(1, SeccompCmpOp::Eq, command)?]);
        rules.insert(call, commands.into_iter().map(rule).collect::<Result<_, _>>()?);
    }
    // With 0 a program changes its own limits. The limits of the operator would stop the operator.
    let other_process = vec![argument(0, SeccompCmpOp::Ne, 0)?, argument(0, SeccompCmpOp::Ne, own_id)?];
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(other_process)?]);
    let mut namespaces = Vec::new();
    for flag in NAMESPACE_FLAGS {
        let flag = u64::from(flag.unsigned_abs());
        namespaces.push(SeccompRule::new(vec![argument(0, SeccompCmpOp::MaskedEq(flag), flag)?])?);
    }
    rules.insert(libc::SYS_clone, namespaces);
    Ok(rules)
}

/// Returns a condition on an argument of which the kernel reads 32 bits, as it does for all rules of this module.
fn argument(index: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)
}

/// Lets the calls that match `rules` fail with `errno`. A call passes only if all filters of the process allow it.
fn apply(rules: Rules, errno: i32) -> Result<(), String> {
    let words = |error: BackendError| error.to_string();
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        std::env::consts::ARCH.try_into().map_err(words)?,
    );
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(words)?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}
