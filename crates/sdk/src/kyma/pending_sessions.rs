//! Sessions with targets that are being opened.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::KymaKey;

/// The sessions that are being opened, each with whether its access changed meanwhile. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PendingSessions(Arc<Mutex<HashMap<KymaKey, bool>>>);

/// A session that is being opened. At most one for each Kyma.
#[derive(Debug)]
pub struct PendingSession {
    pending_sessions: PendingSessions,
    kyma: KymaKey,
}

impl PendingSessions {
    /// Begins to open the session of a Kyma.
    pub fn begin(&self, kyma: &KymaKey) -> PendingSession {
        self.0.lock().insert(kyma.clone(), false);
        PendingSession { pending_sessions: self.clone(), kyma: kyma.clone() }
    }

    /// Interrupts the opening of a Kyma's session, if it is under way: its access changed or its target stopped
    /// answering.
    pub fn interrupt(&self, kyma: &KymaKey) {
        if let Some(is_interrupted) = self.0.lock().get_mut(kyma) {
            *is_interrupted = true;
        }
    }

    /// Returns the number of sessions that are being opened.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }
}

impl PendingSession {
    /// Reports whether the session was ended while it was opened, so that it must not be used.
    pub fn is_interrupted(&self) -> bool {
        self.pending_sessions.0.lock().get(&self.kyma).copied().unwrap_or(true)
    }
}

impl Drop for PendingSession {
    fn drop(&mut self) {
        self.pending_sessions.0.lock().remove(&self.kyma);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_openings_under_way_are_kept_and_interrupted() {
        let pending_sessions = PendingSessions::default();
        let key = |name: &str| KymaKey::new("n", name);
        pending_sessions.interrupt(&key("gone"));
        assert_eq!(pending_sessions.count(), 0, "a Secret event of a Kyma that is gone");
        let (one, other) = (pending_sessions.begin(&key("a")), pending_sessions.begin(&key("b")));
        pending_sessions.interrupt(&key("a"));
        assert!(one.is_interrupted() && !other.is_interrupted());
        drop((one, other));
        assert_eq!(pending_sessions.count(), 0);
        assert!(!pending_sessions.begin(&key("a")).is_interrupted());
    }
}
