//! Own writes until a watch shows them. Pure.

use std::collections::HashMap;
use std::hash::Hash;

use super::resource_version::ResourceVersion;

/// The last own write of each object of one watch, with a value, until the watch shows it.
///
/// The watch shows a write later than its response. A reconcile in between that goes by the watch alone would write
/// again, or decide from an older state.
///
/// Of two states of an object, the one with the higher [`ResourceVersion`] is the later one, except in a list: the
/// server may have been restored from a backup, and versions went back. So a list supersedes every write from before
/// its beginning, whatever its versions are, unless it shows exactly the written version. Writes since its beginning
/// still count, because the list may have been read before them. Without [`begin_list`](Self::begin_list) there are
/// none: a list that was read before a write hides the write until its event.
///
/// It keeps an entry for each written object until [`forget`](Self::forget), [`retain`](Self::retain) or
/// [`forget_delivered`](Self::forget_delivered) drops it.
///
/// ```
/// use kyma_controller::{ResourceVersion, WriteThrough};
///
/// let [observed, written, restored] = [5_u64, 7, 3].map(ResourceVersion::from);
/// let mut writes = WriteThrough::default();
/// writes.record_write("kyma", written, "Ready");
/// assert_eq!(writes.newer_than(&"kyma", observed).map(|write| *write.value()), Some("Ready"));
///
/// writes.begin_list();
/// writes.end_list();
/// assert!(writes.newer_than(&"kyma", restored).is_none(), "the list shows the state of a backup");
/// ```
#[derive(Debug)]
pub struct WriteThrough<K, V> {
    objects: HashMap<K, WrittenObject<V>>,
    /// Version up to which the watch has delivered all events.
    position: ResourceVersion,
    /// Number of lists begun.
    lists: u64,
    is_listing: bool,
}

/// An object that was written or is about to be.
#[derive(Debug)]
struct WrittenObject<V> {
    write: Option<OwnWrite<V>>,
    /// Latest version of a tracked object that the watch delivered since the last list. Other objects are compared
    /// with the position of the watch.
    delivered: Option<ResourceVersion>,
}

/// The last write of an object.
#[derive(Debug)]
pub struct OwnWrite<V> {
    version: ResourceVersion,
    value: V,
    /// Number of lists begun before the response.
    lists: u64,
    is_superseded: bool,
}

impl<V> OwnWrite<V> {
    /// Returns the version that the write created.
    pub fn version(&self) -> ResourceVersion {
        self.version
    }

    /// Returns the value of the write.
    pub fn value(&self) -> &V {
        &self.value
    }

    /// Returns the value of the write, to change it.
    pub fn value_mut(&mut self) -> &mut V {
        &mut self.value
    }

    /// Reports whether a list superseded the write: what the watch shows counts, even with lower versions.
    pub fn is_superseded(&self) -> bool {
        self.is_superseded
    }
}

impl<V> WrittenObject<V> {
    /// Takes a list that shows the object in this version, or at `position` without it. `during`: number of lists
    /// begun before the writes since its beginning.
    fn take_list(&mut self, listed: Option<ResourceVersion>, position: ResourceVersion, during: Option<u64>) {
        if let Some(delivered) = &mut self.delivered {
            *delivered = listed.unwrap_or(position);
        }
        if let Some(write) = &mut self.write {
            write.is_superseded = listed != Some(write.version) && during != Some(write.lists);
        }
    }
}

// Derived implementations would require defaults of keys and values.
impl<K, V> Default for WriteThrough<K, V> {
    fn default() -> Self {
        Self { objects: HashMap::new(), position: ResourceVersion::default(), lists: 0, is_listing: false }
    }
}

impl<K: Eq + Hash, V> WriteThrough<K, V> {
    /// Records the response to a write. It replaces the previous write even if its version is lower: the server was
    /// restored in between.
    pub fn record_write(&mut self, key: K, version: ResourceVersion, value: V) {
        let write = OwnWrite { version, value, lists: self.lists, is_superseded: false };
        self.object_mut(key).write = Some(write);
    }

    /// Records that an object is about to be written, and follows its versions from here on. [`current`](Self::current)
    /// then returns the write until the watch delivers a later state of this object. Otherwise it returns the write
    /// until the watch is beyond it: then the watch has delivered it, or the object was deleted since.
    pub fn track(&mut self, key: K) {
        let position = self.position;
        let object = self.object_mut(key);
        object.delivered = object.delivered.or(Some(position));
    }

    /// Reports whether an object is tracked.
    pub fn is_tracked(&self, key: &K) -> bool {
        self.objects.get(key).is_some_and(|object| object.delivered.is_some())
    }

    /// Records the version in an event of the watch: of the changed object, or of the last state of a deleted one.
    /// Needed for [`current`](Self::current) only.
    pub fn record_event(&mut self, key: &K, version: ResourceVersion) {
        self.position = self.position.max(version);
        if let Some(delivered) = self.objects.get_mut(key).and_then(|object| object.delivered.as_mut()) {
            *delivered = version.max(*delivered);
        }
    }

    /// Records that the watch begins a list. A list that was begun before is not completed any more.
    pub fn begin_list(&mut self) {
        self.lists += 1;
        self.is_listing = true;
    }

    /// Records the end of a list whose objects are not compared: it supersedes all writes from before its beginning.
    pub fn end_list(&mut self) {
        self.end_list_at(ResourceVersion::default(), |_| None);
    }

    /// Records the end of a list at `position`, the resourceVersion of the list, if known. `listed` returns the
    /// version of a listed object.
    pub fn end_list_at(&mut self, position: ResourceVersion, listed: impl Fn(&K) -> Option<ResourceVersion>) {
        self.position = position;
        let during = self.is_listing.then_some(self.lists);
        for (key, object) in &mut self.objects {
            object.take_list(listed(key), position, during);
        }
        self.is_listing = false;
    }

    /// Returns the value of the last write if the object is still in the written state, as far as the watch has
    /// delivered.
    pub fn current(&self, key: &K) -> Option<&V> {
        let delivered = self.objects.get(key)?.delivered;
        self.at_or_after(key, delivered.unwrap_or(self.position)).map(OwnWrite::value)
    }

    /// Returns the last write if it created the state at hand or a later one.
    pub fn at_or_after(&self, key: &K, at_hand: ResourceVersion) -> Option<&OwnWrite<V>> {
        self.last(key).filter(|write| !write.is_superseded && write.version >= at_hand)
    }

    /// Returns the last write if it created a later state than the one at hand. The state at hand may be older than
    /// the last delivered one: a running reconcile goes by what it wrote after it read the object.
    ///
    /// An object that was deleted and created again needs no other key, because its versions are higher.
    pub fn newer_than(&self, key: &K, at_hand: ResourceVersion) -> Option<&OwnWrite<V>> {
        self.last(key).filter(|write| !write.is_superseded && write.version > at_hand)
    }

    /// Returns the last write, even if a list superseded it.
    pub fn last(&self, key: &K) -> Option<&OwnWrite<V>> {
        self.objects.get(key)?.write.as_ref()
    }

    /// Returns the last write, to change its value, even if a list superseded it.
    pub fn last_mut(&mut self, key: &K) -> Option<&mut OwnWrite<V>> {
        self.objects.get_mut(key)?.write.as_mut()
    }

    /// Returns the last writes of all objects, in no particular order.
    pub fn writes(&self) -> impl Iterator<Item = (&K, &OwnWrite<V>)> {
        self.objects.iter().filter_map(|(key, object)| Some((key, object.write.as_ref()?)))
    }

    /// Reports whether no object is tracked or was written.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Drops the written objects for whose last write `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut OwnWrite<V>) -> bool) {
        self.objects.retain(|_, object| object.write.as_mut().is_none_or(&mut keep));
    }

    /// Drops an object whose last write the watch has delivered. A write since the beginning of a list counts until its
    /// end: the list may be that of a backup, whose versions are lower than those delivered before.
    pub fn forget_delivered(&mut self, key: &K) {
        let is_delivered = |object: &WrittenObject<V>| {
            let delivered = object.delivered.unwrap_or(self.position);
            let is_before_list = |write: &OwnWrite<V>| !self.is_listing || write.lists < self.lists;
            object.write.as_ref().is_some_and(|write| write.version <= delivered && is_before_list(write))
        };
        if self.objects.get(key).is_some_and(is_delivered) {
            self.objects.remove(key);
        }
    }

    /// Drops an object.
    pub fn forget(&mut self, key: &K) {
        self.objects.remove(key);
    }

    fn object_mut(&mut self, key: K) -> &mut WrittenObject<V> {
        self.objects.entry(key).or_insert(WrittenObject { write: None, delivered: None })
    }
}

#[cfg(test)]
mod tests;
