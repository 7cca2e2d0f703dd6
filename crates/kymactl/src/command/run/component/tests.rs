use std::path::PathBuf;
use std::time::Duration;

use kyma_api::COMPONENT_GROUP;
use kyma_controller::{Mode, Process};
use tempfile::TempDir;

use super::*;
use crate::error::Error;
use crate::hub::GlobalFlags;

const CRD: &str = "\
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: greetings.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Greeting, plural: greetings}
  versions: []
";

/// Writes a shell script that prints this CRD, and whose command `run` is `run`.
fn script(directory: &TempDir, name: &str, crd: &str, run: &str) -> PathBuf {
    let crd_file = directory.path().join(format!("{name}.yaml"));
    std::fs::write(&crd_file, crd).unwrap();
    let text_file = directory.path().join(format!("{name}.txt"));
    let file = directory.path().join(name);
    let text = format!(
        "#!/bin/sh\ncase $1 in\ncrd) cat {} ;;\nversion) echo greeter 1.0.0 ;;\nrun) {run} ;;\nesac\n",
        crd_file.display()
    );
    std::fs::write(&text_file, text).unwrap();
    // A file that this process wrote cannot be executed while a child of another test still has it open.
    let installed =
        std::process::Command::new("install").args(["-m", "755"]).args([&text_file, &file]).status();
    assert!(installed.unwrap().success());
    file
}

fn crd(group: &str) -> String {
    CRD.replace("GROUP", group)
}

async fn refusal(paths: &[PathBuf]) -> String {
    let error = ComponentProgram::read_all(paths).await.unwrap_err();
    assert!(matches!(error, Error::Input { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_program_names_its_kinds_and_itself() {
    let directory = tempfile::tempdir().unwrap();
    let path = script(&directory, "greeter", &crd("demo.example.org"), "true");
    let programs = ComponentProgram::read_all(&[path]).await.unwrap();
    let [program] = programs.as_slice() else { panic!("{programs:?}") };
    assert_eq!(program.name(), "greeter");
    assert!(program.reconciles("demo.example.org", "Greeting"));
    assert!(!program.reconciles("demo.example.org", "Other"));
    assert!(!program.reconciles("other.example.org", "Greeting"));
}

#[tokio::test]
async fn programs_that_are_no_operator_of_an_own_kind_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let own = script(&directory, "own", &crd("demo.example.org"), "true");
    let silent = script(&directory, "silent", "", "true");
    let chatty = script(&directory, "chatty", "Hello", "true");
    let helm = script(&directory, "helm", &crd(COMPONENT_GROUP), "true");
    let missing = directory.path().join("missing");
    for (paths, problem) in [
        (vec![missing], "cannot be started"),
        (vec![PathBuf::from("false")], "its command `crd` fails: exit status: 1"),
        (vec![silent], "prints no CRD"),
        (vec![chatty], "prints no CRD"),
        (vec![helm], "kymactl itself reconciles Greeting"),
        (vec![own.clone(), own], "reconciles Greeting of demo.example.org as well"),
    ] {
        let refusal = refusal(&paths).await;
        assert!(refusal.starts_with("--component ") && refusal.contains(problem), "{refusal}");
    }
}

#[tokio::test]
async fn an_early_exit_is_an_error_with_the_last_log_lines() {
    let directory = tempfile::tempdir().unwrap();
    let run = "for i in 1 2 3 4 5 6 7 8 9 10 11; do echo line $i >&2; done; exit 4";
    let path = script(&directory, "early", &crd("demo.example.org"), run);
    let program = ComponentProgram::read_all(&[path]).await.unwrap().remove(0);
    let error = program.run(vec!["run".into()], Process::new().unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::ComponentEnded { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("greeter exited early (exit status: 4)"), "{text}");
    assert!(text.contains("line 2\n") && text.ends_with("line 11") && !text.contains("line 1\n"), "{text}");
}

#[tokio::test]
async fn a_program_is_stopped_at_the_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let (started, stopped) = (directory.path().join("started"), directory.path().join("stopped"));
    // The shell handles the signal after a command that it waits for, so it waits for a background one.
    let run = format!(
        "sleep 300 & trap 'kill $!; : > {}; exit 0' TERM; : > {}; wait",
        stopped.display(),
        started.display()
    );
    let path = script(&directory, "steady", &crd("demo.example.org"), &run);
    let program = ComponentProgram::read_all(&[path]).await.unwrap().remove(0);
    let process = Process::new().unwrap();
    let running = tokio::spawn(program.run(vec!["run".into()], process.clone()));
    testbed::until("the program runs", Duration::from_secs(30), || async {
        Ok(started.exists().then_some(()))
    })
    .await
    .unwrap();
    process.shutdown.cancel();
    running.await.unwrap().unwrap();
    assert!(stopped.exists());
}

#[test]
fn a_program_works_on_the_cluster_and_kyma_of_the_command() {
    let mut settings = Settings::for_command("hub", "target");
    settings.mode = Mode::SingleCluster;
    settings.selector = Some("a=b".to_owned());
    settings.only_kyma = Some("one".to_owned());
    let global = GlobalFlags { kubeconfig: Some("file".into()), ..GlobalFlags::default() };
    let kubeconfig = ProgramKubeconfig::select(&global).unwrap();
    let arguments = arguments(&settings, &kubeconfig);
    let arguments: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap()).collect();
    assert_eq!(arguments[0], "run");
    let selector = format!("a=b,{}=one", labels::KYMA_NAME);
    for pair in [
        ["--hub-namespace", "hub"],
        ["--target-namespace", "target"],
        ["--mode", "single-cluster"],
        ["--selector", selector.as_str()],
        ["--admin-address", ""],
        ["--kubeconfig", "file"],
        ["--resync", "86400000ms"],
    ] {
        assert!(arguments.windows(2).any(|words| words == pair), "{pair:?}: {arguments:?}");
    }
}
