//! One pass of a reconciler: what stands still meanwhile, and whether it verifies.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{Halt, Metrics};

/// One pass of a reconciler over one object.
#[derive(Clone, Debug)]
pub struct Pass {
    operator: &'static str,
    verifies: bool,
    halt: Halt,
    metrics: Metrics,
}

impl Pass {
    pub(crate) fn new(operator: &'static str, verifies: bool, halt: Halt, metrics: Metrics) -> Self {
        Self { operator, verifies, halt, metrics }
    }

    /// What stands still for the object. A Pause that comes later ends the pass.
    pub fn halt(&self) -> &Halt {
        &self.halt
    }

    /// Whether the time since the last pass led to it, and no event: what is known of targets has to be read anew.
    pub fn verifies(&self) -> bool {
        self.verifies
    }

    /// So many objects had to be written. In a pass that verifies, a watch missed their change: that is counted.
    pub fn repaired(&self, objects: usize) {
        if self.verifies {
            self.metrics.repaired(self.operator, objects);
        }
    }
}

/// When objects are due to be verified; whoever has a pass before that is due later.
#[derive(Debug)]
pub(crate) struct Schedule<Key>(Moments<Key>);

impl<Key: Eq + Hash> Schedule<Key> {
    /// A pass begins. True if it verifies.
    pub(crate) fn begins(&self, key: &Key, now: Instant) -> bool {
        self.0.lock().remove(key).is_some_and(|due| due <= now)
    }

    /// A pass ended; without an event the next one is due then.
    pub(crate) fn ended(&self, key: Key, due: Instant) {
        self.0.lock().insert(key, due);
    }

    /// See [`Moments::forget`].
    pub(crate) fn forget(&self, there: usize, is_there: impl Fn(&Key) -> bool) {
        self.0.forget(there, is_there);
    }
}

/// Since when events have asked for a pass over an object.
#[derive(Debug)]
pub(crate) struct Asked<Key>(Moments<Key>);

impl<Key: Eq + Hash> Asked<Key> {
    /// An event asks for a pass; one that asks while another waits changes nothing.
    pub(crate) fn ask(&self, key: Key) {
        self.0.lock().entry(key).or_insert_with(Instant::now);
    }

    /// A pass begins. Since when it was asked for; none where only time led to it.
    pub(crate) fn begins(&self, key: &Key) -> Option<Instant> {
        self.0.lock().remove(key)
    }

    /// See [`Moments::forget`].
    pub(crate) fn forget(&self, there: usize, is_there: impl Fn(&Key) -> bool) {
        self.0.forget(there, is_there);
    }
}

/// A moment for each object.
#[derive(Debug)]
struct Moments<Key>(Mutex<HashMap<Key, Instant>>);

impl<Key: Eq + Hash> Moments<Key> {
    /// Forgets the objects that are gone, once they are more than those that are there.
    fn forget(&self, there: usize, is_there: impl Fn(&Key) -> bool) {
        let mut moments = self.lock();
        if moments.len() > 2 * there + 64 {
            moments.retain(|key, _| is_there(key));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Key> Default for Moments<Key> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Key> Default for Asked<Key> {
    fn default() -> Self {
        Self(Moments::default())
    }
}

impl<Key> Default for Schedule<Key> {
    fn default() -> Self {
        Self(Moments::default())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_pass_that_nothing_but_time_led_to_verifies() {
        let schedule = Schedule::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!schedule.begins(&"a", at(0)), "the first one");
        schedule.ended("a", at(100));
        assert!(!schedule.begins(&"a", at(99)), "an event came before");
        schedule.ended("a", at(199));
        assert!(schedule.begins(&"a", at(199)));
        assert!(!schedule.begins(&"a", at(200)), "it has begun already");
    }

    #[test]
    fn a_pass_waits_since_the_first_event_that_asked_for_it() {
        let asked = Asked::default();
        assert_eq!(asked.begins(&"a"), None, "only time led to it");
        asked.ask("a");
        let first = asked.0.lock()["a"];
        asked.ask("a");
        assert_eq!(asked.begins(&"a"), Some(first));
        assert_eq!(asked.begins(&"a"), None);
        (0..100).for_each(|_| asked.ask("b"));
        asked.forget(0, |_| false);
        assert_eq!(asked.0.lock().len(), 1, "few are not worth it");
    }

    #[test]
    fn what_is_gone_is_forgotten_before_it_becomes_many() {
        let schedule = Schedule::default();
        for key in 0..1000 {
            schedule.ended(key, Instant::now());
        }
        schedule.forget(1000, |_| false);
        assert_eq!(schedule.0.lock().len(), 1000);
        schedule.forget(3, |key| *key < 3);
        assert_eq!(schedule.0.lock().len(), 3);
    }

    #[test]
    fn repairs_count_only_where_a_pass_verifies() {
        let metrics = Metrics::new().unwrap();
        Pass::new("x", false, Halt::default(), metrics.clone()).repaired(2);
        Pass::new("x", true, Halt::default(), metrics.clone()).repaired(3);
        let text = metrics.render().unwrap();
        assert!(text.contains(r#"verification_repairs_total{operator="x"} 3"#), "{text}");
    }
}
