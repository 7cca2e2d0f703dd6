//! Values from a schema: drawn at random, the same from the same seed.

use std::collections::HashMap;

use fastrand::Rng;
use kyma_api::labels;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::schema::Kind;

/// Texts that mean something somewhere, or that somebody may choke on.
const TEXTS: [&str; 52] = [
    "",
    "a",
    "regular",
    "fast",
    "none",
    "anchor",
    "keda",
    "default",
    "kcp-system",
    "kyma-system",
    "kube-system",
    "1.0.0",
    "0.0.0",
    "1.2.3-rc",
    "18446744073709551616.0.0",
    "v1",
    "apps",
    "apps/v1",
    "Deployment",
    "Secret",
    "Kyma",
    "HelmComponent",
    "Greeting",
    "component.kyma-project.io/v1alpha1",
    "demo.kyma-project.io/v1alpha1",
    "example.com",
    "example.com/module",
    "kyma-project.io/module/anchor",
    "oci://registry.invalid/module",
    "https://charts.invalid/index",
    "http://127.0.0.1:1/manifest.yaml",
    "http://[::1]:1/",
    "file:///etc/passwd",
    "registry.invalid",
    "127.0.0.1:1",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "kubeconfig-sentinel",
    "config",
    "../../etc/passwd",
    "{{ .Values.x }}",
    "{{ end }}",
    "%s%n%x",
    "null",
    "true",
    "-1",
    "1e400",
    "naïve",
    "\u{202e}txet",
    "🦀🦀🦀",
    "a\u{0}b",
    "a\nb: c",
    "'\"`$(x)",
];

/// Times: first such as an API server takes, then such as it may take or not.
const TIMES: [&str; 11] = [
    "2026-01-01T00:00:00Z",
    "2099-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "2026-01-01T00:00:00.123456789+14:00",
    "2026-06-30T23:59:60Z",
    "2026-01-01T24:00:00Z",
    "2026-01-01T00:00:00",
    "2026-01-01t00:00:00z",
    "2026-01-01 00:00:00Z",
    "tomorrow",
];
/// How many of them it takes.
const VALID_TIMES: usize = 5;

/// Labels by which operators decide.
const LABELS: [&str; 8] = [
    labels::BETA,
    labels::INTERNAL,
    labels::SKIP_RECONCILIATION,
    labels::KYMA_NAME,
    labels::MODULE_NAME,
    labels::CHANNEL,
    labels::MANAGED_BY,
    labels::OWNER,
];

/// How deep a free-form value goes.
const DEEPEST: usize = 6;
/// Longest text that is made for the sake of its length.
const LONGEST_TEXT: usize = 10_000;
/// Longest list that is made for the sake of its length.
const LONGEST_LIST: u64 = 120;

/// One object, made up.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// Its name; none that an API server takes, where it lies beyond the limits.
    pub name: String,
    /// All of it.
    pub object: Value,
}

/// Makes objects up.
pub struct Drawer {
    rng: Rng,
    /// Of how many values one lies beyond its schema; none of them if 0.
    beyond: u32,
    patterns: HashMap<String, Option<Regex>>,
}

impl Drawer {
    /// The same seed makes the same objects.
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), beyond: 0, patterns: HashMap::new() }
    }

    /// The next object of a kind. Three of four keep to the schema, as far as that can be told from it.
    pub fn object(&mut self, kind: &Kind, number: usize) -> Drawn {
        self.beyond = *self.one_of(&[0, 0, 0, 0, 0, 0, 30, 6]);
        let name = self.name(number);
        let mut spec = self.value(&kind.spec, 0);
        if self.rng.u8(..4) > 0 {
            agree(&kind.resource.kind, &mut spec, &mut self.rng);
        }
        let object = json!({
            "apiVersion": kind.resource.api_version, "kind": kind.resource.kind,
            "metadata": {"name": name, "labels": self.labels()}, "spec": spec,
        });
        Drawn { name, object }
    }

    fn name(&mut self, number: usize) -> String {
        let name = format!("drawn-{number}");
        match self.rng.u8(..40) {
            0 => format!("{name}{}", "x".repeat(253 - name.len())),
            1 => format!("{name}{}", "x".repeat(254 - name.len())),
            2 => format!("{name}.{}", "y".repeat(63)),
            3 => format!("{name}-Ü"),
            _ => name,
        }
    }

    fn labels(&mut self) -> Value {
        let mut held = Map::new();
        for _ in 0..self.rng.usize(..3) {
            let value = self.one_of(&["true", "false", "", "regular", "sentinel", "anchor"]).to_owned();
            held.insert((*self.one_of(&LABELS)).to_owned(), json!(value));
        }
        Value::Object(held)
    }

    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if self.beyond > 0 && self.rng.u32(..self.beyond) == 0 {
            return self.free_form(depth);
        }
        if let Some(values) = schema["enum"].as_array() {
            return self.one_of(values).clone();
        }
        match schema["type"].as_str() {
            Some("object") => self.map(schema, depth),
            Some("array") => self.list(schema, depth),
            Some("string") => json!(self.text(schema)),
            Some("boolean") => json!(self.rng.bool()),
            Some("integer" | "number") => self.number(schema),
            _ => self.free_form(depth),
        }
    }

    fn map(&mut self, schema: &Value, depth: usize) -> Value {
        let mut held = Map::new();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let is_required = required.iter().any(|one| one == name);
            let wanted = is_required || self.rng.usize(..depth + 2) == 0;
            let is_left_out = self.beyond > 0 && self.rng.u32(..self.beyond) == 0;
            if wanted && !is_left_out {
                held.insert(name.clone(), self.value(property, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() {
            for _ in 0..self.rng.usize(..3) {
                let name = (*self.one_of(&TEXTS)).to_owned();
                held.insert(name, self.value(&schema["additionalProperties"], depth + 1));
            }
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == true {
            for _ in 0..self.rng.usize(..4) {
                let name = (*self.one_of(&TEXTS)).to_owned();
                held.insert(name, self.free_form(depth + 1));
            }
        }
        Value::Object(held)
    }

    fn list(&mut self, schema: &Value, depth: usize) -> Value {
        let (least, most) = (schema["minItems"].as_u64().unwrap_or(0), schema["maxItems"].as_u64());
        let length = match (self.rng.u8(..30), most) {
            (0, Some(most)) if most <= LONGEST_LIST && depth < 3 => most,
            (1, Some(most)) if most < LONGEST_LIST && depth < 3 && self.beyond > 0 => most + 1,
            _ => least + self.rng.u64(..3),
        };
        (0..length).map(|_| self.value(&schema["items"], depth + 1)).collect()
    }

    fn text(&mut self, schema: &Value) -> String {
        if schema["format"] == "date-time" {
            let times = if self.beyond > 0 { TIMES.as_slice() } else { &TIMES[..VALID_TIMES] };
            return (*self.one_of(times)).to_owned();
        }
        let most = schema["maxLength"].as_u64().and_then(|most| usize::try_from(most).ok());
        let length = match (self.rng.u8(..40), most) {
            (0, Some(most)) => Some(most),
            (1, Some(most)) if self.beyond > 0 => Some(most + 1),
            _ => None,
        };
        let least = schema["minLength"].as_u64().and_then(|least| usize::try_from(least).ok()).unwrap_or(0);
        let fits = |text: &&str| {
            let count = text.chars().count();
            count >= least && most.is_none_or(|most| count <= most)
        };
        let pattern = schema["pattern"].as_str().unwrap_or_default();
        let compiled = self.patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
        let matches = |text: &&str| compiled.as_ref().is_none_or(|pattern| pattern.is_match(text));
        if let Some(length) = length.filter(|length| *length < LONGEST_TEXT) {
            let letter = ["a", "7", "é"][self.rng.usize(..if self.beyond > 0 { 3 } else { 2 })];
            let text = letter.repeat(length);
            if self.beyond > 0 || matches(&text.as_str()) {
                return text;
            }
        }
        let usable: Vec<&str> = TEXTS.into_iter().filter(fits).filter(matches).collect();
        if usable.is_empty() || (self.beyond > 0 && self.rng.u8(..20) == 0) {
            return (*self.one_of(&TEXTS)).to_owned();
        }
        (*self.one_of(&usable)).to_owned()
    }

    fn number(&mut self, schema: &Value) -> Value {
        let (least, most) = (schema["minimum"].as_i64(), schema["maximum"].as_i64());
        let wild = self.beyond > 0;
        match self.rng.u8(..20) {
            0 if wild => json!(least.map_or(-1, |least| least.saturating_sub(1))),
            1 if wild => json!(most.map_or(i64::MAX, |most| most.saturating_add(1))),
            2 if wild => json!(1.5),
            3 => json!(most.unwrap_or(i64::from(i32::MAX))),
            4 => json!(least.unwrap_or(0)),
            _ => json!(least.unwrap_or(0).max(0)),
        }
    }

    /// Anything that is JSON.
    fn free_form(&mut self, depth: usize) -> Value {
        let leaf = depth >= DEEPEST;
        match self.rng.u8(..if leaf { 5 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.rng.bool()),
            2 => json!(self.rng.i64(..)),
            3 => json!(0.1),
            4 => json!(self.one_of(&TEXTS)),
            5 => (0..self.rng.usize(..3)).map(|_| self.free_form(depth + 1)).collect(),
            _ => {
                let names: Vec<String> =
                    (0..self.rng.usize(..3)).map(|_| (*self.one_of(&TEXTS)).to_owned()).collect();
                names.into_iter().map(|name| (name, self.free_form(depth + 1))).collect()
            }
        }
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.rng.usize(..all.len())]
    }
}

/// Drops what excludes other fields by a rule that the schema alone does not tell, or nearly all would be refused.
fn agree(kind: &str, spec: &mut Value, rng: &mut Rng) {
    let mut keep_one = |held: &mut Value, of: &[&str]| {
        let Some(held) = held.as_object_mut() else { return };
        let present: Vec<&str> = of.iter().copied().filter(|name| held.contains_key(*name)).collect();
        let kept = present.get(rng.usize(..present.len().max(1))).copied();
        held.retain(|name, _| !of.contains(&name.as_str()) || Some(name.as_str()) == kept);
    };
    match kind {
        "HelmComponent" => {
            spec.get_mut("source")
                .into_iter()
                .for_each(|source| keep_one(source, &["ocm", "chart", "manifests"]));
        }
        "ModuleReleaseMeta" => keep_one(spec, &["channels", "versions", "mandatory"]),
        "Kyma" => {
            for module in spec.get_mut("modules").and_then(Value::as_array_mut).into_iter().flatten() {
                keep_one(module, &["channel", "version"]);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::objects::kinds;

    #[test]
    fn a_seed_makes_the_same_objects_again_and_another_one_others() {
        let kinds = kinds().unwrap();
        let made = |seed| {
            let mut drawer = Drawer::new(seed);
            (0..50).map(|number| drawer.object(&kinds[0], number).object.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(made(7), made(7));
        assert_ne!(made(7), made(8));
        assert!(made(7).into_iter().collect::<BTreeSet<_>>().len() > 40, "they differ among themselves");
    }

    #[test]
    fn values_lie_within_on_and_beyond_their_limits() {
        let schema = json!({"type": "array", "minItems": 1, "maxItems": 9, "items": {"type": "string", "maxLength": 5}});
        let mut drawer = Drawer::new(1);
        drawer.beyond = 1000;
        let lists: Vec<Value> = (0..2000).map(|_| drawer.value(&schema, 0)).collect();
        let lengths: BTreeSet<usize> = lists.iter().filter_map(Value::as_array).map(Vec::len).collect();
        assert!(lengths.is_superset(&BTreeSet::from([1, 2, 3, 9, 10])), "{lengths:?}");
        let texts = lists.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
        let lengths: BTreeSet<usize> = texts.map(|text| text.chars().count()).collect();
        assert!(lengths.contains(&0) && lengths.contains(&5) && lengths.contains(&6), "{lengths:?}");
    }
}
