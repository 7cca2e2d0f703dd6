use kyma_object_set::KeepReason;
use serde_json::json;

use super::*;

fn text(result: &DryRunResult) -> String {
    changes(result).unwrap().iter().map(Change::to_string).collect()
}

fn one(kind: &str, object: ObjectDiff) -> DryRunResult {
    let identity = Identity::new("", kind, Some("n"), "a");
    DryRunResult { objects: vec![(identity, object)], ..DryRunResult::default() }
}

#[test]
fn a_change_is_a_diff_without_what_the_server_keeps() {
    let object = |value: &str, version: &str| {
        json!({"kind": "ConfigMap", "metadata": {"name": "a", "uid": "u", "resourceVersion": version,
            "managedFields": [{"manager": version}]}, "data": {"v": value}, "status": version})
    };
    let diff = |after: &str| ObjectDiff {
        before: Some(object("one", "1")),
        after: object(after, "2"),
        ..ObjectDiff::default()
    };
    assert_eq!(text(&one("ConfigMap", diff("one"))), "");
    let expected = "\
change ConfigMap n/a
--- live/ConfigMap n/a
+++ applied/ConfigMap n/a
@@ -1,5 +1,5 @@
 data:
-  v: one
+  v: two
 kind: ConfigMap
 metadata:
   name: a
";
    assert_eq!(text(&one("ConfigMap", diff("two"))), expected);
}

#[test]
fn only_keys_of_a_secret_are_shown() {
    let secret = |data: Value| {
        json!({"kind": "Secret", "data": data, "stringData": {"s": "hush"}, "metadata": {
            "name": "a", "annotations": {LAST_APPLIED: "hush"}}})
    };
    let diff = ObjectDiff {
        before: Some(secret(json!({"same": "hush1", "other": "hush2", "old": "hush3"}))),
        after: secret(json!({"same": "hush1", "other": "hush4", "new": "hush5"})),
        ..ObjectDiff::default()
    };
    let told = text(&one("Secret", diff));
    assert!(!told.contains("hush"), "{told}");
    let lines: Vec<String> = told.lines().map(|line| line.replace(['\'', '"'], "")).collect();
    for line in ["   same: (hidden)", "+  new: (hidden)", "-  old: (hidden)", "+  other: (hidden, changed)"] {
        assert!(lines.iter().any(|told| told == line), "{line}: {told}");
    }
    let created = ObjectDiff { before: None, after: secret(json!({"k": "hush"})), ..ObjectDiff::default() };
    let told = text(&one("Secret", created));
    assert!(told.starts_with("create Secret n/a\n") && !told.contains("hush"), "{told}");
}

#[test]
fn changes_are_listed_in_their_order() {
    let identity = |name: &str| Identity::new("", "ConfigMap", Some("n"), name);
    let run =
        |event: &str| EventHooks { event: event.to_owned(), hooks: vec![format!("Job.batch n/{event}")] };
    let without_dry_run = |why: NoDryRunReason| ObjectDiff {
        after: json!({"a": 1}),
        no_dry_run: Some(why),
        ..ObjectDiff::default()
    };
    let result = DryRunResult {
        namespace: Some("n".to_owned()),
        hooks: vec![run("post-upgrade"), run("pre-upgrade")],
        objects: vec![
            (identity("w"), without_dry_run(NoDryRunReason::Webhook("w.example.org".to_owned()))),
            (identity("k"), without_dry_run(NoDryRunReason::Kind)),
        ],
        deleted: vec![identity("gone")],
        given_up: vec![(identity("kept"), KeepReason::ResourcePolicy)],
        ..DryRunResult::default()
    };
    let told = text(&result);
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with(char::is_lowercase)).collect();
    let expected = [
        "create Namespace n",
        "run hook Job.batch n/pre-upgrade: pre-upgrade",
        "undiffable ConfigMap n/w: webhook w.example.org does not support dry runs",
        "create ConfigMap n/k: no dry run, because its kind does not exist yet",
        "delete ConfigMap n/gone",
        "leave ConfigMap n/kept: it is annotated to be kept",
        "run hook Job.batch n/post-upgrade: post-upgrade",
    ];
    assert_eq!(lines, expected);
}
