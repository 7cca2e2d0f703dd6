//! Cache of recently read namespaces, so that components of one target share the read. Pure.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::NamespaceKey;

/// Time for which a read namespace counts as existing. A component that finds it gone removes it from the cache.
const NAMESPACE_READ_TTL: Duration = Duration::from_secs(5);
/// Maximum number of remembered namespaces; others are read.
const MAX_NAMESPACE_READS: usize = 1024;

/// Time of the last read of each namespace.
#[derive(Debug, Default)]
pub(super) struct ReadTimes(HashMap<NamespaceKey, Instant>);

impl ReadTimes {
    pub(super) fn has(&self, key: &NamespaceKey, now: Instant) -> bool {
        self.0.get(key).is_some_and(|seen| counts(*seen, now))
    }

    pub(super) fn record(&mut self, key: NamespaceKey, now: Instant) {
        if self.0.len() >= MAX_NAMESPACE_READS {
            self.0.retain(|_, seen| counts(*seen, now));
        }
        if self.0.len() < MAX_NAMESPACE_READS {
            self.0.insert(key, now);
        }
    }

    pub(super) fn remove(&mut self, key: &NamespaceKey) {
        self.0.remove(key);
    }

    pub(super) fn forget(&mut self, is_meant: impl Fn(&NamespaceKey) -> bool) {
        self.0.retain(|key, _| !is_meant(key));
    }
}

fn counts(seen: Instant, now: Instant) -> bool {
    now.saturating_duration_since(seen) < NAMESPACE_READ_TTL
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> NamespaceKey {
        (None, format!("n{number}"))
    }

    #[test]
    fn a_read_counts_until_its_ttl_or_its_removal() {
        let (mut seen, start) = (ReadTimes::default(), Instant::now());
        seen.record(key(0), start);
        assert!(seen.has(&key(0), start + NAMESPACE_READ_TTL / 2) && !seen.has(&key(1), start));
        assert!(!seen.has(&key(0), start + NAMESPACE_READ_TTL));
        seen.remove(&key(0));
        assert!(!seen.has(&key(0), start));
    }

    #[test]
    fn reads_are_bounded() {
        let (mut seen, start) = (ReadTimes::default(), Instant::now());
        (0..=MAX_NAMESPACE_READS).for_each(|number| seen.record(key(number), start));
        assert!(seen.has(&key(0), start) && !seen.has(&key(MAX_NAMESPACE_READS), start));
        seen.record(key(MAX_NAMESPACE_READS), start + NAMESPACE_READ_TTL);
        assert!(
            seen.has(&key(MAX_NAMESPACE_READS), start + NAMESPACE_READ_TTL) && seen.0.len() == 1,
            "old ones made room"
        );
    }
}
