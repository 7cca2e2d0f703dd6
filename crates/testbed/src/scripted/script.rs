//! Rules of a scripted server, and the requests that it received.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;

use super::answer::Answer;
use super::forward::Upstream;
use super::interceptor::Interceptor;
use super::request::{ReceivedRequest, RequestMatcher};

/// Scripted behaviour of the server, and its received requests.
pub(super) struct Script {
    pub(super) rules: Mutex<Vec<Rule>>,
    pub(super) requests: Mutex<Vec<ReceivedRequest>>,
    pub(super) connections: AtomicUsize,
    pub(super) unresponsive: AtomicBool,
    pub(super) upstream: Option<Arc<Upstream>>,
    pub(super) interceptor: Option<Arc<dyn Interceptor>>,
}

/// Answer to the requests that a matcher selects.
pub(super) struct Rule {
    pub(super) matcher: RequestMatcher,
    pub(super) answer: Answer,
    /// Number of requests that the rule still answers; `None` for no limit.
    pub(super) left: Option<usize>,
}

impl Script {
    pub(super) fn add(&self, rule: Rule) {
        self.rules.lock().push(rule);
    }

    /// Records the request, and returns the answer of its rule, whose count is reduced.
    pub(super) fn answer_to(&self, request: &ReceivedRequest) -> Option<Answer> {
        self.requests.lock().push(request.clone());
        let mut rules = self.rules.lock();
        let rule = rules.iter_mut().find(|rule| rule.left != Some(0) && rule.matcher.fits(request))?;
        rule.left = rule.left.map(|left| left - 1);
        Some(rule.answer.clone())
    }
}
