//! The sessions of an operator with targets: those that are open, and those that are being opened.

use std::collections::HashMap;
use std::sync::Arc;

use kyma_controller::{Failure, KymaKey};
use parking_lot::Mutex;

use crate::error::Error;

/// The sessions of an operator, at most one for each Kyma.
pub struct Sessions<S>(Mutex<Entries<S>>);

struct Entries<S> {
    open: HashMap<KymaKey, Arc<S>>,
    /// Sessions that are being opened, each with whether it was ended meanwhile.
    pending: HashMap<KymaKey, bool>,
}

/// A session that is being opened. At most one for each Kyma.
pub struct PendingSession<'a, S> {
    sessions: &'a Sessions<S>,
    kyma: KymaKey,
}

impl<S> Default for Sessions<S> {
    fn default() -> Self {
        Self(Mutex::new(Entries { open: HashMap::new(), pending: HashMap::new() }))
    }
}

impl<S> Sessions<S> {
    /// Returns the open session of a Kyma.
    pub fn get(&self, kyma: &KymaKey) -> Option<Arc<S>> {
        self.0.lock().open.get(kyma).cloned()
    }

    /// Returns all open sessions.
    pub fn all(&self) -> Vec<(KymaKey, Arc<S>)> {
        let entries = self.0.lock();
        entries.open.iter().map(|(kyma, session)| (kyma.clone(), Arc::clone(session))).collect()
    }

    /// Begins to open the session of a Kyma.
    pub fn begin(&self, kyma: &KymaKey) -> PendingSession<'_, S> {
        self.0.lock().pending.insert(kyma.clone(), false);
        PendingSession { sessions: self, kyma: kyma.clone() }
    }

    /// Ends the session of a Kyma. Interrupts its opening, if it is under way: its access changed, or its target stopped
    /// answering.
    pub fn end(&self, kyma: &KymaKey) {
        let mut entries = self.0.lock();
        entries.open.remove(kyma);
        if let Some(is_interrupted) = entries.pending.get_mut(kyma) {
            *is_interrupted = true;
        }
    }

    /// Replaces the session `before` of a Kyma, unless it ended meanwhile.
    pub fn replace(&self, kyma: &KymaKey, before: &Arc<S>, now: &Arc<S>) {
        let mut entries = self.0.lock();
        if let Some(current) = entries.open.get_mut(kyma).filter(|current| Arc::ptr_eq(current, before)) {
            *current = Arc::clone(now);
        }
    }

    /// Returns the number of sessions that are being opened.
    pub fn pending_count(&self) -> usize {
        self.0.lock().pending.len()
    }
}

impl<S> PendingSession<'_, S> {
    /// Reports whether the session was ended while it was opened, so that it must not be used.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted_in(&self.sessions.0.lock())
    }

    /// Adds the opened session to the sessions of the operator.
    ///
    /// # Errors
    /// The session was ended while it was opened. The caller discards all state that it reported.
    pub fn complete(self, session: S) -> Result<Arc<S>, Failure> {
        let session = Arc::new(session);
        let mut entries = self.sessions.0.lock();
        if self.is_interrupted_in(&entries) {
            return Err(Error::OpenSession.into());
        }
        entries.open.insert(self.kyma.clone(), Arc::clone(&session));
        Ok(session)
    }

    fn is_interrupted_in(&self, entries: &Entries<S>) -> bool {
        entries.pending.get(&self.kyma).copied().unwrap_or(true)
    }
}

impl<S> Drop for PendingSession<'_, S> {
    fn drop(&mut self) {
        self.sessions.0.lock().pending.remove(&self.kyma);
    }
}

#[cfg(test)]
mod tests {
    use kyma_api::Reason;

    use super::*;

    fn key(name: &str) -> KymaKey {
        KymaKey::new("n", name)
    }

    #[test]
    fn only_a_pending_session_is_interrupted() {
        let sessions = Sessions::<u8>::default();
        sessions.end(&key("gone"));
        assert_eq!(sessions.pending_count(), 0, "a Secret event of a deleted Kyma");
        let (one, other) = (sessions.begin(&key("a")), sessions.begin(&key("b")));
        sessions.end(&key("a"));
        assert!(one.is_interrupted() && !other.is_interrupted());
        let failure = one.complete(1).unwrap_err();
        assert_eq!(failure.reason, Reason::TargetAnswerInvalid);
        assert_eq!(failure.message, "the access to the target changed while it was read");
        assert_eq!(sessions.get(&key("a")), None);
        assert_eq!(other.complete(2).unwrap(), Arc::new(2));
        assert_eq!(sessions.get(&key("b")), Some(Arc::new(2)));
        assert_eq!(sessions.pending_count(), 0);
        assert!(!sessions.begin(&key("a")).is_interrupted());
    }

    #[test]
    fn a_session_that_ended_is_not_replaced() {
        let sessions = Sessions::<u8>::default();
        let first = sessions.begin(&key("a")).complete(1).unwrap();
        sessions.replace(&key("a"), &Arc::new(1), &Arc::new(2));
        assert_eq!(sessions.get(&key("a")), Some(Arc::new(1)), "another session of the same Kyma");
        sessions.replace(&key("a"), &first, &Arc::new(3));
        assert_eq!(sessions.all(), [(key("a"), Arc::new(3))]);
        sessions.end(&key("a"));
        sessions.replace(&key("a"), &Arc::new(3), &Arc::new(4));
        assert!(sessions.all().is_empty());
    }
}
