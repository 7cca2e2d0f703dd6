//! Conventions that every command follows, checked over the whole tree of commands.

use clap::{Arg, CommandFactory as _, Parser as _};

use super::Cli;

/// Longest line of a help text, in characters.
const MAX_HELP_LINE: usize = 80;

/// Returns all commands without subcommands, with their paths.
pub(super) fn leaves() -> Vec<(Vec<String>, clap::Command)> {
    fn walk(path: &[String], command: &clap::Command, found: &mut Vec<(Vec<String>, clap::Command)>) {
        let mut inner = command.get_subcommands().filter(|inner| inner.get_name() != "help").peekable();
        if inner.peek().is_none() {
            found.push((path.to_vec(), command.clone()));
        }
        for inner in inner {
            walk(&[path, &[inner.get_name().to_owned()]].concat(), inner, found);
        }
    }
    let mut command = Cli::command();
    command.build();
    let mut found = Vec::new();
    walk(&[], &command, &mut found);
    found
}

/// Returns the required arguments of a command.
fn required(command: &clap::Command) -> Vec<String> {
    let text = |arg: &Arg| {
        let mut words: Vec<String> = arg.get_long().map(|long| format!("--{long}")).into_iter().collect();
        let allowed = arg.get_possible_values();
        words.push(allowed.first().map_or("example.org".to_owned(), |value| value.get_name().to_owned()));
        words
    };
    let mut words: Vec<String> =
        command.get_arguments().filter(|arg| arg.is_required_set()).flat_map(text).collect();
    if ["diff", "adopt"].contains(&command.get_name()) {
        words.push("name".to_owned());
    }
    words
}

#[test]
fn every_command_takes_global_flags_before_and_after_its_name() {
    let flags = [
        ["--kubeconfig", "file"],
        ["--context", "other"],
        ["-n", "space"],
        ["--namespace", "space"],
        ["--hub-namespace", "space"],
        ["-o", "json"],
        ["-o", "yaml"],
        ["-o", "wide"],
        ["--output", "name"],
    ];
    let leaves = leaves();
    assert!(leaves.len() >= 19, "{}", leaves.len());
    for (path, command) in &leaves {
        let required = required(command);
        for flag in flags {
            let flag = flag.map(str::to_owned).to_vec();
            let program = vec!["kymactl".to_owned()];
            let before = [program.clone(), flag.clone(), path.clone(), required.clone()].concat();
            let after = [program, path.clone(), required.clone(), flag].concat();
            for line in [before, after] {
                if let Err(error) = Cli::try_parse_from(&line) {
                    panic!("{}: {error}", line.join(" "));
                }
            }
        }
    }
}

#[test]
fn a_global_flag_means_the_same_before_and_after_the_command() {
    let lines: [&[&str]; 4] = [
        &["kymactl", "-n", "space", "--context", "c", "-o", "yaml", "run"],
        &["kymactl", "run", "-n", "space", "--context", "c", "-o", "yaml"],
        &["kymactl", "-n", "space", "--context", "c", "-o", "yaml", "explain", "blue"],
        &["kymactl", "explain", "blue", "-n", "space", "--context", "c", "-o", "yaml"],
    ];
    for line in lines {
        let cli = Cli::try_parse_from(line).unwrap();
        assert_eq!(cli.global.namespace(), "space", "{line:?}");
        assert_eq!(cli.global.context.as_deref(), Some("c"), "{line:?}");
        assert_eq!(cli.global.format(), crate::output::Format::Yaml, "{line:?}");
    }
    let empty = ["kymactl", "status", "-n", "", "--context=", "--kubeconfig", ""];
    let flags = Cli::try_parse_from(empty).unwrap().global;
    assert_eq!((flags.namespace(), flags.given_context()), ("kcp-system", None));
    assert_eq!((flags.given_namespace(), flags.given_kubeconfig()), (None, None));
    let flags = Cli::try_parse_from(["kymactl", "status", "--hub-namespace="]).unwrap().global;
    assert_eq!((flags.hub_namespace(), flags.namespace()), ("kcp-system", "kcp-system"));
    let hub = |line: &[&str]| Cli::try_parse_from(line).unwrap().global.namespace().to_owned();
    assert_eq!(hub(&["kymactl", "status", "--hub-namespace", "hub"]), "hub");
    // As in kubectl, the last of several values counts.
    assert_eq!(hub(&["kymactl", "status", "-n", "one", "--wait", "--wait", "--namespace=two"]), "two");
    assert_eq!(hub(&["kymactl", "-n", "one", "status", "-n", "two", "-n=three"]), "three");
    assert_eq!(hub(&["kymactl", "--hub-namespace", "hub", "status", "-n", "space"]), "space");
}

#[test]
fn flags_of_one_command_are_not_listed_as_global_options() {
    let global = ["kubeconfig", "context", "namespace", "hub_namespace", "output"];
    for (path, command) in leaves() {
        let listed = command.get_arguments().filter(|arg| arg.get_help_heading() == Some("Global options"));
        let ids: Vec<&str> = listed.map(|arg| arg.get_id().as_str()).collect();
        assert!(ids.contains(&"output"), "{path:?}: {ids:?}");
        assert!(ids.iter().all(|id| global.contains(id)), "{path:?}: {ids:?}");
    }
}

#[test]
fn every_help_text_is_one_line_of_at_most_80_characters() {
    let mut wrong = Vec::new();
    let mut check = |of: String, text: Option<String>| match text {
        None => wrong.push(format!("{of}: no help text")),
        Some(text) if text.contains('\n') || text.chars().count() > MAX_HELP_LINE => {
            wrong.push(format!("{of}: {} characters: {text}", text.chars().count()));
        }
        Some(_) => {}
    };
    let mut commands: Vec<(String, clap::Command)> = vec![("kymactl".to_owned(), Cli::command())];
    while let Some((path, command)) = commands.pop() {
        check(path.clone(), command.get_about().map(ToString::to_string));
        if let Some(long) = command.get_long_about() {
            check(format!("{path} (long)"), Some(long.to_string()));
        }
        for line in command
            .get_after_help()
            .iter()
            .flat_map(|help| help.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
        {
            check(format!("{path} (below)"), Some(line));
        }
        for arg in command.get_arguments() {
            let of = format!("{path} {}", arg.get_id());
            check(of.clone(), arg.get_help().map(ToString::to_string));
            if let Some(long) = arg.get_long_help() {
                check(format!("{of} (long)"), Some(long.to_string()));
            }
        }
        let inner =
            command.get_subcommands().map(|inner| (format!("{path} {}", inner.get_name()), inner.clone()));
        commands.extend(inner);
    }
    assert!(wrong.is_empty(), "{} texts:\n{}", wrong.len(), wrong.join("\n"));
}

/// Commands that connect to targets use one namespace, like the operators whose access Secrets they read.
#[test]
fn commands_that_list_take_all_namespaces() {
    for path in [&["status"] as &[&str], &["migrate", "flux"]] {
        for flag in ["-A", "--all-namespaces"] {
            let line = [&["kymactl"], path, &[flag]].concat();
            assert!(Cli::try_parse_from(&line).is_ok(), "{line:?}");
        }
    }
}

#[test]
fn names_on_the_hub_are_completed_in_every_command() {
    for (path, command) in leaves() {
        for arg in command.get_arguments().filter(|arg| {
            ["kyma", "kymas", "component", "module", "namespace", "context"].contains(&arg.get_id().as_str())
        }) {
            // `run --kyma` takes a file.
            if path == ["run"] && arg.get_id() == "kyma" {
                continue;
            }
            let completes = arg.get::<clap_complete::ArgValueCompleter>().is_some();
            assert!(completes, "{path:?} {}", arg.get_id());
        }
    }
}

#[test]
fn run_takes_either_once_or_remove_and_a_file_with_the_kyma() {
    let parses =
        |flags: &[&str]| Cli::try_parse_from([&["kymactl", "run"] as &[&str], flags].concat()).is_ok();
    assert!(parses(&["--once", "--kyma", "a.yaml", "--catalogue", "b", "c"]));
    assert!(parses(&["--remove", "--kyma", "a.yaml"]));
    assert!(parses(&["--remove", "--kyma", "a.yaml", "--catalogue", "b", "--timeout", "1m"]));
    assert!(!parses(&["--remove"]) && !parses(&["--once"]));
    assert!(!parses(&["--once", "--remove", "--kyma", "a.yaml"]));
    assert!(!parses(&["--timeout", "1m"]) && !parses(&["--allow-other-kymas"]));
    assert!(parses(&["--once", "--kyma", "a.yaml", "--component", "b", "--component", "./c"]));
    assert!(parses(&["--remove", "--kyma", "a.yaml", "--component", "b"]));
    assert!(!parses(&["--component", "b"]) && !parses(&["--once", "--kyma", "a.yaml", "--component"]));
}
