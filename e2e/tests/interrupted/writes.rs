//! Identifies writes: the same write, repeated by a restarted operator, is not a new one.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use e2e::landscape::HUB_NAMESPACE;
use kyma_api::names::{component_name, owner_hash};
use regex::Regex;
use serde_json::Value;
use testbed::ReceivedRequest;

/// Modules of each Kyma.
pub(crate) const MODULES: [&str; 3] = ["greeting", "harbour", "lantern"];

/// A write that an operator requested.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Write {
    /// Operator, method and path. The Kyma's name is replaced, so that writes of different Kymas can be compared.
    pub(crate) line: String,
    /// Hash of line and body.
    pub(crate) digest: u64,
}

impl Write {
    /// Returns the write of a request, or `None` for reads, dry runs, and access reviews, which are sent by POST.
    pub(crate) fn of(operator: &str, kyma: &str, seen: &ReceivedRequest, body: &[u8]) -> Option<Self> {
        let is_write = matches!(seen.method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE");
        let is_read_only = seen.path.contains("/authorization.k8s.io/") || seen.query.contains("dryRun=");
        if !is_write || is_read_only {
            return None;
        }
        let line = without_name(&format!("{operator} {} {}", seen.method, seen.path), kyma);
        let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
        // Names of Events contain the time.
        if body["kind"] == "Event" {
            body["metadata"]["name"] = Value::Null;
        }
        let mut hasher = DefaultHasher::new();
        (&line, masked(&body.to_string())).hash(&mut hasher);
        Some(Self { line, digest: hasher.finish() })
    }
}

/// Returns the text with the Kyma's name, and names made of it, replaced.
pub(crate) fn without_name(text: &str, kyma: &str) -> String {
    let mut text = text.to_owned();
    for module in MODULES {
        let component = component_name(kyma, module);
        text = text.replace(&component, &format!("component-{module}"));
        text = text.replace(&owner_hash(HUB_NAMESPACE, &component), &format!("owner-{module}"));
    }
    text.replace(&owner_hash(HUB_NAMESPACE, kyma), "owner-KYMA").replace(kyma, "KYMA")
}

/// Returns the text with uids, times, digests, fencing generations and resourceVersions replaced by placeholders.
pub(crate) fn masked(text: &str) -> String {
    #[expect(clippy::unwrap_used, reason = "patterns that are written here")]
    static PATTERNS: LazyLock<[(Regex, &str); 5]> = LazyLock::new(|| {
        [
            (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "MOMENT"),
            (r"\b[0-9a-f]{16,}\b", "DIGEST"),
            // The number of a fencing generation depends on how many passes were needed.
            (r#""\d+-[0-9a-f]{8}""#, "\"GENERATION\""),
            // So does the resourceVersion from which a fencing generation is taken over.
            (r#""resourceVersion":"\d+""#, "VERSION"),
        ]
        .map(|(pattern, name)| (Regex::new(pattern).unwrap(), name))
    });
    let replace =
        |text: String, (pattern, name): &(Regex, &str)| pattern.replace_all(&text, *name).into_owned();
    PATTERNS.iter().fold(text.to_owned(), replace)
}

/// Selects the writes of a stage at which a fault occurs.
#[derive(Clone, Debug)]
pub(crate) enum WriteSelection {
    /// All writes.
    All,
    /// Writes with these numbers, counted from 0.
    Numbers(BTreeSet<usize>),
}

impl WriteSelection {
    /// Selects `count` of `total` writes, spread evenly, the first and the last included.
    pub(crate) fn sample(count: usize, total: usize) -> Self {
        let last = total.saturating_sub(1);
        let steps = count.saturating_sub(1).max(1);
        Self::Numbers((0..count).map(|step| step * last / steps).collect())
    }

    pub(crate) fn contains(&self, number: usize) -> bool {
        match self {
            Self::All => true,
            Self::Numbers(numbers) => numbers.contains(&number),
        }
    }
}

#[test]
fn a_sample_is_spread_over_all_writes() {
    let WriteSelection::Numbers(numbers) = WriteSelection::sample(4, 31) else { unreachable!() };
    assert_eq!(numbers, BTreeSet::from([0, 10, 20, 30]));
    let WriteSelection::Numbers(numbers) = WriteSelection::sample(10, 3) else { unreachable!() };
    assert_eq!(numbers, BTreeSet::from([0, 1, 2]));
}
