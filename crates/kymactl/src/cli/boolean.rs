//! Values of boolean flags: kubectl takes `--wait=true` and `--wait=false`, clap only `--wait`.

use std::{collections::BTreeSet, ffi::OsString};

use clap::{ArgAction, Command};

/// Names of flags of all commands, with their dashes.
#[derive(Default)]
struct FlagNames {
    /// Boolean flags.
    booleans: BTreeSet<String>,
    /// Boolean flags with an environment variable.
    with_variable: BTreeSet<String>,
    /// Flags of another type.
    others: BTreeSet<String>,
}

/// Returns a command line with `--flag` in place of `--flag=true`, and without `--flag=false`.
pub(super) fn without_values(command: &Command, words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut names = FlagNames::default();
    names.collect(command);
    let mut has_ended = false;
    let normalize = |word: OsString| {
        has_ended |= word == "--";
        let given = word.to_str().filter(|_| !has_ended).and_then(|word| word.split_once('='));
        let given = given.filter(|(flag, _)| names.booleans.contains(*flag) && !names.others.contains(*flag));
        match given.map(|(flag, value)| (flag.to_owned(), value.to_ascii_lowercase())) {
            Some((flag, value)) if ["true", "t", "1"].contains(&value.as_str()) => Some(flag.into()),
            // Without the flag, its variable would count. clap refuses the value.
            Some((flag, _)) if names.with_variable.contains(&flag) => Some(word),
            Some((_, value)) if ["false", "f", "0"].contains(&value.as_str()) => None,
            _ => Some(word),
        }
    };
    words.filter_map(normalize).collect()
}

impl FlagNames {
    /// Adds the flags of a command and of its subcommands.
    fn collect(&mut self, command: &Command) {
        for arg in command.get_arguments() {
            let long = arg.get_long().map(|long| format!("--{long}"));
            let names = long.into_iter().chain(arg.get_short().map(|short| format!("-{short}")));
            if !matches!(arg.get_action(), ArgAction::SetTrue) {
                self.others.extend(names);
                continue;
            }
            for name in names {
                if arg.get_env().is_some() {
                    self.with_variable.insert(name.clone());
                }
                self.booleans.insert(name);
            }
        }
        for inner in command.get_subcommands() {
            self.collect(inner);
        }
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
            ("kymactl run --manifest-mirror=true", "kymactl run --manifest-mirror"),
            ("kymactl run --manifest-mirror=false", "kymactl run --manifest-mirror=false"),
        ] {
            let words = without_values(&Cli::command(), line.split(' ').map(OsString::from));
            let expected: Vec<OsString> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(words, expected, "{line}");
        }
    }
}
