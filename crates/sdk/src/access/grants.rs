//! What was taken from each access Secret as it is (pure).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kyma_targets::Grant;

/// Below so many names nothing is tidied up.
const FEW: usize = 256;

/// Grants by the name of their Secret, whether there is one or not.
#[derive(Debug, Default)]
pub(super) struct Grants(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    grants: HashMap<String, Grant>,
    /// How many were in use when it was last tidied up.
    used: usize,
}

impl Grants {
    /// What the Secret grants as it is.
    pub(super) fn of(&self, name: &str) -> Grant {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let grant = held.grants.entry(name.to_owned()).or_default().clone();
        if held.grants.len() > 2 * held.used + FEW {
            // Of what nobody has, there is nothing to withdraw.
            held.grants.retain(|_, grant| !grant.is_unused());
            held.used = held.grants.len();
        }
        grant
    }

    /// The Secret changed: what was taken from it no longer counts.
    pub(super) fn withdraw(&self, name: &str) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(grant) = held.grants.remove(name) {
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
        let (before, again, other) = (grants.of("a"), grants.of("a"), grants.of("b"));
        grants.withdraw("a");
        assert!(before.is_withdrawn() && again.is_withdrawn());
        assert!(!grants.of("a").is_withdrawn() && !other.is_withdrawn());
    }

    #[test]
    fn names_that_nobody_uses_are_not_kept_for_ever_and_those_in_use_are() {
        let grants = Grants::default();
        let used = grants.of("used");
        for number in 0..10 * FEW {
            grants.of(&number.to_string());
        }
        assert!(grants.0.lock().unwrap().grants.len() <= 2 * FEW);
        grants.withdraw("used");
        assert!(used.is_withdrawn());
    }
}
