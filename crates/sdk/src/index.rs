//! Which objects depend on what: a synchronous index, fed by watches and asked when something changes.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

/// Many-to-many: each object names what it depends on; what it depends on finds the objects.
///
/// Bounded by the objects that are set; [`Index::remove`] takes everything of one away.
#[derive(Clone, Debug)]
pub struct Index<On, Object> {
    objects: HashMap<On, HashSet<Object>>,
    on: HashMap<Object, HashSet<On>>,
}

impl<On: Clone + Eq + Hash, Object: Clone + Eq + Hash> Index<On, Object> {
    /// An empty index.
    pub fn new() -> Self {
        Self { objects: HashMap::new(), on: HashMap::new() }
    }

    /// Says that `object` depends on exactly these; what was said before is forgotten.
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

    /// Forgets the object.
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

    /// The objects that depend on `on`, in no order.
    pub fn dependents(&self, on: &On) -> impl Iterator<Item = &Object> {
        self.objects.get(on).into_iter().flatten()
    }

    /// All objects that depend on something, in no order.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.on.keys()
    }

    /// How many different things something depends on.
    pub fn dependencies(&self) -> usize {
        self.objects.len()
    }

    /// Whether nothing is indexed.
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
