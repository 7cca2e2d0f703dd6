//! Every row of KLM's acceptance tests has a test that bears its number, or its line in the compatibility page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use regex::Regex;

pub(super) const PAGE: &str = "docs/klm-compatibility.md";

/// KLM's scenarios: its end-to-end tests (E), its integration tests (I) and those of its runtime-watcher (R). Numbers
/// that are missing are no tests.
const ROWS: &str = "E01 E02 E04 E05 E07 E08 E10 E11 E13 E14 E16 E17 E19 E20 E22 E23 E25 E26 E28 E29 E31 E32 E34 E35 \
                    E37 E38 E40 E41 E43 E44 E46 E47 I01–I03 I05–I23 I25–I27 I29–I35 I41–I55 I63–I67 I71–I83 I85–I87 \
                    I91–I167 I175–I179 I186–I191 I194–I195 R01 R02";

/// Letter and number.
type Row = (char, u16);

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let mut tested = BTreeSet::new();
    for path in files.iter().filter(|path| may_test(path)) {
        tested.extend(named(&fs::read_to_string(root.join(path))?)?);
    }
    Ok(compare(&listed(ROWS)?, &tested, &explained(&page)?))
}

fn compare(rows: &BTreeSet<Row>, tested: &BTreeSet<Row>, explained: &BTreeSet<Row>) -> Vec<String> {
    let text = |(letter, number): &Row| format!("{letter}{number:02}");
    let open = rows.iter().filter(|row| !tested.contains(*row) && !explained.contains(*row));
    let open =
        open.map(|row| format!("{}: no test bears its number, and {PAGE} has no line for it", text(row)));
    let twice = tested.intersection(explained);
    let twice = twice.map(|row| format!("{}: a test bears its number, so take it out of {PAGE}", text(row)));
    let unknown = tested.union(explained).filter(|row| !rows.contains(*row));
    let unknown = unknown.map(|row| format!("{}: KLM has no such test", text(row)));
    open.chain(twice).chain(unknown).collect()
}

fn may_test(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
        && path.iter().any(|part| part == "tests" || part == "tests.rs")
        && !path.starts_with("xtask")
}

/// Rows at the beginning of names of functions: `e19_e20_i110_to_i116_…`.
fn named(code: &str) -> Result<BTreeSet<Row>> {
    let function = Regex::new(r"\bfn ((?:[eir]\d{2,3}_(?:to_)?)+)")?;
    let mut rows = BTreeSet::new();
    for name in function.captures_iter(code) {
        rows.extend(listed(&name[1].replace("_to_", "–").replace('_', " ").to_uppercase())?);
    }
    Ok(rows)
}

/// Rows in the first cell of the page's tables.
fn explained(page: &str) -> Result<BTreeSet<Row>> {
    let cell = Regex::new(r"(?m)^\| ((?:[EIR]\d{2,3}[, –]*)+) \|")?;
    let mut rows = BTreeSet::new();
    for line in cell.captures_iter(page) {
        rows.extend(listed(&line[1])?);
    }
    Ok(rows)
}

/// Numbers and, with a dash, ranges of them.
fn listed(text: &str) -> Result<BTreeSet<Row>> {
    let range = Regex::new(r"([EIR])(\d{2,3})(?:–[EIR](\d{2,3}))?")?;
    let mut rows = BTreeSet::new();
    for found in range.captures_iter(text) {
        let letter = found[1].chars().next().context("a letter")?;
        let first: u16 = found[2].parse()?;
        let last = found.get(3).map_or(Ok(first), |last| last.as_str().parse())?;
        rows.extend((first..=last).map(|number| (letter, number)));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_names_of_tests_and_from_the_page() {
        let code = "async fn e19_e20_i110_to_i112_a_module() {}\nfn else_e01_is_no_row() {}\nfn e07() {}";
        let rows = [('E', 19), ('E', 20), ('I', 110), ('I', 111), ('I', 112)];
        assert_eq!(named(code).unwrap(), BTreeSet::from(rows));
        let page = "| E22, I66–I67 | nothing |\n| Row | E01 |\nE02\n";
        assert_eq!(explained(page).unwrap(), BTreeSet::from([('E', 22), ('I', 66), ('I', 67)]));
    }

    #[test]
    fn each_row_has_a_test_or_a_line_and_not_both() {
        let set = |text: &str| listed(text).unwrap();
        let found = compare(&set("E01–E03"), &set("E01 E02"), &set("E02 E09"));
        let rows: Vec<&str> = found.iter().map(|finding| &finding[..3]).collect();
        assert_eq!(rows, ["E03", "E02", "E09"]);
    }

    #[test]
    fn all_of_klms_tests_are_on_the_list() {
        let rows = listed(ROWS).unwrap();
        let count = |letter| rows.iter().filter(|row| row.0 == letter).count();
        assert_eq!((count('E'), count('R')), (32, 2));
        assert!(rows.contains(&('I', 21)) && rows.contains(&('I', 167)) && !rows.contains(&('I', 24)));
    }
}
