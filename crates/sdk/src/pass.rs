//! One pass of a reconciler: what stands still meanwhile, and whether it verifies.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_count_only_where_a_pass_verifies() {
        let metrics = Metrics::new().unwrap();
        Pass::new("x", false, Halt::default(), metrics.clone()).repaired(2);
        Pass::new("x", true, Halt::default(), metrics.clone()).repaired(3);
        let text = metrics.render().unwrap();
        assert!(text.contains(r#"verification_repairs_total{operator="x"} 3"#), "{text}");
    }
}
