//! The budget of one evaluation: steps and memory.

/// Steps that one evaluation may take. At this limit an evaluation costs at most 20 ms of processor time in a release
/// build, as `cargo xtask bench expressions` shows.
pub(super) const MAX_STEPS: u64 = 400_000;
/// Bytes that one evaluation may allocate in total, freed or not. Patterns, and vectors while they grow, take up to as
/// much again for a moment.
pub(super) const MAX_ALLOCATED_BYTES: usize = 1 << 20;
/// Bytes of text that are compared or copied in one step.
const BYTES_PER_STEP: usize = 64;
/// Bytes that an allocation takes beside its content.
const ALLOCATION_OVERHEAD: usize = 48;

/// Reason that an evaluation gives no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvaluationError {
    /// The expression gives an error, as CEL defines it.
    Error,
    /// The budget is used up. Unlike an error, no operator absorbs it.
    Exhausted,
}

/// The budget that remains.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    steps: u64,
    bytes: usize,
}

impl Budget {
    pub(super) const fn new(steps: u64, bytes: usize) -> Self {
        Self { steps, bytes }
    }

    /// Steps and bytes that remain.
    pub(super) const fn remaining(&self) -> (u64, usize) {
        (self.steps, self.bytes)
    }

    /// Takes steps.
    ///
    /// # Errors
    /// `Exhausted` if fewer remain; then none remain.
    pub(super) fn take_steps(&mut self, steps: usize) -> Result<(), EvaluationError> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        let left = self.steps.checked_sub(steps);
        self.steps = left.unwrap_or(0);
        left.map(drop).ok_or(EvaluationError::Exhausted)
    }

    /// Takes one step, and more for reading so many bytes of text.
    ///
    /// # Errors
    /// `Exhausted`.
    pub(super) fn read_text(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        self.take_steps(1 + bytes / BYTES_PER_STEP)
    }

    /// Takes memory for an allocation of that many bytes, and the steps to fill it.
    ///
    /// # Errors
    /// `Exhausted`.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        self.take_steps(2 + bytes / BYTES_PER_STEP)?;
        let left = self.bytes.checked_sub(bytes.saturating_add(ALLOCATION_OVERHEAD));
        self.bytes = left.unwrap_or(0);
        left.map(drop).ok_or(EvaluationError::Exhausted)
    }
}
