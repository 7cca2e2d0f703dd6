//! Readiness of the parts of a process.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Readiness of the parts of a process, as /readyz reports it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<String, bool>>>,
}

impl Health {
    /// Registers a part that is not ready until [`Health::ready`] is called for it.
    pub fn expect(&self, part: &str) {
        self.set(part, false);
    }

    /// Marks a part as ready.
    pub fn ready(&self, part: &str) {
        self.set(part, true);
    }

    /// Returns the parts that are not ready. The process is ready if there are none.
    pub fn missing(&self) -> Vec<String> {
        let parts = self.parts.lock();
        parts.iter().filter(|(_, ready)| !**ready).map(|(part, _)| part.clone()).collect()
    }

    fn set(&self, part: &str, ready: bool) {
        self.parts.lock().insert(part.to_owned(), ready);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_every_expected_part_is_up() {
        let health = Health::default();
        assert_eq!(health.missing(), [""; 0]);
        health.expect("watch");
        health.expect("access");
        health.ready("access");
        assert_eq!(health.missing(), ["watch"]);
        health.ready("watch");
        assert_eq!(health.missing(), [""; 0]);
    }
}
