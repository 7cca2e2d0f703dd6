//! Bounds for answers of an untrusted target. Pure.

use std::io;

use kube::api::ObjectMeta;
use kube::core::DynamicObject;
use kyma_api::labels;

/// Maximum number of objects in one stream. No module has as many, so a larger number is an attack.
const MAX_OBJECTS: usize = 20_000;
/// Maximum size of a list as JSON, in bytes.
const MAX_LIST_BYTES: usize = 32 * 1024 * 1024;
/// Maximum number of pages of a list.
const MAX_LIST_PAGES: usize = 200;
/// Maximum length of an object's identifiers, in bytes.
const MAX_IDENTIFIER_BYTES: usize = 253;

/// An answer that exceeds the bounds, or that Kubernetes would not send. Contains no text of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Implausible {
    /// Too many objects.
    #[error("more than {MAX_OBJECTS} objects")]
    Objects,
    /// A list that takes too much memory.
    #[error("objects of more than {MAX_LIST_BYTES} bytes")]
    Bytes,
    /// A list without end.
    #[error("more than {MAX_LIST_PAGES} pages of one list")]
    Pages,
    /// A name, uid, version or owner that no object has.
    #[error("an object that no API server would store")]
    Object,
}

/// Counts objects, bytes and pages of one list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    objects: usize,
    bytes: usize,
    pages: usize,
}

impl Tally {
    /// Counts a page.
    pub(super) fn page(&mut self, objects: &[DynamicObject]) -> Result<(), Implausible> {
        self.pages += 1;
        self.objects += objects.len();
        if self.objects > MAX_OBJECTS {
            return Err(Implausible::Objects);
        }
        for object in objects {
            is_plausible(&object.metadata)?;
            self.bytes += json_size(object);
            if self.bytes > MAX_LIST_BYTES {
                return Err(Implausible::Bytes);
            }
        }
        if self.pages > MAX_LIST_PAGES { Err(Implausible::Pages) } else { Ok(()) }
    }
}

/// Checks that a stream may continue with this number of objects.
pub(super) fn is_bearable(objects: usize) -> Result<(), Implausible> {
    if objects > MAX_OBJECTS { Err(Implausible::Objects) } else { Ok(()) }
}

/// Checks that the identifiers of an object, which are cached, are not longer than an API server allows.
///
/// # Errors
/// If one is longer.
pub fn is_plausible(meta: &ObjectMeta) -> Result<(), Implausible> {
    let owner = meta.labels.as_ref().and_then(|labels| labels.get(labels::OWNER));
    let identifiers = [&meta.name, &meta.namespace, &meta.uid, &meta.resource_version];
    let mut identifiers = identifiers.into_iter().flatten().chain(owner);
    if identifiers.any(|text| text.len() > MAX_IDENTIFIER_BYTES) { Err(Implausible::Object) } else { Ok(()) }
}

/// Checks that the resourceVersion of a list or bookmark, which is cached and sent back, is not longer than an API
/// server allows.
pub(super) fn is_plausible_version(version: &str) -> Result<(), Implausible> {
    if version.len() > MAX_IDENTIFIER_BYTES { Err(Implausible::Object) } else { Ok(()) }
}

/// Returns the size of an object as JSON, without building the text.
fn json_size(object: &DynamicObject) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // An object that was parsed from JSON can be encoded as JSON.
    serde_json::to_writer(&mut counter, object).map_or(MAX_LIST_BYTES, |()| counter.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, text: usize) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "annotations": {"text": "x".repeat(text)}},
        }))
        .unwrap()
    }

    #[test]
    fn a_list_ends_by_objects_bytes_and_pages() {
        let page = vec![object("a", 0); 500];
        let mut tally = Tally::default();
        assert_eq!((0..41).find_map(|_| tally.page(&page).err()), Some(Implausible::Objects));
        let mut tally = Tally::default();
        let fat = [object("a", 15 * 1024 * 1024)];
        assert_eq!((0..3).map(|_| tally.page(&fat).is_ok()).collect::<Vec<_>>(), [true, true, false]);
        let mut tally = Tally::default();
        assert_eq!((0..201).find_map(|_| tally.page(&[]).err()), Some(Implausible::Pages));
    }

    #[test]
    fn versions_that_are_kept_are_short() {
        assert_eq!(is_plausible_version(&"7".repeat(253)), Ok(()));
        assert_eq!(is_plausible_version(&"7".repeat(254)), Err(Implausible::Object));
    }

    #[test]
    fn what_is_kept_of_an_object_is_short() {
        assert_eq!(is_plausible(&object(&"n".repeat(253), 0).metadata), Ok(()));
        assert_eq!(is_plausible(&object(&"n".repeat(254), 0).metadata), Err(Implausible::Object));
        let mut long = object("a", 0);
        long.metadata.labels = Some([(labels::OWNER.to_owned(), "o".repeat(1000))].into());
        assert_eq!(is_plausible(&long.metadata), Err(Implausible::Object));
    }
}
