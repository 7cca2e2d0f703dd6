//! The exit codes of every command and of every error.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use kyma_artifacts::ArtifactError;
use kyma_controller::{Failure, HubError, SettingsError, StartError};

use super::Cli;
use super::tests::leaves;
use crate::error::Error;

/// Exit code of wrong flags and arguments, and of names that do not exist.
const USAGE: u8 = 2;
/// Exit code of commands that wait, after their timeout.
const NOT_READY: u8 = 3;

/// Results of one command, beside failed calls and wrong flags. Errors are named as the variants of [`Error`].
struct Row {
    command: &'static str,
    /// Exit codes without an error.
    success: &'static [u8],
    /// The error for a name or file that does not exist; `None` if the command takes neither.
    unknown_name: Option<&'static str>,
    /// The error after the timeout.
    not_ready: Option<&'static str>,
    /// Errors with exit code 1 for an unsuccessful result.
    failed: &'static [&'static str],
}

const fn row(command: &'static str, unknown_name: Option<&'static str>) -> Row {
    Row { command, success: &[0], unknown_name, not_ready: None, failed: &[] }
}

const INPUT: Option<&str> = Some("Input");

const COMMANDS: &[Row] = &[
    row("module push", Some("Read")),
    Row { failed: &["Cluster", "Changed"], ..row("module assign", INPUT) },
    Row { failed: &["Target"], ..row("target test", INPUT) },
    Row { failed: &["NotAdopted"], ..row("target adopt", INPUT) },
    Row { failed: &["NotMoved"], ..row("migrate klm", INPUT) },
    Row { failed: &["NotMigrated"], ..row("migrate flux", INPUT) },
    Row { not_ready: Some("NotReady"), ..row("status", INPUT) },
    row("explain", INPUT),
    row("why", INPUT),
    row("reset", INPUT),
    row("values", INPUT),
    // 1 means that something would change, so every error has another code.
    Row { success: &[0, 1], ..row("diff", Some("NoDiff")) },
    row("tree", INPUT),
    row("suspend", INPUT),
    row("resume", INPUT),
    Row { not_ready: Some("NotReady"), failed: &["Unready"], ..row("reconcile", INPUT) },
    Row { not_ready: Some("NotReady"), failed: &["TestFailed"], ..row("test", INPUT) },
    Row {
        not_ready: Some("NotReady"),
        failed: &["ComponentEnded", "CrdsLate", "NewerCrd", "Operator", "Stopped", "Target"],
        ..row("run", Some("Read"))
    },
    row("completion", None),
];

/// Returns one error of each variant, with its exit code.
fn errors() -> Vec<(Error, u8)> {
    let text = || "a".to_owned();
    let not_ready = || Error::not_ready(Duration::from_secs(1), &[]);
    let probe = kube::runtime::watcher::Error::NoResourceVersion;
    vec![
        (Error::Read { path: "a".into(), source: io::Error::other("a") }, 2),
        (Error::no_component("a", "b"), 2),
        (Error::NoAccess(HubError::NoKubeconfig { files: text() }), 2),
        (Error::Settings(SettingsError::LocalKyma), 2),
        (Error::NoDiff(Box::new(not_ready())), 2),
        (not_ready(), 3),
        (Error::NotRemoved { waited: text(), left: text() }, 3),
        (Error::Cluster(kube::Error::LinesCodecMaxLineLengthExceeded), 1),
        (Error::Watch(kube::runtime::wait::Error::ProbeFailed(probe)), 1),
        (Error::CrdsLate { waited: text() }, 1),
        (Error::NewerCrd { name: text(), version: text() }, 1),
        (Error::from(Failure::new(kyma_api::Reason::TargetForbidden, "a")), 1),
        (Error::NotAdopted { count: 1 }, 1),
        (Error::NotMoved { count: 1 }, 1),
        (Error::Changed { name: text() }, 1),
        (Error::Unready { name: text(), why: text() }, 1),
        (Error::TestFailed { name: text() }, 1),
        (Error::NotMigrated { names: text() }, 1),
        (Error::Start(StartError::System(io::Error::other("a"))), 1),
        (Error::Operator { name: "a", problem: text() }, 1),
        (Error::component_ended("a", text(), &[]), 1),
        (Error::Stopped, 1),
        (Error::Artifact(ArtifactError::NotFound { what: text() }), 1),
        (Error::Output(io::Error::other("a")), 1),
    ]
}

/// Returns the variants of [`Error`], read from its source.
fn variants() -> BTreeSet<String> {
    let source = include_str!("../error.rs");
    let (_, after) = source.split_once("pub(crate) enum Error {\n").unwrap();
    let (body, _) = after.split_once("\n}").unwrap();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase())).map(first_word).collect()
}

/// Returns the letters and digits at the start of a text.
fn first_word(text: &str) -> String {
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// Returns the exit codes in a help text, without that of wrong input, which every command has.
fn listed_codes(help: &str) -> Option<BTreeSet<u8>> {
    let (_, list) = help.split_once("Exit codes:")?;
    let codes = list.split(',').filter_map(|end| first_word(end.trim_start()).parse().ok());
    Some(codes.filter(|code| *code != USAGE).collect())
}

#[test]
fn every_command_and_error_has_its_exit_codes() {
    let mut codes = BTreeMap::new();
    for (error, code) in errors() {
        // Compared as text: ExitCode gives no number.
        assert_eq!(format!("{:?}", error.exit_code()), format!("{:?}", ExitCode::from(code)), "{error:?}");
        codes.insert(first_word(&format!("{error:?}")), code);
    }
    assert_eq!(codes.keys().cloned().collect::<BTreeSet<_>>(), variants(), "errors without a row");

    let rows: BTreeMap<&str, &Row> = COMMANDS.iter().map(|row| (row.command, row)).collect();
    let leaves: BTreeMap<String, _> =
        leaves().into_iter().map(|(path, leaf)| (path.join(" "), leaf)).collect();
    let names: BTreeSet<&str> = leaves.keys().map(String::as_str).collect();
    assert_eq!(rows.keys().copied().collect::<BTreeSet<_>>(), names, "commands without a row");

    for (name, row) in rows {
        if let Some(error) = row.unknown_name {
            assert_eq!(codes[error], USAGE, "{name}: {error}");
        }
        if let Some(error) = row.not_ready {
            assert_eq!(codes[error], NOT_READY, "{name}: {error}");
        }
        for error in row.failed {
            assert_eq!(codes[*error], 1, "{name}: {error}");
        }
        let line = ["kymactl"].into_iter().chain(name.split(' ')).chain(["--no-such-flag"]);
        let usage = Cli::try_parse_from(line).err().map(|error| error.exit_code());
        assert_eq!(usage, Some(i32::from(USAGE)), "{name}");

        let ends = row.not_ready.iter().chain(row.failed).map(|error| codes[*error]);
        let expected: BTreeSet<u8> = row.success.iter().copied().chain(ends).collect();
        let help = leaves[name].get_after_help().map(ToString::to_string).unwrap_or_default();
        if let Some(listed) = listed_codes(&help) {
            assert_eq!(listed, expected, "{name}: {help}");
        }
    }
}
