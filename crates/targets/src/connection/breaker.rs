//! Circuit breaker of one target, as a state machine without clock, timer or task.

use std::time::{Duration, Instant};

use kyma_api::Backoff;

use crate::connection::limits::BreakerLimits;

/// Random share of a delay, so that probes after an outage of many targets do not come in one wave.
const JITTER_SHARE: f64 = 0.25;

/// Result of one call, as the breaker classifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target answered below 500, or refused this one request: the target works.
    Healthy,
    /// The target answered 5xx with a Kubernetes `Status`: the apiserver works, something behind it may not.
    Failing,
    /// The target refused the credentials (401): every other call with them would be refused too.
    Refused,
    /// No answer: refused, reset, timed out, TLS failed, or a 5xx that no apiserver wrote.
    Unreachable,
}

/// Action for the caller of [`Breaker::record`] or [`Breaker::probed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No action.
    None,
    /// Probe now, while calls go on: only the probe decides whether the breaker opens.
    ProbeNow,
    /// Refuse calls from now on, and probe after this delay.
    Open(Duration),
    /// Let calls pass again, and notify waiting callers.
    Recovered,
}

/// Refuses calls to a target that does not answer or refuses the credentials, and probes it until it recovers.
#[derive(Clone, Debug)]
pub struct Breaker {
    limits: BreakerLimits,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Verifying,
    Open { probes: u32, until: Instant },
}

impl Breaker {
    /// Returns a closed breaker.
    pub fn new(limits: BreakerLimits) -> Self {
        Self { limits, state: State::Closed { failures: 0 } }
    }

    /// Checks that calls pass. The error is the time of the next probe.
    pub fn admit(&self) -> Result<(), Instant> {
        match self.state {
            State::Open { until, .. } => Err(until),
            State::Closed { .. } | State::Verifying => Ok(()),
        }
    }

    /// Records the outcome of a call that was admitted. `jitter` lies in 0..1.
    pub fn record(&mut self, outcome: Outcome, now: Instant, jitter: f64) -> Effect {
        let State::Closed { failures } = self.state else {
            return Effect::None;
        };
        let failures = failures + 1;
        match outcome {
            Outcome::Healthy => self.state = State::Closed { failures: 0 },
            _ if failures < self.limits.failures => self.state = State::Closed { failures },
            Outcome::Refused | Outcome::Unreachable => return self.open(0, now, jitter),
            Outcome::Failing => {
                self.state = State::Verifying;
                return Effect::ProbeNow;
            }
        }
        Effect::None
    }

    /// Records the outcome of a probe. `jitter` lies in 0..1.
    pub fn probed(&mut self, healthy: bool, now: Instant, jitter: f64) -> Effect {
        let before = self.state;
        if healthy {
            self.state = State::Closed { failures: 0 };
            return match before {
                State::Open { .. } => Effect::Recovered,
                State::Closed { .. } | State::Verifying => Effect::None,
            };
        }
        match before {
            State::Open { probes, .. } => self.open(probes.saturating_add(1), now, jitter),
            State::Closed { .. } | State::Verifying => self.open(0, now, jitter),
        }
    }

    fn open(&mut self, probes: u32, now: Instant, jitter: f64) -> Effect {
        let backoff =
            Backoff::new(self.limits.probe_first, self.limits.probe_longest).with_jitter(JITTER_SHARE);
        let delay = backoff.jittered_delay(probes.saturating_add(1), jitter);
        self.state = State::Open { probes, until: now + delay };
        Effect::Open(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(BreakerLimits::default())
    }

    fn tripped(now: Instant) -> Breaker {
        let mut breaker = breaker();
        for _ in 0..3 {
            breaker.record(Outcome::Unreachable, now, 1.0);
        }
        breaker
    }

    #[test]
    fn opens_after_three_failures_in_a_row() {
        let (mut breaker, now) = (breaker(), Instant::now());
        assert_eq!(breaker.record(Outcome::Unreachable, now, 1.0), Effect::None);
        assert_eq!(breaker.record(Outcome::Unreachable, now, 1.0), Effect::None);
        assert_eq!(breaker.admit(), Ok(()));
        assert_eq!(breaker.record(Outcome::Unreachable, now, 1.0), Effect::Open(Duration::from_secs(15)));
        assert_eq!(breaker.admit(), Err(now + Duration::from_secs(15)));
    }

    #[test]
    fn a_success_between_failures_starts_the_count_again() {
        let (mut breaker, now) = (breaker(), Instant::now());
        for outcome in [Outcome::Unreachable, Outcome::Failing, Outcome::Healthy].repeat(5) {
            assert_eq!(breaker.record(outcome, now, 1.0), Effect::None);
        }
        assert_eq!(breaker.admit(), Ok(()));
    }

    #[test]
    fn probe_delays_double_to_five_minutes_with_downward_jitter() {
        let now = Instant::now();
        let mut breaker = tripped(now);
        let delays: Vec<_> = (0..7).map(|_| breaker.probed(false, now, 1.0)).collect();
        let expected = [30, 60, 120, 240, 300, 300, 300].map(|s| Effect::Open(Duration::from_secs(s)));
        assert_eq!(delays, expected);
        assert_eq!(breaker.probed(false, now, 0.0), Effect::Open(Duration::from_secs(225)));
    }

    #[test]
    fn a_good_probe_closes_it_and_tells_who_waits_exactly_once() {
        let now = Instant::now();
        let mut breaker = tripped(now);
        assert_eq!(breaker.probed(true, now, 1.0), Effect::Recovered);
        assert_eq!(breaker.admit(), Ok(()));
        assert_eq!(breaker.probed(true, now, 1.0), Effect::None);
    }

    #[test]
    fn calls_still_in_flight_when_it_opens_change_nothing() {
        let now = Instant::now();
        let mut breaker = tripped(now);
        assert_eq!(breaker.record(Outcome::Unreachable, now, 1.0), Effect::None);
        assert_eq!(breaker.record(Outcome::Healthy, now, 1.0), Effect::None);
        assert!(breaker.admit().is_err());
    }

    #[test]
    fn answered_errors_open_it_only_if_the_probe_fails_too() {
        let (mut breaker, now) = (breaker(), Instant::now());
        let effects: Vec<_> = (0..4).map(|_| breaker.record(Outcome::Failing, now, 1.0)).collect();
        assert_eq!(effects, [Effect::None, Effect::None, Effect::ProbeNow, Effect::None]);
        assert_eq!(breaker.admit(), Ok(()), "calls go on while the probe runs");

        let mut one_webhook_is_down = breaker.clone();
        assert_eq!(one_webhook_is_down.probed(true, now, 1.0), Effect::None, "nobody waited");
        assert_eq!(one_webhook_is_down.admit(), Ok(()));

        assert_eq!(breaker.probed(false, now, 1.0), Effect::Open(Duration::from_secs(15)));
        assert!(breaker.admit().is_err());
    }

    #[test]
    fn credentials_that_are_refused_three_times_are_not_shown_again() {
        let (mut breaker, now) = (breaker(), Instant::now());
        for effect in [Effect::None, Effect::None, Effect::Open(Duration::from_secs(15))] {
            assert_eq!(breaker.record(Outcome::Refused, now, 1.0), effect);
        }
        assert!(breaker.admit().is_err());
    }

    #[test]
    fn closing_resets_the_delay_of_the_next_outage() {
        let now = Instant::now();
        let mut breaker = tripped(now);
        breaker.probed(false, now, 1.0);
        breaker.probed(true, now, 1.0);
        for _ in 0..2 {
            breaker.record(Outcome::Unreachable, now, 1.0);
        }
        assert_eq!(breaker.record(Outcome::Unreachable, now, 1.0), Effect::Open(Duration::from_secs(15)));
    }
}
