//! Maintenance windows for upgrades with downtime, from a policy file in KLM's format. Pure.
//!
//! The first rule with a matching field applies; if it has no further window, or no rule matches, the default
//! applies. Unlike KLM, the earliest window of a rule is used, a window continues after midnight, and a policy with
//! any unreadable part is refused as a whole.

use jiff::{SignedDuration, Timestamp};
use regex::Regex;
use serde::Deserialize;

mod span;

use span::{Span, SpanError, SpanJson};

/// A period in which downtime is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) begin: Timestamp,
    pub(crate) end: Timestamp,
}

impl Window {
    /// Reports whether the window has begun.
    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        self.begin <= now
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "from {} to {}", self.begin, self.end)
    }
}

/// Source of the setting to skip windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SkipSource {
    OnHub,
    OnTarget,
}

/// Labels of the hub's Kyma that rules match.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Runtime<'a> {
    pub(crate) global_account: &'a str,
    pub(crate) plan: &'a str,
    pub(crate) region: &'a str,
    pub(crate) platform_region: &'a str,
}

/// A parsed policy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    rules: Vec<Rule>,
    default: Option<Span>,
}

#[derive(Debug, Clone)]
struct Rule {
    global_account: Option<Regex>,
    plan: Option<Regex>,
    region: Option<Regex>,
    platform_region: Option<Regex>,
    spans: Vec<Span>,
}

/// Reason why a policy file is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error("it is not a maintenance policy: {0}")]
    Parse(serde_json::Error),
    #[error("rules[{rule}].match.{field} is not a regular expression")]
    Pattern { rule: usize, field: &'static str },
    #[error("rules[{rule}].windows[{window}]: {source}")]
    Window { rule: usize, window: usize, source: SpanError },
    #[error("default: {0}")]
    Default(SpanError),
}

#[derive(Deserialize)]
struct PolicyJson {
    #[serde(default)]
    rules: Vec<RuleJson>,
    #[serde(default)]
    default: Option<SpanJson>,
}

#[derive(Deserialize)]
struct RuleJson {
    #[serde(default, rename = "match")]
    matches: MatchJson,
    #[serde(default)]
    windows: Vec<SpanJson>,
}

/// KLM's parser ignores the case of keys; existing files use both forms.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MatchJson {
    #[serde(rename = "globalAccountID", alias = "globalAccountId")]
    global_account: Option<String>,
    plan: Option<String>,
    region: Option<String>,
    platform_region: Option<String>,
}

impl Policy {
    /// Parses a policy file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, PolicyError> {
        let file: PolicyJson = serde_json::from_slice(bytes).map_err(PolicyError::Parse)?;
        let rules = file.rules.into_iter().enumerate().map(|(index, rule)| Rule::read(index, rule));
        let default = file.default.filter(|default| !default.is_empty());
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
            default: default.map(Span::try_from).transpose().map_err(PolicyError::Default)?,
        })
    }

    /// Returns the open window if more than `least` is left of it, or else the next window.
    pub(crate) fn window(
        &self,
        runtime: Runtime<'_>,
        now: Timestamp,
        least: SignedDuration,
    ) -> Option<Window> {
        let rule = self.rules.iter().find(|rule| rule.matches(runtime));
        let spans = rule.into_iter().flat_map(|rule| &rule.spans);
        let earliest = spans.filter_map(|span| span.window(now, least)).min_by_key(|window| window.begin);
        earliest.or_else(|| self.default.as_ref()?.window(now, least))
    }
}

impl Rule {
    fn read(index: usize, file: RuleJson) -> Result<Self, PolicyError> {
        let pattern = |field, text: Option<String>| match text.filter(|text| !text.is_empty()) {
            Some(text) => {
                Regex::new(&text).map(Some).map_err(|_| PolicyError::Pattern { rule: index, field })
            }
            None => Ok(None),
        };
        let span = |(window, file)| {
            Span::try_from(file).map_err(|source| PolicyError::Window { rule: index, window, source })
        };
        Ok(Self {
            global_account: pattern("globalAccountID", file.matches.global_account)?,
            plan: pattern("plan", file.matches.plan)?,
            region: pattern("region", file.matches.region)?,
            platform_region: pattern("platformRegion", file.matches.platform_region)?,
            spans: file.windows.into_iter().enumerate().map(span).collect::<Result<_, _>>()?,
        })
    }

    fn matches(&self, runtime: Runtime<'_>) -> bool {
        let fields = [
            (&self.global_account, runtime.global_account),
            (&self.plan, runtime.plan),
            (&self.region, runtime.region),
            (&self.platform_region, runtime.platform_region),
        ];
        let matches = |(pattern, value): (&Option<Regex>, &str)| {
            !value.is_empty() && pattern.as_ref().is_some_and(|pattern| pattern.is_match(value))
        };
        fields.into_iter().any(matches)
    }
}

/// The policy or its error, and the minimum time that must be left of a window.
#[derive(Debug)]
pub(crate) struct Maintenance {
    pub(crate) policy: Result<Policy, String>,
    pub(crate) least: SignedDuration,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self {
            policy: Err("the maintenance policy was not read yet".to_owned()),
            least: SignedDuration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
