//! No process or directory remains, however the user of a test environment ends.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use testbed::{TestEnv, until};

const DEADLINE: Duration = Duration::from_mins(2);

/// Environment variable of the process that this test kills: the file in which it reports that its test environment is
/// running.
const VICTIM_REPORT_VARIABLE: &str = "TESTBED_VICTIM_REPORT";

/// Kills the victim if the test fails before.
struct VictimProcess(Child);

impl Drop for VictimProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test]
async fn killed_minus_nine_leaves_no_process_and_no_file() -> Result<()> {
    if let Some(report) = std::env::var_os(VICTIM_REPORT_VARIABLE) {
        return run_victim(Path::new(&report)).await;
    }
    let scratch = tempfile::tempdir()?;
    let report = scratch.path().join("report");
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--exact", "killed_minus_nine_leaves_no_process_and_no_file"])
        .env(VICTIM_REPORT_VARIABLE, &report);
    let mut victim = VictimProcess(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    let directory = until("the test environment of the victim is up", Duration::from_mins(3), || async {
        Ok(fs::read_to_string(&report).ok().and_then(|text| Some(PathBuf::from(text.strip_suffix('\n')?))))
    })
    .await?;
    let processes = children(victim.0.id())?;
    let names: Vec<&str> = processes.iter().map(|(_, name)| name.as_str()).collect();
    for name in
        ["etcd", "kube-apiserver", "kube-controller", "kube-scheduler", "kwok", "registry", "testbed-exec"]
    {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }

    victim.0.kill()?;
    victim.0.wait()?;
    until("all processes are gone", DEADLINE, || async { Ok(processes.iter().all(gone).then_some(())) })
        .await?;
    until("the directory is gone", DEADLINE, || async { Ok((!directory.exists()).then_some(())) }).await
}

async fn run_victim(report: &Path) -> Result<()> {
    let test_env = TestEnv::start().await?;
    let _cluster = test_env.cluster("hub").with_workloads().await?;
    let _registry = test_env.registry().await?;
    fs::write(report, format!("{}\n", test_env.directory().display()))?;
    std::future::pending().await
}

#[tokio::test]
async fn the_last_handle_ends_processes_and_directory() -> Result<()> {
    let test_env = TestEnv::start().await?;
    let cluster = test_env.cluster("hub").with_controllers().await?;
    let directory = test_env.directory().to_owned();
    let own_children: BTreeSet<_> = children(std::process::id())?;
    let of_test_env: Vec<_> = own_children.iter().filter(|child| mentions(child, &directory)).collect();
    assert_eq!(
        of_test_env.len(),
        4,
        "etcd, kube-apiserver, kube-controller-manager, sweeper: {of_test_env:?}"
    );
    drop(test_env);
    assert!(cluster.client()?.apiserver_version().await.is_ok(), "a cluster keeps its test environment");
    drop(cluster);
    assert!(of_test_env.iter().all(|child| gone(child)), "{of_test_env:?}");
    assert!(!directory.exists());
    Ok(())
}

#[tokio::test]
async fn a_kept_directory_serves_one_test_env_after_the_other() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    for _ in 0..2 {
        let test_env = TestEnv::start_in(scratch.path()).await?;
        test_env.registry().await?;
        let cluster = test_env.cluster("hub").with_audit().await?;
        assert_eq!(cluster.namespace("fresh").await?, "fresh-1");
        assert!(
            TestEnv::start_in(scratch.path()).await.is_err(),
            "while one test environment runs in a directory"
        );
    }
    assert!(scratch.path().join("logs/etcd.log").is_file());
    Ok(())
}

#[tokio::test]
async fn a_failed_start_shows_the_end_of_the_log() -> Result<()> {
    let test_env = TestEnv::start().await?;
    let error = match test_env.cluster("broken").with_flag("--no-such-flag").await {
        Ok(_) => anyhow::bail!("it started with an unknown flag"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("broken-kube-apiserver ended") && error.contains("--no-such-flag"), "{error}");
    test_env.cluster("broken").await?;
    Ok(())
}

/// Environment variable of the process whose panic output this test checks.
const PANIC_VARIABLE: &str = "TESTBED_PANICKING";

#[tokio::test]
async fn a_panic_shows_the_end_of_each_log() -> Result<()> {
    if std::env::var_os(PANIC_VARIABLE).is_some() {
        let test_env = TestEnv::start().await?;
        let _cluster = test_env.cluster("unlucky").await?;
        let lines: String = (1..=16).map(|number| format!("line {number} of 16\n")).collect();
        fs::write(test_env.logs().join("known.log"), lines)?;
        panic!("as requested");
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "a_panic_shows_the_end_of_each_log"]).env(PANIC_VARIABLE, "1");
    let shown = tokio::task::spawn_blocking(move || command.output()).await??;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let logs = ["/logs/etcd.log", "/logs/known.log", "/logs/unlucky-kube-apiserver.log"];
    for words in ["as requested", "line 2 of 16", "line 16 of 16"].iter().chain(&logs) {
        assert!(shown.contains(words), "{words} is not in {shown}");
    }
    assert!(!shown.contains("line 1 of 16"), "the end of a log has 15 lines: {shown}");
    Ok(())
}

#[test]
fn the_wrapper_starts_nothing_for_a_parent_that_has_gone() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let trace = scratch.path().join("trace");
    let wrapper = wrapper()?;
    let ended =
        Command::new(wrapper).args(["run", "1", "touch"]).arg(&trace).stderr(Stdio::piped()).output()?;
    assert_eq!(ended.status.code(), Some(126));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("process 1 has gone already"));
    assert!(!trace.exists());
    Ok(())
}

fn wrapper() -> Result<PathBuf> {
    let running = std::env::current_exe()?;
    let directory = running.ancestors().nth(2).context("tests lie in target/debug/deps")?;
    Ok(directory.join("testbed-exec"))
}

/// Returns process ids and names of the children of `parent`.
fn children(parent: u32) -> Result<BTreeSet<(u32, String)>> {
    let mut children = BTreeSet::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some((name, of)) = name_and_parent(id).filter(|(_, of)| *of == parent) {
            debug_assert_eq!(of, parent);
            children.insert((id, name));
        }
    }
    Ok(children)
}

/// From `/proc/ID/stat`: `ID (NAME) STATE PARENT …`. A zombie has ended.
fn name_and_parent(id: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
    let (state, rest) = rest.split_once(' ')?;
    let parent = rest.split(' ').next()?.parse().ok()?;
    (state != "Z").then(|| (name.to_owned(), parent))
}

fn gone((id, name): &(u32, String)) -> bool {
    name_and_parent(*id).is_none_or(|(now, _)| now != *name)
}

fn mentions((id, _): &(u32, String), directory: &Path) -> bool {
    let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    line.contains(&directory.display().to_string())
}
