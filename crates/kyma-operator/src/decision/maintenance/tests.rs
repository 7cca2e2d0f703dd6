use serde_json::{Value, json};

use super::*;

const MIN_WINDOW_SIZE: SignedDuration = SignedDuration::from_mins(20);

fn policy(file: &Value) -> Policy {
    Policy::parse(file.to_string().as_bytes()).unwrap()
}

fn default_of(window: &Value) -> Policy {
    policy(&json!({ "default": window }))
}

fn at(policy: &Policy, runtime: Runtime<'_>, now: &str) -> Option<String> {
    let window = policy.window(runtime, now.parse().unwrap(), MIN_WINDOW_SIZE)?;
    Some(format!("{} {}", window.begin, window.end))
}

fn next(policy: &Policy, now: &str) -> Option<String> {
    at(policy, Runtime::default(), now)
}

#[test]
fn a_weekly_window_is_open_until_too_little_of_it_is_left() {
    // 2026-05-30 is a Saturday.
    let policy = default_of(&json!({"days": ["Sat"], "begin": "20:00:00Z", "end": "00:00:00Z"}));
    let this = Some("2026-05-30T20:00:00Z 2026-05-31T00:00:00Z".to_owned());
    let following = Some("2026-06-06T20:00:00Z 2026-06-07T00:00:00Z".to_owned());
    assert_eq!(next(&policy, "2026-05-25T12:00:00Z"), this);
    assert_eq!(next(&policy, "2026-05-30T23:39:59Z"), this);
    assert_eq!(next(&policy, "2026-05-30T23:40:00Z"), following, "20 minutes are too little");
    assert_eq!(next(&policy, "2026-05-31T00:00:00Z"), following);
}

#[test]
fn a_window_goes_on_after_midnight() {
    let policy = default_of(&json!({"days": ["Sat"], "begin": "22:00:00Z", "end": "04:00:00Z"}));
    let this = Some("2026-05-30T22:00:00Z 2026-05-31T04:00:00Z".to_owned());
    assert_eq!(next(&policy, "2026-05-31T02:00:00Z"), this);
    let whole_day = default_of(&json!({"days": ["Sun"], "begin": "01:00:00Z", "end": "01:00:00Z"}));
    assert_eq!(
        next(&whole_day, "2026-06-01T00:00:00Z"),
        Some("2026-05-31T01:00:00Z 2026-06-01T01:00:00Z".to_owned())
    );
}

#[test]
fn days_are_counted_where_the_window_is_told() {
    // Sunday 01:00 at +02:00 is Saturday 23:00 in UTC.
    let policy = default_of(&json!({"days": ["Sun"], "begin": "01:00:00+02:00", "end": "03:00:00+02:00"}));
    let window = Some("2026-05-30T23:00:00Z 2026-05-31T01:00:00Z".to_owned());
    assert_eq!(next(&policy, "2026-05-30T12:00:00Z"), window);
    assert_eq!(next(&policy, "2026-05-31T00:30:00Z"), window);
    let west = default_of(&json!({"days": ["Sat"], "begin": "20:00:00-07:00", "end": "23:00:00-07:00"}));
    assert_eq!(
        next(&west, "2026-05-31T04:00:00Z"),
        Some("2026-05-31T03:00:00Z 2026-05-31T06:00:00Z".to_owned())
    );
}

#[test]
fn the_first_rule_of_which_any_field_matches_counts() {
    let policy = policy(&json!({
        "rules": [
            {
                "match": {"plan": "trial|free", "region": ""},
                "windows": [{"days": ["Mon"], "begin": "01:00:00Z", "end": "02:00:00Z"}],
            },
            {
                "match": {"globalAccountId": "^ga-1$", "platformRegion": "cf-eu"},
                "windows": [
                    {"days": ["Wed"], "begin": "01:00:00Z", "end": "02:00:00Z"},
                    {"days": ["Tue"], "begin": "01:00:00Z", "end": "02:00:00Z"},
                ],
            },
            {
                "match": {"region": "europe"},
                "windows": [{"begin": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}],
            },
        ],
        "default": {"days": ["Sun"], "begin": "01:00:00Z", "end": "02:00:00Z"},
    }));
    let day = |runtime| at(&policy, runtime, "2026-06-01T00:00:00Z").unwrap()[..10].to_owned();
    let nobody = Runtime::default();
    assert_eq!(day(Runtime { plan: "azure-trial", global_account: "ga-1", ..nobody }), "2026-06-01");
    assert_eq!(
        day(Runtime { global_account: "ga-1", ..nobody }),
        "2026-06-02",
        "the earliest of its windows"
    );
    assert_eq!(day(Runtime { platform_region: "cf-eu10", ..nobody }), "2026-06-02");
    assert_eq!(day(Runtime { region: "europe", ..nobody }), "2026-06-07", "its windows are over");
    assert_eq!(day(nobody), "2026-06-07");
}

#[test]
fn where_no_window_is_left_there_is_none() {
    let once = json!({"begin": "2026-05-01T00:00:00Z", "end": "2026-05-02T00:00:00Z"});
    assert_eq!(next(&default_of(&once), "2026-06-01T00:00:00Z"), None);
    assert!(next(&default_of(&once), "2026-05-01T12:00:00Z").is_some());
    assert_eq!(next(&policy(&json!({"rules": [], "default": {}})), "2026-06-01T00:00:00Z"), None);
    let short = json!({"days": ["Mon"], "begin": "01:00:00Z", "end": "01:20:00Z"});
    assert_eq!(next(&default_of(&short), "2026-06-01T00:00:00Z"), None, "it never suffices");
}

#[test]
fn an_unreadable_policy_is_refused_with_its_position() {
    let rule = |matches: Value, window: Value| json!({"rules": [{"match": matches, "windows": [window]}]});
    let monday = json!({"days": ["Mon"], "begin": "01:00:00Z", "end": "02:00:00Z"});
    let rows = [
        (json!(1), "it is not a maintenance policy"),
        (rule(json!({"region": "("}), monday), "rules[0].match.region is not a regular expression"),
        (
            rule(json!({}), json!({"days": ["Monday"], "begin": "", "end": ""})),
            "rules[0].windows[0]: \"Monday\"",
        ),
        (
            rule(json!({}), json!({"days": ["Mon"], "begin": "1 am", "end": ""})),
            "rules[0].windows[0]: \"1 am\"",
        ),
        (
            rule(json!({}), json!({"begin": "01:00:00Z", "end": "02:00:00Z"})),
            "rules[0].windows[0]: \"01:00:00Z\"",
        ),
        (
            json!({"default": {"begin": "2026-05-02T00:00:00Z", "end": "2026-05-01T00:00:00Z"}}),
            "default: it ends before it begins",
        ),
    ];
    for (file, expected) in rows {
        let error = Policy::parse(file.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
