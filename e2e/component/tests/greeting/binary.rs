//! The binary, whose `main` is one call of the sdk.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use testbed::{free_address, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{DEADLINE, Fixture};

const BINARY: &str = env!("CARGO_BIN_EXE_greeting-component");

/// Runs the binary, and returns its exit code, output and error output.
pub(crate) fn output(arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
    let done = Command::new(BINARY).args(arguments).stdin(Stdio::null()).output()?;
    Ok((done.status.code(), String::from_utf8(done.stdout)?, String::from_utf8(done.stderr)?))
}

#[test]
fn it_prints_crd_roles_reasons_and_version() -> Result<()> {
    let (code, crd, _) = output(&["crd"])?;
    assert_eq!(code, Some(0));
    let crd: CustomResourceDefinition = serde_saphyr::from_str(crd.trim_start_matches("---\n"))?;
    assert_eq!(crd, greeting_component::Greeting::crd());
    let (_, roles, _) = output(&["rbac", "--namespace", "somewhere"])?;
    assert!(roles.contains("name: greeting-component-target") && roles.contains("namespace: somewhere"));
    let (_, hub, _) = output(&["rbac", "--for", "hub"])?;
    assert!(!hub.contains("greeting-component-target"));
    let (_, reasons, _) = output(&["reasons"])?;
    assert!(reasons.lines().any(|line| line.starts_with("AwaitingAccess\tBlocked\t")));
    let (_, version, _) = output(&["version"])?;
    assert_eq!(version, format!("greeting-component {}\n", env!("CARGO_PKG_VERSION")));
    Ok(())
}

#[test]
fn wrong_flags_and_a_missing_hub_are_reported_in_one_line() -> Result<()> {
    let (code, _, error) = output(&["run", "--resync", "never"])?;
    assert_eq!(code, Some(1));
    assert!(error.starts_with("error: --resync: \"never\" is not a duration"), "{error}");
    let (code, _, error) = output(&["run", "--kubeconfig", "/nowhere", "--admin-address", ""])?;
    assert_eq!(code, Some(1));
    assert!(error.contains("kubeconfig of the hub"), "{error}");
    assert_eq!(output(&["run", "--no-such-flag"])?.0, Some(2));
    Ok(())
}

#[tokio::test]
async fn it_becomes_ready_counts_and_stops_on_sigterm() -> Result<()> {
    let conformance_env = Fixture::conformance_env("binary").await?;
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, &conformance_env.hub_kubeconfig)?;
    let port = free_address()?.port();
    let mut child = tokio::process::Command::new(BINARY)
        .arg("run")
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args([
            "--hub-namespace",
            &conformance_env.namespace,
            "--admin-address",
            &format!("127.0.0.1:{port}"),
        ])
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    until("it is ready", DEADLINE, || async {
        Ok(get(port, "/readyz").await.ok().filter(|answer| answer.starts_with("HTTP/1.1 200")).map(drop))
    })
    .await?;
    assert!(get(port, "/livez").await?.starts_with("HTTP/1.1 200"));
    assert!(get(port, "/metrics").await?.starts_with("HTTP/1.1 200"));
    let pid = child.id().context("it runs")?;
    Command::new("kill").args(["-TERM", &pid.to_string()]).status()?;
    let ended = tokio::time::timeout(DEADLINE, child.wait()).await??;
    assert_eq!(ended.code(), Some(0));
    let mut log = String::new();
    child.stderr.take().context("its log")?.read_to_string(&mut log).await?;
    for line in log.lines() {
        serde_json::from_str::<serde_json::Value>(line).with_context(|| format!("no JSON: {line}"))?;
    }
    assert!(log.contains("\"message\":\"stopping\""), "{log}");
    Ok(())
}

async fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
