//! Values in four layers (a JSON list of the module's, those from objects of the hub, the user's, overrides): the
//! last layer always wins, and replaced values of the user are listed.
#![no_main]

use kyma_helm::values::merge;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

type Values = Map<String, Value>;

fuzz_target!(|bytes: &[u8]| {
    let Ok(layers) = serde_json::from_slice::<[Option<Values>; 4]>(bytes) else { return };
    let [module, from, user, overrides] = layers.each_ref().map(Option::as_ref);
    let none = Values::new();
    let merged = merge(module, from.unwrap_or(&none), user, overrides);
    assert_eq!(merge(None, &none, Some(&merged.values), None).values, merged.values);
    assert_eq!(merge(Some(&merged.values), &none, None, overrides).values, merged.values, "twice is once");
    for (key, value) in overrides.into_iter().flatten() {
        assert!(holds(&merged.values[key], value), "{key}");
    }
    let sorted = merged.replaced.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(sorted, "{:?}", merged.replaced);
    let kept = user.into_iter().flatten().all(|(key, value)| {
        let over = overrides.and_then(|overrides| overrides.get(key));
        over.is_some() || holds(&merged.values[key], value)
    });
    assert!(kept, "the user loses to nobody but the overrides");
    let agree = user.zip(overrides).is_none_or(|(user, overrides)| agree(user, overrides));
    assert_eq!(merged.replaced.is_empty(), agree, "{:?}", merged.replaced);
});

/// Returns whether `found` contains all of `wanted`, maps key by key.
fn holds(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| found.get(key).is_some_and(|found| holds(found, value)))
        }
        (found, wanted) => found == wanted,
    }
}

/// Returns whether all overrides equal the user's values.
fn agree(user: &Values, overrides: &Values) -> bool {
    overrides.iter().all(|(key, over)| match (user.get(key), over) {
        (None, _) => true,
        (Some(Value::Object(user)), Value::Object(over)) => agree(user, over),
        (Some(user), over) => user == over,
    })
}
