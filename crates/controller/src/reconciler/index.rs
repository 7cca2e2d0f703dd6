//! A synchronous index of objects and their dependencies, filled by watches and queried on changes.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

/// Many-to-many index: maps each dependency to the objects that depend on it.
///
/// Bounded by the number of objects; [`Index::remove`] removes all entries of one.
#[derive(Clone, Debug)]
pub struct Index<On, Object> {
    objects: HashMap<On, HashSet<Object>>,
    on: HashMap<Object, HashSet<On>>,
}

impl<On: Clone + Eq + Hash, Object: Clone + Eq + Hash> Index<On, Object> {
    /// Returns an empty index.
    pub fn new() -> Self {
        Self { objects: HashMap::new(), on: HashMap::new() }
    }

    /// Sets the dependencies of `object`, in place of its previous ones.
    pub fn set(&mut self, object: Object, on: impl IntoIterator<Item = On>) {
        self.remove(&object);
        let on: HashSet<On> = on.into_iter().collect();
        for one in &on {
            self.objects.entry(one.clone()).or_default().insert(object.clone());
        }
        if !on.is_empty() {
            self.on.insert(object, on);
        }
    }

    /// Removes the object.
    pub fn remove(&mut self, object: &Object) {
        for one in self.on.remove(object).into_iter().flatten() {
            if let Some(objects) = self.objects.get_mut(&one) {
                objects.remove(object);
                if objects.is_empty() {
                    self.objects.remove(&one);
                }
            }
        }
    }

    /// Returns the objects that depend on `on`, unordered.
    pub fn dependents(&self, on: &On) -> impl Iterator<Item = &Object> {
        self.objects.get(on).into_iter().flatten()
    }

    /// Returns all objects with dependencies, unordered.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.on.keys()
    }

    /// Returns the number of distinct dependencies.
    pub fn dependencies(&self) -> usize {
        self.objects.len()
    }

    /// Reports whether the index is empty.
    pub fn is_empty(&self) -> bool {
        self.on.is_empty()
    }
}

impl<On: Clone + Eq + Hash, Object: Clone + Eq + Hash> Default for Index<On, Object> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependents(index: &Index<&'static str, &'static str>, on: &'static str) -> Vec<&'static str> {
        let mut found: Vec<_> = index.dependents(&on).copied().collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn setting_again_replaces_and_removing_leaves_nothing_behind() {
        let mut index = Index::new();
        index.set("a", ["secret-1", "secret-2"]);
        index.set("b", ["secret-1"]);
        assert_eq!(dependents(&index, "secret-1"), ["a", "b"]);
        assert_eq!(index.dependencies(), 2);
        index.set("a", ["secret-3"]);
        assert_eq!(dependents(&index, "secret-1"), ["b"]);
        assert_eq!(dependents(&index, "secret-2"), [""; 0]);
        assert_eq!(dependents(&index, "secret-3"), ["a"]);
        index.remove(&"a");
        index.remove(&"b");
        assert!(index.is_empty() && index.objects.is_empty());
    }
}
