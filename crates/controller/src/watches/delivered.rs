//! Objects that a stream delivered, to count missed events. Pure.

use std::collections::HashMap;

use kube::{ResourceExt, core::DynamicObject};

use crate::informer::ResourceVersion;

/// Namespace and name of each object delivered, with its resourceVersion.
#[derive(Debug, Default)]
pub(super) struct DeliveredObjects {
    objects: HashMap<(String, String), ResourceVersion>,
    /// The resourceVersion up to which the stream should have delivered all events.
    position: ResourceVersion,
}

impl DeliveredObjects {
    /// Replaces the delivered objects by a complete list. Returns the number of changes that the stream should have
    /// delivered and did not.
    pub(super) fn listed(&mut self, objects: &[DynamicObject], version: &str) -> usize {
        let listed: HashMap<_, _> = objects.iter().map(|object| (key(object), version_of(object))).collect();
        let missed = |(key, version): &(&(String, String), &ResourceVersion)| {
            **version <= self.position && self.objects.get(*key).is_none_or(|held| held < *version)
        };
        let missed = listed.iter().filter(missed).count();
        *self = Self { objects: listed, position: ResourceVersion::parse(version).unwrap_or_default() };
        missed
    }

    /// Records an added or changed object.
    pub(super) fn applied(&mut self, object: &DynamicObject) {
        let version = version_of(object);
        self.objects.insert(key(object), version);
        self.reached(version);
    }

    /// Records a deleted object.
    pub(super) fn deleted(&mut self, object: &DynamicObject) {
        self.objects.remove(&key(object));
        self.reached(version_of(object));
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Records that all events up to this resourceVersion were delivered.
    pub(super) fn reached(&mut self, version: ResourceVersion) {
        self.position = self.position.max(version);
    }
}

fn key(object: &DynamicObject) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn version_of(object: &DynamicObject) -> ResourceVersion {
    ResourceVersion::of(&object.metadata).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, version: u64) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "n", "resourceVersion": version.to_string()},
        }))
        .unwrap()
    }

    fn started() -> DeliveredObjects {
        let mut delivered = DeliveredObjects::default();
        assert_eq!(
            delivered.listed(&[object("a", 3), object("b", 4)], "5"),
            0,
            "the first list misses nothing"
        );
        delivered
    }

    #[test]
    fn delivered_and_later_events_do_not_count_as_missed() {
        let mut delivered = started();
        delivered.applied(&object("b", 6));
        delivered.deleted(&object("a", 7));
        delivered.reached(9_u64.into());
        assert_eq!(delivered.listed(&[object("b", 6), object("new", 10)], "10"), 0);
    }

    #[test]
    fn what_changed_or_came_before_the_last_word_was_missed() {
        let mut delivered = started();
        delivered.reached(9_u64.into());
        assert_eq!(delivered.listed(&[object("a", 8), object("b", 4), object("c", 9)], "10"), 2);
        assert_eq!(delivered.listed(&[object("a", 8), object("b", 4), object("c", 9)], "11"), 0, "told now");
    }
}
