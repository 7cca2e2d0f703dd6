//! One pass of a reconciler: what stands still meanwhile, and whether it verifies.

use std::time::Instant;

use crate::{Halt, Metrics};

/// One pass of a reconciler over one object.
#[derive(Clone, Debug)]
pub struct Pass {
    operator: &'static str,
    verifies: bool,
    /// When the last event came that asked for it.
    heard: Option<Instant>,
    halt: Halt,
    metrics: Metrics,
}

impl Pass {
    pub(crate) fn new(operator: &'static str, verifies: bool, halt: Halt, metrics: Metrics) -> Self {
        Self { operator, verifies, heard: None, halt, metrics }
    }

    /// The same, for which an event asked last at this moment.
    pub(crate) fn heard(self, heard: Option<Instant>) -> Self {
        Self { heard, ..self }
    }

    /// When the last event came that asked for it; `None` where only time led to it. What was there before whoever caused
    /// the event did so, was there at that moment: one look that began after it can serve many passes.
    pub fn heard_at(&self) -> Option<Instant> {
        self.heard
    }

    /// What stands still for the object. A Pause that comes later ends the pass.
    pub fn halt(&self) -> &Halt {
        &self.halt
    }

    /// Whether no pass got through for as long as the resync: what is known of targets has to be read anew.
    pub fn verifies(&self) -> bool {
        self.verifies
    }

    /// So many objects had to be written. In a pass that verifies and that no event asked for, a watch missed their
    /// change: that is counted.
    pub fn repaired(&self, objects: usize) {
        if self.verifies && self.heard.is_none() {
            self.metrics.repaired(self.operator, objects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_count_only_where_a_pass_verifies_that_no_event_asked_for() {
        let metrics = Metrics::new().unwrap();
        Pass::new("x", false, Halt::default(), metrics.clone()).repaired(2);
        Pass::new("x", true, Halt::default(), metrics.clone()).heard(Some(Instant::now())).repaired(4);
        Pass::new("x", true, Halt::default(), metrics.clone()).repaired(3);
        let text = metrics.render().unwrap();
        assert!(text.contains(r#"verification_repairs_total{operator="x"} 3"#), "{text}");
    }
}
