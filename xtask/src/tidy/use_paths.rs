//! Reads the paths of `use` declarations. Pure.

/// Returns every path that a `use` brings in: `a::{b, c::{d, e as f}}` as `a::b`, `a::c::d`, `a::c::e`.
pub(super) fn imports(code: &str) -> Vec<String> {
    let statements = code.split("use ").skip(1).filter_map(|rest| rest.split_once(';'));
    statements.flat_map(|(tree, _)| spread(&without_aliases(tree))).collect()
}

/// Returns the tree without white space and new names.
fn without_aliases(tree: &str) -> String {
    let mut words = tree.split_whitespace();
    let mut text = String::new();
    while let Some(word) = words.next() {
        if word == "as" {
            let alias = words.next().unwrap_or_default();
            text.push_str(alias.trim_start_matches(|letter: char| letter.is_alphanumeric() || letter == '_'));
        } else {
            text.push_str(word);
        }
    }
    text
}

fn spread(tree: &str) -> Vec<String> {
    let Some((stem, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    let mut depth = 0_u32;
    let parts = inner.split(|letter| {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    let parts = parts.filter(|part| !part.is_empty());
    parts.flat_map(spread).map(|path| format!("{stem}{path}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_trees_and_new_names_are_resolved() {
        let code = "use a::b;\npub use a::{\n    b as c,\n    d::{self, e as f},\n};\nfn g() {}\n";
        assert_eq!(imports(code), ["a::b", "a::b", "a::d::self", "a::d::e"]);
    }
}
