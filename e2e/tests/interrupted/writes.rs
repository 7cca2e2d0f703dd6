//! Writes, told apart: the same one again, from the next life of an operator, is no new one.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use e2e::landscape::HUB_NAMESPACE;
use kyma_api::names::{component_name, owner_hash};
use regex::Regex;
use serde_json::Value;
use testbed::Seen;

/// Modules of a Kyma here.
pub(crate) const MODULES: [&str; 3] = ["greeting", "harbour", "lantern"];

/// A write that an operator asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Write {
    /// Who, what, where; the Kyma's own name is replaced, so that it can be compared with that of another.
    pub(crate) line: String,
    /// Of line and body.
    pub(crate) digest: u64,
}

impl Write {
    /// The write that a request is; none for reads, dry runs, and questions that are asked by POST.
    pub(crate) fn of(operator: &str, kyma: &str, seen: &Seen, body: &[u8]) -> Option<Self> {
        let is_write = matches!(seen.method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE");
        let is_question = seen.path.contains("/authorization.k8s.io/") || seen.query.contains("dryRun=");
        if !is_write || is_question {
            return None;
        }
        let line = without_name(&format!("{operator} {} {}", seen.method, seen.path), kyma);
        let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
        // Events are named by the moment.
        if body["kind"] == "Event" {
            body["metadata"]["name"] = Value::Null;
        }
        let mut hasher = DefaultHasher::new();
        (&line, masked(&body.to_string())).hash(&mut hasher);
        Some(Self { line, digest: hasher.finish() })
    }
}

/// The text with a Kyma's own name, and what is made of it, replaced.
pub(crate) fn without_name(text: &str, kyma: &str) -> String {
    let mut text = text.to_owned();
    for module in MODULES {
        let component = component_name(kyma, module);
        text = text.replace(&component, &format!("component-{module}"));
        text = text.replace(&owner_hash(HUB_NAMESPACE, &component), &format!("owner-{module}"));
    }
    text.replace(&owner_hash(HUB_NAMESPACE, kyma), "owner-KYMA").replace(kyma, "KYMA")
}

/// The text with uids, moments, digests, turns and resourceVersions replaced by what they are.
pub(crate) fn masked(text: &str) -> String {
    #[expect(clippy::unwrap_used, reason = "patterns that are written here")]
    static PATTERNS: LazyLock<[(Regex, &str); 5]> = LazyLock::new(|| {
        [
            (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "MOMENT"),
            (r"\b[0-9a-f]{16,}\b", "DIGEST"),
            // How often one is taken depends on how many passes it took.
            (r#""\d+-[0-9a-f]{8}""#, "\"TURN\""),
            // And so does the state that it is taken over.
            (r#""resourceVersion":"\d+""#, "VERSION"),
        ]
        .map(|(pattern, name)| (Regex::new(pattern).unwrap(), name))
    });
    let replace =
        |text: String, (pattern, name): &(Regex, &str)| pattern.replace_all(&text, *name).into_owned();
    PATTERNS.iter().fold(text.to_owned(), replace)
}

/// Which of the writes of a stage are the occasion for a fault.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// Each.
    Every,
    /// Those with these numbers, from 0.
    These(BTreeSet<usize>),
}

impl Which {
    /// So many of `all`, spread evenly, first and last among them.
    pub(crate) fn sample(many: usize, all: usize) -> Self {
        let last = all.saturating_sub(1);
        let steps = many.saturating_sub(1).max(1);
        Self::These((0..many).map(|step| step * last / steps).collect())
    }

    pub(crate) fn has(&self, number: usize) -> bool {
        match self {
            Self::Every => true,
            Self::These(numbers) => numbers.contains(&number),
        }
    }
}

#[test]
fn a_sample_is_spread_over_all() {
    let Which::These(numbers) = Which::sample(4, 31) else { unreachable!() };
    assert_eq!(numbers, BTreeSet::from([0, 10, 20, 30]));
    let Which::These(numbers) = Which::sample(10, 3) else { unreachable!() };
    assert_eq!(numbers, BTreeSet::from([0, 1, 2]));
}
