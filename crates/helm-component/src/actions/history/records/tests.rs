//! Helm's records: records that count, listing, and deletion.

use axum::http::Uri;
use axum::{Json, Router};
use kube::Client;
use serde_json::{Value, json};

use super::*;

const RELEASE: &str = "shop";

/// Returns metadata of the Secret of a deployed revision; `content` is the digest that the operator adds.
fn secret(version: &str, content: Option<&str>) -> Value {
    let mut secret = json!({"metadata": {
        "name": format!("sh.helm.release.v1.{RELEASE}.v{version}"),
        "labels": {"owner": "helm", "name": RELEASE, "status": "deployed", "version": version},
    }});
    if let Some(content) = content {
        secret["metadata"]["annotations"] = json!({annotations::RELEASE_CONTENT: content});
    }
    secret
}

fn partial(secret: &Value) -> PartialObjectMeta<Secret> {
    serde_json::from_value(secret.clone()).unwrap()
}

fn record_of(version: &str, content: Option<&str>) -> Option<Record> {
    record(partial(&secret(version, content)))
}

/// Returns a target that lists the records of the revisions 1 to `count` in pages, as an API server does.
fn target_with_records(count: usize) -> Api<Secret> {
    let list = move |uri: Uri| async move {
        let parameter = |name: &str| {
            let pairs = uri.query().unwrap_or_default().split('&');
            let mut values = pairs.filter_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            values.find_map(|value| value.parse::<usize>().ok())
        };
        let start = parameter("continue").unwrap_or(0);
        let end = count.min(start + parameter("limit").unwrap_or(count));
        let items: Vec<Value> = (start..end).map(|index| secret(&(index + 1).to_string(), None)).collect();
        let token = if end < count { end.to_string() } else { String::new() };
        Json(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
            "metadata": {"continue": token}, "items": items,
        }))
    };
    let server: Router = Router::new().fallback(list);
    Api::namespaced(Client::new(server, "default"), RELEASE)
}

#[test]
fn a_label_that_is_no_revision_of_helm_makes_no_record() {
    for version in ["1", "10", "2147483646"] {
        assert!(record_of(version, None).is_some(), "{version}");
    }
    let (max, beyond) = (i64::MAX.to_string(), "9223372036854775808");
    for version in [&*max, beyond, "2147483647", "0", "-1", "1.0", "v1", ""] {
        assert!(record_of(version, None).is_none(), "{version}");
        assert!(record_of(version, Some("digest")).is_none(), "{version}");
    }
}

#[test]
fn a_secret_named_unlike_its_label_is_no_record() {
    let mut other = secret("1", None);
    other["metadata"]["name"] = json!("sh.helm.release.v1.shop.v2");
    assert!(record(partial(&other)).is_none());
    other["metadata"]["labels"] = Value::Null;
    assert!(record(partial(&other)).is_none());
}

#[test]
fn a_revision_label_of_i64_max_breaks_no_history() {
    let max = i64::MAX.to_string();
    let versions = ["1", "2", &*max];
    let records: Vec<Record> = versions.iter().filter_map(|version| record_of(version, None)).collect();
    assert_eq!(next_revision(&records), Some(3));
    let listed = versions.iter().map(|version| partial(&secret(version, None))).collect();
    assert_eq!(deployed_in(listed), Releases::from([(RELEASE.to_owned(), 2)]));
    assert_eq!(next_revision(&[]), Some(1));
}

#[test]
fn highest_revision_has_no_successor_and_a_reason() {
    let records = |newest: &str| vec![record_of("1", None).unwrap(), record_of(newest, None).unwrap()];
    assert_eq!(next_revision(&records("2147483645")), Some(MAX_REVISION));
    assert_eq!(next_revision(&records("2147483646")), None);
    let record = without_successor("digest".to_owned());
    assert_eq!((record.digest.as_str(), record.revision), ("digest", None));
    assert!(!record.has_failed(), "it is not written again for the same release");
    assert!(record.message.unwrap().contains("has revision 2147483646"));
}

#[tokio::test]
async fn all_of_1001_records_are_listed() {
    let secrets = target_with_records(1_001);
    let records = records(&secrets, RELEASE).await.unwrap();
    let mut numbers: Vec<i64> = records.iter().filter_map(Record::number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=1_001).collect::<Vec<i64>>());
    assert_eq!(next_revision(&records), Some(1_002));
    assert_eq!(deployed(&secrets, RELEASE).await.unwrap(), Some(1_001));
}

#[test]
fn of_1001_records_only_old_ones_of_the_operator_are_deleted() {
    let content = |number: usize| number.is_multiple_of(2).then_some("digest");
    let record = |number: usize| record_of(&number.to_string(), content(number)).unwrap();
    let others: Vec<Record> = (1..=1_001).map(record).collect();
    let deleted: Vec<i64> =
        surplus(&others, DEFAULT_MAX_REVISIONS).into_iter().filter_map(Record::number).collect();
    assert_eq!(deleted, (2..=992).step_by(2).collect::<Vec<i64>>());
    assert!(surplus(&others, others.len() + 1).is_empty());
    assert!(surplus(&others, usize::MAX).is_empty());
    assert!(surplus(&[], 1).is_empty());
}

#[test]
fn records_of_helm_are_never_deleted() {
    let others: Vec<Record> =
        (1..=1_001).map(|number: usize| record_of(&number.to_string(), None).unwrap()).collect();
    assert!(surplus(&others, 1).is_empty());
}
