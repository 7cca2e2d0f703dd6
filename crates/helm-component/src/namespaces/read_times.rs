//! Cache of recently read namespaces, so that components of one target share the read. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::NamespaceKey;

/// Time for which a read namespace counts as existing. A component that finds it gone removes it from the cache.
const LASTS: Duration = Duration::from_secs(5);
/// Maximum number of remembered namespaces; others are read.
const MOST: usize = 1024;

/// Time of the last read of each namespace.
#[derive(Debug, Default)]
pub(super) struct ReadTimes(HashMap<NamespaceKey, Instant>);

impl ReadTimes {
    pub(super) fn has(&self, key: &NamespaceKey, now: Instant) -> bool {
        self.0.get(key).is_some_and(|seen| counts(*seen, now))
    }

    pub(super) fn saw(&mut self, key: NamespaceKey, now: Instant) {
        if self.0.len() >= MOST {
            self.0.retain(|_, seen| counts(*seen, now));
        }
        if self.0.len() < MOST {
            self.0.insert(key, now);
        }
    }

    pub(super) fn missed(&mut self, key: &NamespaceKey) {
        self.0.remove(key);
    }

    pub(super) fn forget(&mut self, is_meant: impl Fn(&NamespaceKey) -> bool) {
        self.0.retain(|key, _| !is_meant(key));
    }
}

fn counts(seen: Instant, now: Instant) -> bool {
    now.saturating_duration_since(seen) < LASTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> NamespaceKey {
        (None, format!("n{number}"))
    }

    #[test]
    fn one_counts_for_a_moment_unless_somebody_missed_it() {
        let (mut seen, start) = (ReadTimes::default(), Instant::now());
        seen.saw(key(0), start);
        assert!(seen.has(&key(0), start + LASTS / 2) && !seen.has(&key(1), start));
        assert!(!seen.has(&key(0), start + LASTS));
        seen.missed(&key(0));
        assert!(!seen.has(&key(0), start));
    }

    #[test]
    fn they_are_never_many() {
        let (mut seen, start) = (ReadTimes::default(), Instant::now());
        (0..=MOST).for_each(|number| seen.saw(key(number), start));
        assert!(seen.has(&key(0), start) && !seen.has(&key(MOST), start));
        seen.saw(key(MOST), start + LASTS);
        assert!(seen.has(&key(MOST), start + LASTS) && seen.0.len() == 1, "old ones made room");
    }
}
