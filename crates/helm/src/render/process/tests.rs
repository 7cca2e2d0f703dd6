use std::time::{Duration, Instant};

use super::*;

/// Runs a shell script instead of the engine.
async fn script(text: &str, input: &str, limits: RenderLimits) -> Result<Output, RenderError> {
    let home = tempfile::tempdir().unwrap();
    let arguments = ["-c".to_owned(), text.to_owned()];
    run(Path::new("/bin/sh"), &arguments, home.path(), input.as_bytes().to_vec(), &limits).await
}

#[tokio::test]
async fn the_environment_is_empty_but_for_a_private_home() {
    let output =
        script("/usr/bin/env | /usr/bin/cut -d= -f1; pwd", "", RenderLimits::default()).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('/')) {
        let known = ["HOME", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_", "KUBECONFIG"];
        assert!(known.contains(&line) || line.starts_with("HELM_"), "{line} reached the engine");
    }
    assert!(text.lines().last().unwrap().starts_with(std::env::temp_dir().to_str().unwrap()));
}

#[tokio::test]
async fn no_plugin_and_no_kubeconfig_is_within_reach() {
    let text = "for name in KUBECONFIG HELM_PLUGINS; do eval place=\\$$name; test -n \"$place\" && test ! -e \"$place\" \
                && echo \"$name\"; done; /bin/ls -A \"$HOME\"";
    let output = script(text, "", RenderLimits::default()).await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "KUBECONFIG\nHELM_PLUGINS\n");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn limits_hold_once_the_input_is_read() {
    let limits = RenderLimits { memory: 512 << 20, ..RenderLimits::default() };
    let output = script("read x; ulimit -v; ulimit -t; ulimit -c; ulimit -n; ulimit -f", "go\n", limits)
        .await
        .unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "524288\n20\n0\n256\n2048\n",
        "files in blocks of 512"
    );
}

#[tokio::test]
async fn a_slow_engine_is_killed_at_the_deadline() {
    let limits = RenderLimits { deadline: Duration::from_millis(200), ..RenderLimits::default() };
    let begin = Instant::now();
    let stopped = script("exec /bin/sleep 60", "", limits).await;
    assert!(matches!(stopped, Err(RenderError::Timeout { .. })));
    assert!(begin.elapsed() < Duration::from_secs(50));
}

#[tokio::test]
async fn endless_output_is_stopped() {
    let limits = RenderLimits { output: 1 << 20, ..RenderLimits::default() };
    let stopped = script("exec /usr/bin/yes", "", limits).await;
    assert!(matches!(stopped, Err(RenderError::TooLarge { .. })));
}

#[tokio::test]
async fn endless_error_text_is_cut_and_fails() {
    let output = script("exec /usr/bin/yes >&2", "", RenderLimits::default()).await.unwrap();
    assert!(!output.success);
    assert_eq!(output.stderr.len(), MAX_ERROR_BYTES + 1);
}

#[tokio::test]
async fn an_engine_that_reads_nothing_does_not_hang() {
    let output = script("echo no >&2; exit 3", &"x".repeat(1 << 20), RenderLimits::default()).await.unwrap();
    assert!(!output.success);
    assert_eq!(output.stderr, b"no\n");
}

#[tokio::test]
async fn descendants_of_the_program_end_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let note = directory.path().join("pid");
    // The process has none of the pipes open, so only the process group contains it.
    let text = format!("/bin/sleep 600 </dev/null >/dev/null 2>&1 & echo $! > {}; exit 0", note.display());
    let output = script(&text, "", RenderLimits::default()).await.unwrap();
    assert!(output.success);
    let pid = std::fs::read_to_string(&note).unwrap();
    let is_running = || {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        !status.is_empty() && !status.contains(") Z ")
    };
    testbed::until("the descendant ends", Duration::from_mins(1), || async {
        Ok((!is_running()).then_some(()))
    })
    .await
    .unwrap();
}
