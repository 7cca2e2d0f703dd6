//! Whether what a chart's folder of tests rendered to is nothing but tests. Pure.

use kyma_object_set::{Limits, ObjectSet};

use crate::hooks::Hook;

/// What `helm template` writes before the path of the file that a document comes from.
const SOURCE: &str = "---\n# Source: ";

/// Whether each document from `templates/tests/` of the chart of this name is a hook that runs only when somebody asks
/// for tests, so that no part of the release and of its other hooks comes from there.
pub(super) fn gives(manifest: &str, chart: &str) -> bool {
    let folder = format!("{chart}/templates/tests/");
    let mut documents = manifest.split(SOURCE).skip(1).filter(|document| document.starts_with(&folder));
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
        assert!(gives(&[part.clone(), test.clone()].concat(), "demo"));
        assert!(gives(&part, "demo") && gives("", "demo"));
        for hook in ["c: d", "helm.sh/hook: test,post-install", "helm.sh/hook: nonsense"] {
            let other = document("tests/b.yaml", hook);
            assert!(!gives(&[test.clone(), other.clone(), part.clone()].concat(), "demo"), "{hook}");
            assert!(gives(&other, "demo2"), "of another chart");
        }
        assert!(!gives("---\n# Source: demo/templates/tests/a.yaml\n{", "demo"));
    }
}
