use serde_json::json;

use super::*;

#[test]
fn only_what_a_user_has_a_say_in_is_read() {
    let spec = json!({
        "channel": "fast", "kubeconfigSecretRef": { "name": "evil", "key": "config" }, "skipMaintenanceWindows": true,
        "modules": [{ "name": "keda", "controller": "x", "remoteModuleTemplateRef": "y", "values": { "a": 1 } }],
    });
    let choice = serde_json::to_value(choice(&spec, None)).unwrap();
    let module = json!({ "name": "keda", "controller": "x", "customResourcePolicy": "CreateAndDelete", "managed": true,
        "values": { "a": 1 } });
    assert_eq!(choice, json!({ "channel": "fast", "modules": [module] }));
}

#[test]
fn an_entry_that_cannot_be_read_is_remembered_as_it_was() {
    let spec = json!({ "modules": [{ "name": "keda", "channel": 7 }, { "name": "nats", "managed": "no" }] });
    let known = json!({ "modules": [{ "name": "keda", "channel": "fast" }, { "name": "gone" }] });
    let known = serde_json::from_value(known).unwrap();
    let modules = choice(&spec, Some(&known)).modules;
    let names: Vec<_> =
        modules.iter().map(|module| (module.name.as_str(), module.channel.as_deref())).collect();
    assert_eq!(names, [("keda", Some("fast")), ("nats", None)]);
}

#[test]
fn a_bad_entry_spoils_itself_alone() {
    let long = "x".repeat(70 * 1024);
    for bad in [
        json!({ "name": "keda", "channel": "FAST" }),
        json!({ "name": "keda", "channel": 7 }),
        json!({ "name": "keda", "version": "one" }),
        json!({ "name": "keda", "customResourcePolicy": "Destroy" }),
        json!({ "name": "keda", "values": { "long": long } }),
        json!({ "name": "keda", "managed": "no" }),
        json!({ "name": "keda", "controller": "no label" }),
    ] {
        let read =
            Selection::read(&json!({ "channel": "regular", "modules": [bad, { "name": "nats" }] })).unwrap();
        assert!(read.entries[0].invalid.is_some(), "{bad}");
        assert_eq!(read.entries[1].invalid, None);
    }
}

#[test]
fn i91_i92_what_is_no_selection_is_refused_as_a_whole() {
    let many: Vec<_> = (0..101).map(|number| json!({ "name": format!("m{number}") })).collect();
    for (spec, error) in [
        (json!({ "channel": "none" }), SelectionError::ChannelNone),
        (json!({ "channel": "../etc" }), SelectionError::Channel),
        (json!({ "modules": "all" }), SelectionError::Modules),
        (json!({ "modules": [{ "name": "kcp-system/keda" }] }), SelectionError::Modules),
        (json!({ "modules": [{ "name": "kyma-project.io/module/keda" }] }), SelectionError::Modules),
        (json!({ "modules": [7] }), SelectionError::Modules),
        (json!({ "modules": many }), SelectionError::TooMany(101)),
        (
            json!({ "modules": [{ "name": "keda" }, { "name": "keda" }] }),
            SelectionError::Twice("keda".into()),
        ),
    ] {
        assert_eq!(Selection::read(&spec), Err(error), "{spec}");
    }
}

#[test]
fn a_kyma_is_born_with_the_choice_and_always_with_a_channel() {
    let created =
        spec_of_new_kyma(&choice(&json!({ "modules": [{ "name": "keda", "version": "1.0.0" }] }), None));
    assert_eq!(created["channel"], "regular");
    assert_eq!(Selection::read(&created).unwrap().entries[0].version.as_deref(), Some("1.0.0"));
}

#[test]
fn only_fields_that_are_read_are_kept_of_a_targets_spec() {
    let many: Vec<_> =
        (0..50_000).map(|number| json!({ "name": format!("m{number}"), "values": {} })).collect();
    for spec in [
        json!({ "channel": "fast", "modules": [{ "name": "keda" }], "kubeconfigSecretRef": { "name": "evil" } }),
        json!({ "channel": "none", "modules": "all" }),
        json!({ "modules": many }),
        json!("planted"),
        json!({}),
    ] {
        assert_eq!(Selection::read(&reduced(&spec)), Selection::read(&spec));
    }
    let told = json!({ "modules": [{ "name": "keda", "controller": "x", "remoteModuleTemplateRef": "y", "managed": true }] });
    assert_eq!(
        reduced(&told),
        json!({ "modules": [{ "name": "keda", "controller": "x", "managed": true }] }),
        "which template it is made from is said on the hub"
    );
    let kept = reduced(&json!({ "modules": many, "else": many }));
    assert!(kept.to_string().len() < 10 * 50_000, "only the number of them is kept");
    assert_eq!(kept.get("else"), None);
}
