//! Refuses imports inside a crate that lead upwards or in circles.
//!
//! A module is a file. Its imports are the paths of its `use` declarations, and the paths in its code that begin with
//! `crate`, `super`, `self` or the name of a child. Tests are exempt. An import leads upwards if it names an item of an
//! ancestor module, such as the root of the crate (`use crate::Name`). It leads to the module that declares or
//! re-exports the item, so a child imports an item of a sibling from that sibling.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use regex::Regex;

use super::text::is_rust;
use super::use_paths;

/// Crates whose imports point downwards, by their directory.
const CHECKED: &[&str] = &[
    "api",
    "artifacts",
    "connection",
    "controller",
    "health",
    "helm",
    "kymactl",
    "object-set",
    "release-meta-syncer",
    "sdk",
    "targets",
    "testbed",
];

/// Crates that are not checked yet, with the reason.
const UNCHECKED: &[(&str, &str)] = &[
    ("helm-component", "its modules move to folders by capability"),
    ("kyma-operator", "its modules move to the stages of the reconcile"),
    ("tls", "it is one file"),
];

/// Code of the modules of a crate, without tests and comments, by paths such as `registry::tokens`. The root has the
/// empty path.
type Modules = BTreeMap<String, String>;

/// Names that a module imports, by importing and imported module.
type Imports = BTreeMap<(String, String), BTreeSet<String>>;

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut findings = unlisted(files);
    let paths = Regex::new(r"(?:^|[^\w:$])(\w+(?:::\w+)+)")?;
    for name in CHECKED {
        let modules = modules(&sources(root, files, name)?);
        if modules.len() < 2 {
            findings.push(format!("crates/{name}: no modules, but xtask/src/tidy/imports.rs lists it"));
        }
        let imports = imports(&modules, &paths);
        let found = upward(&imports).into_iter().chain(circle(&imports));
        findings.extend(found.map(|finding| format!("crates/{name}: {finding}")));
    }
    Ok(findings)
}

/// Returns the crates on neither list.
fn unlisted(files: &[PathBuf]) -> Vec<String> {
    let crates: BTreeSet<&str> = files
        .iter()
        .filter_map(|path| path.to_str()?.strip_prefix("crates/")?.split_once("/src/"))
        .map(|(name, _)| name)
        .filter(|name| !name.contains('/'))
        .collect();
    let is_listed = |name: &&str| CHECKED.contains(name) || UNCHECKED.iter().any(|(other, _)| other == name);
    let finding = |name| format!("crates/{name}: xtask/src/tidy/imports.rs does not list this crate");
    crates.into_iter().filter(|name| !is_listed(name)).map(finding).collect()
}

/// Returns the source files of a crate by their path below `src`, without extension.
fn sources(root: &Path, files: &[PathBuf], name: &str) -> Result<BTreeMap<String, String>> {
    let directory = Path::new("crates").join(name).join("src");
    let mut sources = BTreeMap::new();
    for path in files.iter().filter(|path| is_rust(path)) {
        let Ok(below) = path.strip_prefix(&directory) else { continue };
        let key = below.with_extension("").to_string_lossy().into_owned();
        sources.insert(key, fs::read_to_string(root.join(path))?);
    }
    Ok(sources)
}

/// Follows the `mod` declarations from the root. Files that only tests declare are no modules.
fn modules(sources: &BTreeMap<String, String>) -> Modules {
    let root = sources.get("lib").or_else(|| sources.get("main"));
    let mut open: Vec<(String, String)> =
        root.map(|text| (String::new(), product_code(text))).into_iter().collect();
    let mut modules = Modules::new();
    while let Some((path, code)) = open.pop() {
        for name in declared(&code) {
            let child = join(&path, name);
            if let Some(text) = sources.get(&child.replace("::", "/")) {
                open.push((child, product_code(text)));
            }
        }
        modules.insert(path, code);
    }
    modules
}

/// Removes comments, items for tests, and the extent of visibilities, which are no imports.
fn product_code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            skip_item(&mut lines, line.len() - line.trim_start().len());
            continue;
        }
        let is_comment = line.trim_start().starts_with("//");
        let line = line.split_once(" // ").map_or(line, |(before, _)| before);
        if !is_comment {
            code.push_str(&without_extent(line));
            code.push('\n');
        }
    }
    code
}

/// Skips the item of an attribute with this indentation.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>, indentation: usize) {
    let Some(first) = lines.find(|line| !is_head(line.trim_start())) else { return };
    if first.ends_with([';', ',', '}']) {
        return;
    }
    let end = format!("{}}}", " ".repeat(indentation));
    let _ = lines.find(|line| line.starts_with(&end));
}

/// Reports whether a line is an attribute or a comment before an item.
fn is_head(line: &str) -> bool {
    line.starts_with("#[") || line.starts_with("//")
}

/// Turns `pub(crate)`, `pub(super)` and `pub(in crate::a)` into `pub`.
fn without_extent(line: &str) -> String {
    let parts = line.split_once("pub(").and_then(|(before, rest)| Some((before, rest.split_once(')')?.1)));
    parts.map_or_else(|| line.to_owned(), |(before, after)| format!("{before}pub{after}"))
}

/// Returns the modules that the code declares as files.
fn declared(code: &str) -> impl Iterator<Item = &str> {
    code.lines()
        .filter_map(|line| line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';'))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}::{name}") }
}

/// Reads the imports of all modules. `paths` finds paths of two and more segments.
fn imports(modules: &Modules, paths: &Regex) -> Imports {
    let mut imports = Imports::new();
    for (module, code) in modules {
        let used = use_paths::imports(code);
        let code = without_uses(code);
        let named = paths.captures_iter(&code).map(|found| found[1].to_owned());
        for path in used.into_iter().chain(named) {
            let Some((target, name)) = resolve(module, &path, modules) else { continue };
            if target != *module {
                imports.entry((module.clone(), target)).or_default().insert(name);
            }
        }
    }
    imports
}

/// Returns the code without its `use` declarations.
fn without_uses(code: &str) -> String {
    let mut parts = code.split("use ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |code, part| code + part.split_once(';').map_or("", |(_, rest)| rest))
}

/// Returns the module to which a path leads, and the rest of the path; `None` for a path to another crate.
fn resolve(module: &str, path: &str, modules: &Modules) -> Option<(String, String)> {
    let mut segments = path.split("::").peekable();
    let mut target = match *segments.peek()? {
        "crate" => String::new(),
        "self" => module.to_owned(),
        "super" => parent(module)?.to_owned(),
        first if modules.contains_key(&join(module, first)) => join(module, first),
        _ => return None,
    };
    segments.next();
    let mut rest = Vec::new();
    for segment in segments {
        let child = join(&target, segment);
        if segment == "self" {
            continue;
        }
        if rest.is_empty() && segment == "super" {
            target.truncate(parent(&target)?.len());
        } else if rest.is_empty() && modules.contains_key(&child) {
            target = child;
        } else {
            rest.push(segment);
        }
    }
    Some((target, rest.join("::")))
}

/// Returns the module around this one; `None` for the root.
fn parent(module: &str) -> Option<&str> {
    if module.is_empty() { None } else { Some(module.rsplit_once("::").map_or("", |(parent, _)| parent)) }
}

fn is_ancestor(module: &str, of: &str) -> bool {
    module.is_empty() || of.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"))
}

/// Returns the imports from ancestors.
fn upward(imports: &Imports) -> Vec<String> {
    let mut findings = Vec::new();
    for ((from, to), names) in imports {
        if is_ancestor(to, from) {
            let to = if to.is_empty() { "the root" } else { to.as_str() };
            let names = list(names);
            findings.push(format!("{from} imports {names} from its ancestor {to}: move it to a leaf module"));
        }
    }
    findings
}

/// Returns the imports that lead in circles or from one circle to another.
fn circle(imports: &Imports) -> Vec<String> {
    let sideways = imports.keys().filter(|(from, to)| !is_ancestor(to, from));
    let mut open: Vec<(&str, &str)> = sideways.map(|(from, to)| (from.as_str(), to.as_str())).collect();
    loop {
        let importing: BTreeSet<&str> = open.iter().map(|import| import.0).collect();
        let imported: BTreeSet<&str> = open.iter().map(|import| import.1).collect();
        let before = open.len();
        open.retain(|(from, to)| importing.contains(to) && imported.contains(from));
        if open.len() == before {
            break;
        }
    }
    let mut findings = Vec::new();
    for ((from, to), names) in imports {
        if open.contains(&(from.as_str(), to.as_str())) {
            let names = list(names);
            findings.push(format!("{from} imports {names} from {to} in a circle: move it to a leaf module"));
        }
    }
    findings
}

fn list(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> =
        names.iter().map(|name| if name.is_empty() { "the module" } else { name.as_str() }).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports_of(files: &[(&str, &str)]) -> Imports {
        let sources = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        imports(&modules(&sources), &Regex::new(r"(?:^|[^\w:$])(\w+(?:::\w+)+)").unwrap())
    }

    #[test]
    fn names_of_ancestors_and_of_the_root_are_upward() {
        for (code, expected) in [
            ("use crate::Name;", 1),
            ("use crate::{other::Name, Name};", 1),
            ("use super::Name;", 1),
            ("use super::*;", 1),
            ("fn f() { crate::a::name(); }", 1),
            ("fn f(all: Vec<super::super::Name>) {}", 1),
            ("use super::c::Name;", 0),
            ("use crate::a::c::Name as Other;", 0),
            ("use crate::other;", 0),
            ("pub(in crate::a) fn f() {}", 0),
            ("/// See [`crate::Name`].\nfn f() {}", 0),
            ("fn f() {} // crate::name()", 0),
            ("#[cfg(test)]\nmod tests {\n    use super::*;\n    use crate::Name;\n}", 0),
            ("#[cfg(test)]\nuse crate::Name;", 0),
            ("fn f() { $crate::name(); }", 0),
        ] {
            let imports = imports_of(&[
                ("lib", "mod a;\nmod other;\n"),
                ("a", "mod b;\npub mod c;\n"),
                ("a/b", code),
                ("a/c", ""),
                ("other", ""),
            ]);
            assert_eq!(upward(&imports).len(), expected, "{code}: {imports:?}");
        }
    }

    #[test]
    fn circles_are_found_through_parents_and_children() {
        let circle_of = |files: &[(&str, &str)]| circle(&imports_of(files));
        let direct = [("lib", "mod a;\nmod b;\n"), ("a", "use crate::b::B;\n"), ("b", "use crate::a::A;\n")];
        assert_eq!(circle_of(&direct).len(), 2);
        let through_child = [
            ("lib", "mod a;\nmod b;\n"),
            ("a", "mod c;\n\nuse c::C;\n"),
            ("a/c", "use crate::b::B;\n"),
            ("b", "fn f() { crate::a::f() }\n"),
        ];
        assert_eq!(circle_of(&through_child).len(), 3);
        let chain = [
            ("lib", "mod a;\nmod b;\n\nuse a::A;\n"),
            ("a", "pub(crate) mod c;\n\nuse crate::b::B;\n"),
            ("a/c", ""),
            ("b", "use crate::a::c::C;\n"),
        ];
        assert!(circle_of(&chain).is_empty());
    }

    #[test]
    fn files_that_only_tests_declare_are_no_modules() {
        let imports = imports_of(&[
            ("main", "mod a;\n#[cfg(test)]\nmod sample;\n"),
            ("a", ""),
            ("sample", "use crate::Name;\n"),
        ]);
        assert!(imports.is_empty(), "{imports:?}");
    }

    #[test]
    fn every_crate_is_on_a_list() {
        let file = |name: &str| PathBuf::from(format!("crates/{name}/src/lib.rs"));
        let listed = CHECKED.iter().chain(UNCHECKED.iter().map(|(name, _)| name)).map(|name| file(name));
        assert!(unlisted(&listed.collect::<Vec<_>>()).is_empty());
        assert_eq!(unlisted(&[file("new")]).len(), 1);
    }
}
