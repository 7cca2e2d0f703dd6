//! Manifests and rendered charts: limits hold, parsed objects survive serialization, a second correction changes
//! nothing, and no message contains a part of the text.
#![no_main]

use kyma_object_set::{Limits, ObjectSet, normalise};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Marker in values of the seeds. Messages may contain kinds and names, which have no spaces.
const PLANTED: &str = "Hush4 Hush";

const LIMITS: Limits = Limits { text_bytes: 4096, objects: 8, nodes: 256, scalar_bytes: 4096 };

fuzz_target!(|bytes: &[u8]| {
    let set = match ObjectSet::parse_bytes(bytes, &LIMITS) {
        Ok(set) => set,
        Err(error) => return assert!(!error.to_string().contains(PLANTED), "{error}"),
    };
    assert!(bytes.len() <= LIMITS.text_bytes);
    assert!(set.len() <= LIMITS.objects);
    let cost =
        set.objects().iter().map(|object| object.body().values().map(nodes).sum::<usize>()).sum::<usize>();
    assert!(cost <= LIMITS.nodes, "{cost} nodes");
    let again = ObjectSet::parse(&written(&set), &Limits::default()).expect("what was read can be read");
    let pairs = set.objects().iter().zip(again.objects());
    assert_eq!(set.len(), again.len());
    for (one, other) in pairs {
        assert_eq!(one.identity(), other.identity());
        let bodies = [one, other].map(|object| Value::Object(object.body().clone()));
        assert!(same(&bodies[0], &bodies[1]), "{bodies:?}");
    }
    for mut object in set.into_objects() {
        let identity = object.identity();
        normalise(&mut object);
        assert_eq!(object.identity(), identity);
        let once = object.intent_hash();
        assert!(normalise(&mut object).is_empty(), "a list key is there twice even now");
        assert_eq!(object.intent_hash(), once);
    }
});

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum(),
        _ => 0,
    }
}

fn written(set: &ObjectSet) -> String {
    let documents = set.objects().iter().map(|object| Value::Object(object.body().clone()));
    documents.map(|document| format!("---\n{document}\n")).collect()
}

/// Returns whether two values are equal except for the last digit of a float, which JSON does not keep.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|found| same(value, found)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Number(one), Value::Number(other)) if one.is_f64() && other.is_f64() => {
            let (one, other) = (one.as_f64().unwrap_or(0.0), other.as_f64().unwrap_or(0.0));
            (one - other).abs() <= one.abs() * 1e-14
        }
        (one, other) => one == other,
    }
}
