//! The mark on objects that `run --once` created: `run --remove` deletes no other object.

use kube::api::ObjectMeta;
use kyma_api::annotations::CREATED_BY_RUN;

/// Value of the annotation.
pub(super) const CREATED_BY_RUN_VALUE: &str = "true";

/// Reports whether `run --once` created the object.
pub(super) fn is_marked(meta: &ObjectMeta) -> bool {
    meta.annotations
        .as_ref()
        .and_then(|all| all.get(CREATED_BY_RUN))
        .is_some_and(|value| value == CREATED_BY_RUN_VALUE)
}

/// Marks an object before it is applied if it does not exist yet or has the mark already. Otherwise removes a mark
/// from the file, for example of an export from another cluster.
pub(super) fn mark(wanted: &mut ObjectMeta, live: Option<&ObjectMeta>) {
    if live.is_none_or(is_marked) {
        let annotations = wanted.annotations.get_or_insert_default();
        annotations.insert(CREATED_BY_RUN.to_owned(), CREATED_BY_RUN_VALUE.to_owned());
    } else if let Some(annotations) = &mut wanted.annotations {
        annotations.remove(CREATED_BY_RUN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(value: Option<&str>) -> ObjectMeta {
        let annotations = value.map(|value| [(CREATED_BY_RUN.to_owned(), value.to_owned())].into());
        ObjectMeta { annotations, ..ObjectMeta::default() }
    }

    #[test]
    fn objects_that_existed_before_the_run_never_get_the_mark() {
        let marked = |in_file: Option<&str>, live: Option<ObjectMeta>| {
            let mut wanted = meta(in_file);
            mark(&mut wanted, live.as_ref());
            is_marked(&wanted)
        };
        assert!(marked(None, None));
        assert!(marked(None, Some(meta(Some(CREATED_BY_RUN_VALUE)))), "a second run keeps the mark");
        assert!(!marked(None, Some(meta(None))));
        assert!(
            !marked(Some(CREATED_BY_RUN_VALUE), Some(meta(None))),
            "a mark of another cluster is removed"
        );
        assert!(!marked(None, Some(meta(Some("false")))));
    }
}
