//! Values of boolean flags: kubectl takes `--wait=true` and `--wait=false`, clap only `--wait`.

use std::{collections::BTreeSet, ffi::OsString};

use clap::{ArgAction, Command};

/// Returns a command line with `--flag` in place of `--flag=true`, and without `--flag=false`.
pub(super) fn without_values(command: &Command, words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut booleans, mut others) = (BTreeSet::new(), BTreeSet::new());
    collect(command, &mut booleans, &mut others);
    let mut has_ended = false;
    let normalize = |word: OsString| {
        has_ended |= word == "--";
        let given = word.to_str().filter(|_| !has_ended).and_then(|word| word.split_once('='));
        let given = given.filter(|(flag, _)| booleans.contains(*flag) && !others.contains(*flag));
        match given.map(|(flag, value)| (flag.to_owned(), value.to_ascii_lowercase())) {
            Some((flag, value)) if ["true", "t", "1"].contains(&value.as_str()) => Some(flag.into()),
            Some((_, value)) if ["false", "f", "0"].contains(&value.as_str()) => None,
            _ => Some(word),
        }
    };
    words.filter_map(normalize).collect()
}

/// Collects the boolean flags of all commands, and those with another type.
fn collect(command: &Command, booleans: &mut BTreeSet<String>, others: &mut BTreeSet<String>) {
    for arg in command.get_arguments() {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let names = long.into_iter().chain(arg.get_short().map(|short| format!("-{short}")));
        let is_boolean = matches!(arg.get_action(), ArgAction::SetTrue);
        if is_boolean { booleans.extend(names) } else { others.extend(names) }
    }
    for inner in command.get_subcommands() {
        collect(inner, booleans, others);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn boolean_flags_have_values_as_in_kubectl() {
        for (line, expected) in [
            ("kymactl status --wait=true -A=false", "kymactl status --wait"),
            ("kymactl status --wait=False --all-namespaces=1", "kymactl status --all-namespaces"),
            ("kymactl status --wait=maybe --timeout=1", "kymactl status --wait=maybe --timeout=1"),
            ("kymactl status -- --wait=true", "kymactl status -- --wait=true"),
        ] {
            let words = without_values(&Cli::command(), line.split(' ').map(OsString::from));
            let expected: Vec<OsString> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(words, expected, "{line}");
        }
    }
}
