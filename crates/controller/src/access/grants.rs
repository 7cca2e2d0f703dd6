//! Grants of each access Secret, valid until the Secret changes. Pure.

use std::collections::HashMap;

use kyma_targets::Grant;
use parking_lot::Mutex;

/// Number of names below which unused grants are not removed.
const MIN_CLEANUP_SIZE: usize = 256;

/// Grants by the name of their Secret. The Secret need not exist.
#[derive(Debug, Default)]
pub(super) struct Grants(Mutex<GrantIndex>);

#[derive(Debug, Default)]
struct GrantIndex {
    grants: HashMap<String, Grant>,
    /// Number of grants in use at the last removal of unused ones.
    used: usize,
}

impl Grants {
    /// Returns the grant of the Secret's current content.
    pub(super) fn grant_for(&self, name: &str) -> Grant {
        let mut index = self.0.lock();
        let grant = index.grants.entry(name.to_owned()).or_default().clone();
        if index.grants.len() > 2 * index.used + MIN_CLEANUP_SIZE {
            // A grant without a target needs no withdrawal.
            index.grants.retain(|_, grant| !grant.is_unused());
            index.used = index.grants.len();
        }
        grant
    }

    /// Withdraws all targets that were made from the Secret, after it changed.
    pub(super) fn withdraw(&self, name: &str) {
        let mut index = self.0.lock();
        if let Some(grant) = index.grants.remove(name) {
            grant.withdraw();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_withdraws_what_was_taken_before_and_nothing_else() {
        let grants = Grants::default();
        let (before, again, other) = (grants.grant_for("a"), grants.grant_for("a"), grants.grant_for("b"));
        grants.withdraw("a");
        assert!(before.is_withdrawn() && again.is_withdrawn());
        assert!(!grants.grant_for("a").is_withdrawn() && !other.is_withdrawn());
    }

    #[test]
    fn unused_grant_names_are_dropped_and_used_ones_are_kept() {
        let grants = Grants::default();
        let used = grants.grant_for("used");
        for number in 0..10 * MIN_CLEANUP_SIZE {
            grants.grant_for(&number.to_string());
        }
        assert!(grants.0.lock().grants.len() <= 2 * MIN_CLEANUP_SIZE);
        grants.withdraw("used");
        assert!(used.is_withdrawn());
    }
}
