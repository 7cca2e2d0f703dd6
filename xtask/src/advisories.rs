//! Known vulnerabilities of dependencies: `cargo deny check advisories`, without the network.
//!
//! The database is in the tool cache, never in the repository; `cargo deny fetch db` downloads it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

use crate::{pins, workspace};

/// Result of the check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No advisory is open.
    Clean,
    /// The check was not possible, for this reason.
    NotChecked(String),
}

/// Checks the workspace's dependencies.
///
/// # Errors
/// If an advisory is open, or an exception in deny.toml has no date and reason.
pub(crate) fn check() -> Result<Outcome> {
    let root = workspace::root();
    let text = fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let findings = exceptions(&text)?;
    ensure!(findings.is_empty(), "{}", findings.join("\n"));
    let databases = databases(root)?;
    if let Some(reason) = missing(has_cargo_deny(), holds_database(&databases), &databases) {
        return Ok(Outcome::NotChecked(reason));
    }
    let config = databases.with_file_name("deny.toml");
    fs::write(&config, with_databases(&text, &databases)?)
        .with_context(|| format!("cannot write {}", config.display()))?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(root)
        .args(["deny", "check", "--disable-fetch", "--config"])
        .arg(&config)
        .arg("advisories");
    let status = cargo.status().context("cannot start cargo deny")?;
    ensure!(status.success(), "`cargo deny check advisories --disable-fetch` found something");
    Ok(Outcome::Clean)
}

/// Returns the directory of advisory databases: `$ADVISORY_DBS`, or else `advisory-dbs` in the tool cache.
fn databases(root: &Path) -> Result<PathBuf> {
    let given = std::env::var_os("ADVISORY_DBS").filter(|value| !value.is_empty()).map(PathBuf::from);
    let cached = || pins::directory(root).context("cannot name the cache directory");
    Ok(match given {
        Some(given) => given,
        None => cached()?.with_file_name("advisory-dbs"),
    })
}

fn has_cargo_deny() -> bool {
    let mut cargo = Command::new(env!("CARGO"));
    let asked = cargo.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

fn holds_database(databases: &Path) -> bool {
    let entries = fs::read_dir(databases).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().join("crates").is_dir())
}

/// Returns the reason why the check is not possible.
fn missing(has_cargo_deny: bool, has_database: bool, databases: &Path) -> Option<String> {
    if !has_cargo_deny {
        return Some("cargo-deny is missing: cargo install cargo-deny --locked".to_owned());
    }
    (!has_database)
        .then(|| format!("no advisory database in {}: fill it with cargo deny fetch db", databases.display()))
}

/// Returns the policy with the directory of databases.
fn with_databases(policy: &str, databases: &Path) -> Result<String> {
    const TABLE: &str = "[advisories]\n";
    ensure!(policy.contains(TABLE), "deny.toml has no table [advisories]");
    let place = databases.display().to_string().replace(['\\', '"'], "");
    Ok(policy.replacen(TABLE, &format!("{TABLE}db-path = \"{place}\"\n"), 1))
}

/// Returns the policy's exceptions without a date (`2026-11-26: …`) and a reason.
///
/// # Errors
/// If the policy is not TOML.
pub(crate) fn exceptions(policy: &str) -> Result<Vec<String>> {
    let policy: Table = policy.parse().context("deny.toml is no TOML")?;
    let ignored = policy.get("advisories").and_then(|table| table.get("ignore")).and_then(Value::as_array);
    let mut findings = Vec::new();
    for (number, entry) in ignored.into_iter().flatten().enumerate() {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        let (id, reason) = (text("id"), text("reason"));
        if id.is_empty() || !is_dated(reason) {
            findings.push(format!(
                "deny.toml: exception {number} ({id}) needs `id`, and a `reason` that begins with a date (2026-11-26: why)"
            ));
        }
    }
    Ok(findings)
}

fn is_dated(reason: &str) -> bool {
    let Some((date, why)) = reason.split_once(": ") else { return false };
    let mut parts = date.split('-');
    let mut number = |digits: usize| {
        parts.next().filter(|part| part.len() == digits).and_then(|part| part.parse::<u32>().ok())
    };
    let (year, month, day) = (number(4), number(2), number(2));
    year.is_some()
        && month.is_some_and(|month| (1..=12).contains(&month))
        && day.is_some_and(|day| (1..=31).contains(&day))
        && !why.trim().is_empty()
}

/// Fails if the check is required and was not possible.
///
/// # Errors
/// If the check was required and not possible.
pub(crate) fn demand(outcome: &Outcome) -> Result<()> {
    match outcome {
        Outcome::Clean => Ok(()),
        Outcome::NotChecked(reason) => bail!("advisories were not checked: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_names_what_it_lacks() {
        let place = Path::new("/cache/advisory-dbs");
        assert!(missing(false, true, place).unwrap().contains("cargo install cargo-deny"));
        assert!(missing(true, false, place).unwrap().contains("/cache/advisory-dbs"));
        assert_eq!(missing(true, true, place), None);
        assert!(demand(&Outcome::Clean).is_ok());
        assert!(demand(&Outcome::NotChecked("x".to_owned())).is_err());
    }

    #[test]
    fn exceptions_have_a_date_and_a_reason() {
        let policy = |entry: &str| format!("[advisories]\nignore = [{entry}]\n");
        let rows = [
            (r#"{ id = "RUSTSEC-2023-0071", reason = "2026-11-26: verification only" }"#, true),
            (r#"{ id = "RUSTSEC-2023-0071", reason = "verification only" }"#, false),
            (r#"{ id = "RUSTSEC-2023-0071", reason = "2026-13-26: verification only" }"#, false),
            (r#"{ id = "RUSTSEC-2023-0071", reason = "2026-11-26: " }"#, false),
            (r#"{ id = "RUSTSEC-2023-0071" }"#, false),
            (r#""RUSTSEC-2023-0071""#, false),
        ];
        for (entry, is_fine) in rows {
            assert_eq!(exceptions(&policy(entry)).unwrap().is_empty(), is_fine, "{entry}");
        }
        let own = fs::read_to_string(workspace::root().join("deny.toml")).unwrap();
        assert_eq!(exceptions(&own).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn cached_advisory_database_is_set_and_other_policy_is_kept() {
        let text = with_databases(
            "[bans]\nwildcards = \"deny\"\n[advisories]\nignore = []\n",
            Path::new("/cache/advisory-dbs"),
        )
        .unwrap();
        let policy: Table = text.parse().unwrap();
        assert_eq!(policy["advisories"]["db-path"].as_str(), Some("/cache/advisory-dbs"));
        assert_eq!(policy["bans"]["wildcards"].as_str(), Some("deny"));
    }

    #[test]
    fn a_made_up_database_is_recognised() {
        let directory = std::env::temp_dir().join(format!("advisory-dbs-{}", std::process::id()));
        assert!(!holds_database(&directory));
        fs::create_dir_all(directory.join("advisory-db-0123456789abcdef/crates/made-up")).unwrap();
        assert!(holds_database(&directory));
        fs::remove_dir_all(&directory).unwrap();
    }
}
