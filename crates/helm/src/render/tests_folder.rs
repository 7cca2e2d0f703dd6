//! Detects renders in which only tests may vary. Pure.

use kyma_object_set::{Limits, ObjectSet};

use crate::hooks::Hook;

/// Line that `helm template` writes before the path of a document's file.
const SOURCE_COMMENT: &str = "---\n# Source: ";

/// Reports whether each document from `templates/tests/` of this chart is a hook that runs only when a user requests
/// tests, so that no part of the release and of its other hooks comes from there.
pub fn tests_folder_has_only_tests(manifest: &str, chart: &str) -> bool {
    let folder = format!("{chart}/templates/tests/");
    let mut documents =
        manifest.split(SOURCE_COMMENT).skip(1).filter(|document| document.starts_with(&folder));
    documents.all(|document| {
        let text = document.split_once('\n').map_or("", |(_, text)| text);
        ObjectSet::parse(text, &Limits::default()).is_ok_and(|set| {
            set.into_objects()
                .into_iter()
                .all(|object| Hook::of(object).is_some_and(|hook| hook.is_only_test()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(file: &str, hook: &str) -> String {
        let about = format!("---\n# Source: demo/templates/{file}\napiVersion: v1\nkind: Pod\n");
        format!("{about}metadata:\n  name: x\n  annotations:\n    {hook}\n    a: b\n")
    }

    #[test]
    fn a_part_of_the_release_or_another_hook_among_them_is_found() {
        let test = document("tests/a.yaml", "helm.sh/hook: test-success");
        let part = document("a.yaml", "c: d");
        assert!(tests_folder_has_only_tests(&[part.clone(), test.clone()].concat(), "demo"));
        assert!(tests_folder_has_only_tests(&part, "demo") && tests_folder_has_only_tests("", "demo"));
        for hook in ["c: d", "helm.sh/hook: test,post-install", "helm.sh/hook: nonsense"] {
            let other = document("tests/b.yaml", hook);
            assert!(
                !tests_folder_has_only_tests(&[test.clone(), other.clone(), part.clone()].concat(), "demo"),
                "{hook}"
            );
            assert!(tests_folder_has_only_tests(&other, "demo2"), "of another chart");
        }
        assert!(!tests_folder_has_only_tests("---\n# Source: demo/templates/tests/a.yaml\n{", "demo"));
    }
}
