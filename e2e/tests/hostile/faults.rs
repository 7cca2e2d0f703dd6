//! Faults of a hostile target.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use testbed::{Answer, RequestMatcher};

/// Prefix of every text of the hostile target, which must not appear in any output.
pub(crate) const PLANTED: &str = "planted-by-the-target";
const MIB: usize = 1024 * 1024;
/// Number of bytes slightly below the limit of one response.
const LARGE_ANSWER_BYTES: usize = 15 * MIB;

/// A fault of the hostile target.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) rules: Vec<(RequestMatcher, Answer)>,
    /// Reasons of the Kyma; several if they depend on the first affected call. Empty if the fault has no visible
    /// effect.
    pub(crate) reasons: &'static [&'static str],
    /// Number of pieces that must be sent before the fault counts, and the number sent.
    pub(crate) sent: Option<(u64, Arc<AtomicU64>)>,
}

impl Fault {
    fn new(
        name: &'static str,
        matcher: RequestMatcher,
        answer: Answer,
        reasons: &'static [&'static str],
    ) -> Self {
        Self { name, rules: vec![(matcher, answer)], reasons, sent: None }
    }
}

/// Returns all faults, with `TEST_FULL=1` also those that differ little from others.
pub(crate) fn all() -> Vec<Fault> {
    let invalid: &[&str] = &["TargetAnswerInvalid"];
    let any = RequestMatcher::any;
    let mut all = vec![
        Fault::new("1 GiB, announced", any(), gibibyte(true), invalid),
        Fault::new("1 GiB, in pieces", any(), gibibyte(false), invalid),
        Fault::new("HTML that says 200", any(), Answer::html(200, PLANTED), invalid),
        Fault::new("HTML that says 502", any(), Answer::html(502, PLANTED), &["TargetServerError"]),
        Fault::new("a refusal with words", any(), refusal(), &["TargetForbidden"]),
        lists_without_end(),
        flood("events without end", 0, 20_000),
        Fault::new("a slow drip", any(), drip(), &["TargetTimeout"]),
    ];
    if std::env::var_os("TEST_FULL").is_some_and(|value| value == "1") {
        all.extend(more());
    }
    all
}

fn more() -> Vec<Fault> {
    let lists = || RequestMatcher::any().query("limit=");
    let page: &[&str] = &["TargetTimeout", "TargetAnswerInvalid"];
    // The last one, if a new connection is verified first.
    let refused: &[&str] = &["ApplyRefused", "TargetAnswerInvalid", "TargetUnreachable"];
    vec![
        Fault::new("deep answers", RequestMatcher::any(), deep(), &["TargetAnswerInvalid"]),
        Fault::new("HTML that says 404", RequestMatcher::any(), Answer::html(404, PLANTED), refused),
        Fault::new("lists of empty objects", lists(), dense(), page),
        Fault::new("pages without end", lists(), pages(500, 100), page),
        Fault::new("fat pages without end", lists(), pages(1, LARGE_ANSWER_BYTES), page),
        Fault::new("empty pages without end", lists(), pages(0, 0), page),
        flood("fat events without end", MIB, 50),
    ]
}

/// Answers the lists of each operator with different pages that never end.
fn lists_without_end() -> Fault {
    let lists = |path: &str| RequestMatcher::path(path).query("limit=");
    let operator = "/apis/operator.kyma-project.io/v1beta2/namespaces/kyma-system";
    let rules = vec![
        (lists(&format!("{operator}/kymas")), pages(1, LARGE_ANSWER_BYTES)),
        (lists(&format!("{operator}/moduletemplates")), dense()),
        (lists(&format!("{operator}/modulereleasemetas")), pages(0, 0)),
        (lists("/api/v1/configmaps"), pages(1, LARGE_ANSWER_BYTES)),
        (RequestMatcher::any().query("limit="), pages(500, 100)),
    ];
    Fault { name: "lists without end", rules, reasons: &["TargetTimeout", "TargetAnswerInvalid"], sent: None }
}

fn gibibyte(announced: bool) -> Answer {
    let piece: bytes::Bytes = vec![b' '; MIB].into();
    let answer = Answer::made(move |number| (number < 1024).then(|| piece.clone()));
    if announced { answer.header("content-length", &(1024 * MIB).to_string()) } else { answer }
}

/// Returns a response whose few bytes need much memory after decoding.
fn dense() -> Answer {
    let items = "{},".repeat(LARGE_ANSWER_BYTES / 3);
    Answer::raw(format!(
        r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":[{items}{{}}]}}"#
    ))
}

fn deep() -> Answer {
    Answer::raw(format!("{}{}", r#"{"a":"#.repeat(MIB), "}".repeat(MIB)))
}

fn refusal() -> Answer {
    Answer::failure(403, "Forbidden", &format!("{PLANTED} is not allowed"))
}

fn drip() -> Answer {
    Answer::slow_drip(&json!({"text": PLANTED.repeat(1000)}), Duration::from_millis(100))
}

/// Returns pages with `objects` objects of `bytes` bytes each, which always announce another page.
fn pages(objects: usize, bytes: usize) -> Answer {
    let object = |number| object(number, bytes);
    let items: Vec<Value> = (0..objects).map(object).collect();
    Answer::json(&json!({
        "kind": "List", "apiVersion": "v1",
        "metadata": {"resourceVersion": "1", "continue": PLANTED}, "items": items,
    }))
}

/// Sends endless watch events, each of another object.
fn flood(name: &'static str, bytes: usize, enough: u64) -> Fault {
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let answer = Answer::made(move |number| {
        count.fetch_add(1, Ordering::Relaxed);
        let event = json!({"type": "ADDED", "object": object(usize::try_from(number).ok()?, bytes)});
        Some(format!("{event}\n").into())
    });
    let rules = vec![(RequestMatcher::any().query("watch=true"), answer)];
    Fault { name, rules, reasons: &[], sent: Some((enough, sent)) }
}

fn object(number: usize, bytes: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": format!("object-{number}"), "namespace": "kyma-system", "uid": number.to_string(),
            "resourceVersion": (number + 1).to_string(),
            "labels": {kyma_api::labels::OWNER: format!("owner-{number}")},
            "annotations": {"example.com/text": "x".repeat(bytes)},
        },
    })
}
