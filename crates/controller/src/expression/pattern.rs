//! Regular expressions within the budget of an evaluation.

use std::rc::Rc;

use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::nfa::thompson::{Config, State, WhichCaptures};
use regex_automata::util::syntax;

use super::budget::{Budget, EvaluationError};

/// Longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1_024;
/// Largest automaton of a pattern, in bytes.
const MAX_AUTOMATON_BYTES: usize = 256 << 10;
/// Deepest nesting of a pattern.
const MAX_PATTERN_DEPTH: u32 = 48;
/// Steps to compile a pattern, for each of its bytes, and for each set of characters in it, which may have hundreds of
/// ranges.
const STEPS_PER_PATTERN: usize = 300;
const STEPS_PER_PATTERN_BYTE: usize = 30;
const STEPS_PER_SET: usize = 6_000;
/// Steps to build the table for sets beyond ASCII, which has 10,000 entries whatever the sets.
const STEPS_PER_SET_TABLE: usize = 2_000;
/// Bytes that a set of characters may take.
const BYTES_PER_SET: usize = 16 << 10;
/// Bytes of an automaton that are built in one step.
const AUTOMATON_BYTES_PER_STEP: usize = 16;
/// Visits of states of an automaton in one step.
const VISITS_PER_STEP: usize = 4;
/// Ranges of a state that are compared with a byte in the time of one visit.
const RANGES_PER_VISIT: usize = 8;
/// Alternatives of a state that are followed in the time of one visit.
const ALTERNATIVES_PER_VISIT: usize = 4;
/// Visits in the time that the check of a word boundary takes.
const VISITS_PER_BOUNDARY: usize = 4;

/// The patterns that an evaluation has compiled.
#[derive(Debug, Default)]
pub(super) struct Patterns(Vec<(String, Rc<Pattern>)>);

#[derive(Debug)]
struct Pattern {
    automaton: PikeVM,
    /// Visits for each byte of a text if all states are active.
    visits: usize,
}

impl Patterns {
    /// Reports whether a pattern matches a part of a text.
    ///
    /// # Errors
    /// If the pattern is invalid, or the budget does not suffice to compile it or to search with it.
    pub(super) fn is_match(
        &mut self,
        pattern: &str,
        text: &str,
        budget: &mut Budget,
    ) -> Result<bool, EvaluationError> {
        let pattern = self.compiled(pattern, budget)?;
        let visits = (text.len() + 1).saturating_mul(pattern.visits);
        budget.take_steps(1 + visits / VISITS_PER_STEP)?;
        let mut cache: Cache = pattern.automaton.create_cache();
        budget.allocate(cache.memory_usage())?;
        Ok(pattern.automaton.is_match(&mut cache, text))
    }

    fn compiled(&mut self, pattern: &str, budget: &mut Budget) -> Result<Rc<Pattern>, EvaluationError> {
        budget.read_text(self.0.len() * 8)?;
        if let Some((_, compiled)) = self.0.iter().find(|(known, _)| known == pattern) {
            return Ok(Rc::clone(compiled));
        }
        let compiled = Rc::new(Pattern::compile(pattern, budget)?);
        self.0.push((pattern.to_owned(), Rc::clone(&compiled)));
        Ok(compiled)
    }
}

impl Pattern {
    fn compile(pattern: &str, budget: &mut Budget) -> Result<Self, EvaluationError> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(EvaluationError::Exhausted);
        }
        let sets = sets(pattern);
        budget.take_steps(STEPS_PER_PATTERN + pattern.len() * STEPS_PER_PATTERN_BYTE)?;
        budget.take_steps(sets.saturating_mul(STEPS_PER_SET))?;
        if may_have_sets(pattern) {
            budget.take_steps(STEPS_PER_SET_TABLE)?;
        }
        budget.allocate(pattern.len() * 4 + sets.saturating_mul(BYTES_PER_SET))?;
        let config = Config::new()
            .nfa_size_limit(Some(MAX_AUTOMATON_BYTES))
            .which_captures(WhichCaptures::None)
            .shrink(false);
        let automaton = PikeVM::builder()
            .thompson(config)
            .syntax(syntax::Config::new().nest_limit(MAX_PATTERN_DEPTH))
            .build(pattern)
            .map_err(|error| {
                if error.size_limit().is_some() { EvaluationError::Exhausted } else { EvaluationError::Error }
            })?;
        let built = automaton.get_nfa().memory_usage();
        budget.take_steps(built / AUTOMATON_BYTES_PER_STEP)?;
        budget.allocate(built)?;
        let visits = automaton.get_nfa().states().iter().map(visits).sum();
        Ok(Self { automaton, visits })
    }
}

/// Returns the time to visit a state, in visits of the simplest state.
fn visits(state: &State) -> usize {
    match state {
        State::Sparse(sparse) => 1 + sparse.transitions.len() / RANGES_PER_VISIT,
        State::Union { alternates } => 1 + alternates.len() / ALTERNATIVES_PER_VISIT,
        State::Look { .. } => VISITS_PER_BOUNDARY,
        _ => 1,
    }
}

/// Reports whether a pattern may have sets beyond ASCII. A dot is one, and so may be any letter if flags make the
/// pattern case-insensitive.
fn may_have_sets(pattern: &str) -> bool {
    !pattern.is_ascii() || pattern.contains(['.', '[', '\\', '?'])
}

/// Returns an upper bound of the number of large character sets in a pattern: classes such as `\w`, and every bracket
/// and dot if flags may make the pattern case-insensitive.
fn sets(pattern: &str) -> usize {
    let has_flags =
        pattern.match_indices("(?").any(|(at, _)| !pattern[at + 2..].starts_with([':', 'P', '<']));
    let mut sets = 0;
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        sets += match byte {
            b'\\' => usize::from(matches!(
                bytes.next(),
                Some(b'p' | b'P' | b'w' | b'W' | b'd' | b'D' | b's' | b'S')
            )),
            b'[' | b'.' => usize::from(has_flags),
            _ => 0,
        };
    }
    sets
}
