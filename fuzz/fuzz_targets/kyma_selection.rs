//! The selection in a target's unvalidated Kyma: within the limits, with unique names, and unchanged in a Kyma that
//! is created from it. Of an unreadable entry the name stays.
#![no_main]

use std::collections::BTreeSet;

use kyma_api::{limits, patterns};
use kyma_operator::fuzzing::{ModuleEntry, select, spec_of_new_kyma};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(spec) = serde_json::from_slice::<Value>(bytes) else { return };
    let created = spec_of_new_kyma(&spec);
    assert_eq!(spec_of_new_kyma(&created), created, "the spec of a new Kyma is recorded unchanged");
    let (channel, entries) = match select(&spec) {
        Ok(selected) => selected,
        Err(error) => return assert!(is_plain(&error), "{error:?}"),
    };
    assert!(channel.is_empty() || patterns::is_channel(&channel));
    assert!(entries.len() <= limits::MODULES);
    assert_eq!(entries.iter().map(|entry| &entry.name).collect::<BTreeSet<_>>().len(), entries.len());
    entries.iter().for_each(check);
    let (_, again) = select(&created).expect("the spec of a new Kyma is a valid selection");
    assert_eq!(entries.len(), again.len());
    for (entry, created) in entries.iter().zip(&again) {
        assert_eq!(entry.name, created.name);
        assert!(entry.invalid.is_some() || entry == created, "{entry:?} became {created:?}");
    }
});

fn check(entry: &ModuleEntry) {
    let part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    assert!((1..=64).contains(&entry.name.len()) && entry.name.bytes().all(part), "{}", entry.name);
    assert!(entry.invalid.as_deref().is_none_or(is_plain));
    assert!(entry.channel.as_deref().is_none_or(patterns::is_channel));
    assert!(entry.values.as_ref().is_none_or(|values| limits::fits(values, limits::USER_VALUES_BYTES)));
}

/// Fixed words and a validated name, nothing else of the input.
fn is_plain(text: &str) -> bool {
    text.len() <= 200 && text.chars().all(|c| c.is_ascii_alphanumeric() || " .-:`[]();".contains(c))
}
