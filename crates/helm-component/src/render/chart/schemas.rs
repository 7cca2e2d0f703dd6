//! Schemas of a chart's values, and what in them must not reach an engine, which would follow it to files or the network.
//!
//! Helm reads only the schemas of charts that take part in a render, and which do depends on the values. A schema that must
//! not be followed is replaced by one that cannot be compiled; where Helm reads that, the failure tells of the original.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use url::Url;

use super::ChartFault;

/// Part of the reference in a schema that replaces another one; the schema's number follows.
const REFUSED: &str = "refused-by-helm-component-";

/// The schemas of a chart that must not be followed.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    refused: BTreeMap<String, (usize, ChartFault)>,
}

impl Schemas {
    /// Reads one more schema.
    pub(super) fn see(&mut self, file: &str, bytes: &[u8]) {
        if let Err(fault) = check(file, bytes) {
            let number = self.refused.len();
            self.refused.insert(file.to_owned(), (number, fault));
        }
    }

    /// What an engine gets instead of a schema; `None` for one that is harmless.
    pub(super) fn replacement(&self, file: &str) -> Option<Bytes> {
        let (number, _) = self.refused.get(file)?;
        Some(json!({"$ref": format!("#/{REFUSED}{number}-")}).to_string().into())
    }

    /// The fault of a schema that a failed render names.
    pub(super) fn fault_in(&self, error_text: &str) -> Option<ChartFault> {
        let is_named = |number: &usize| error_text.contains(&format!("{REFUSED}{number}-"));
        self.refused.values().find(|(number, _)| is_named(number)).map(|(_, fault)| fault.clone())
    }
}

/// Whether Helm takes a file for the schema of a chart: it lies in the folder of one.
pub(super) fn is_schema(file: &str) -> bool {
    let mut inside = file;
    while let Some((_, below)) = inside.strip_prefix("charts/").and_then(|folder| folder.split_once('/')) {
        inside = below;
    }
    inside == "values.schema.json"
}

fn check(file: &str, bytes: &[u8]) -> Result<(), ChartFault> {
    let schema: Value =
        serde_json::from_slice(bytes).map_err(|_| ChartFault::SchemaUnreadable { file: file.to_owned() })?;
    let own = OwnAddress::of(&schema);
    let target = first_field(&schema, &mut |key, value| {
        let target = value.as_str()?;
        let leads_out = match key {
            "$ref" | "$dynamicRef" | "$recursiveRef" => !target.starts_with('#') && !own.is_named_by(target),
            "$schema" => !is_draft(target),
            _ => false,
        };
        leads_out.then(|| target.chars().take(200).collect())
    });
    target.map_or(Ok(()), |target| Err(ChartFault::RemoteReference { file: file.to_owned(), target }))
}

/// The address that a schema gives to itself.
///
/// Only that of the whole counts. Whether one further in is an address depends on the draft and on the fields beside it,
/// and an engine that takes it for none fetches what refers to it.
struct OwnAddress {
    whole: Option<Url>,
    /// Whether references may be relative to something else.
    has_inner: bool,
}

impl OwnAddress {
    fn of(schema: &Value) -> Self {
        let is_oldest =
            schema.get("$schema").and_then(Value::as_str).is_some_and(|draft| draft.contains("draft-04"));
        let id = schema.get(if is_oldest { "id" } else { "$id" }).and_then(Value::as_str);
        let whole = id.filter(|_| schema.get("$ref").is_none()).and_then(|id| Url::parse(id).ok());
        let mut ids = 0;
        let _ = first_field(schema, &mut |key, value| {
            ids += usize::from((key == "$id" || key == "id") && value.is_string());
            None
        });
        Self { whole: whole.map(without_fragment), has_inner: ids > 1 }
    }

    fn is_named_by(&self, reference: &str) -> bool {
        let Some(whole) = &self.whole else { return false };
        let address = match Url::parse(reference) {
            Ok(address) => Some(address),
            Err(_) if self.has_inner => None,
            Err(_) => whole.join(reference).ok(),
        };
        address.map(without_fragment).as_ref() == Some(whole)
    }
}

/// What `see` finds first among all fields of a schema.
fn first_field(schema: &Value, see: &mut dyn FnMut(&str, &Value) -> Option<String>) -> Option<String> {
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                for (key, value) in fields {
                    if let Some(found) = see(key, value) {
                        return Some(found);
                    }
                    open.push(value);
                }
            }
            _ => {}
        }
    }
    None
}

fn without_fragment(mut address: Url) -> Url {
    address.set_fragment(None);
    address
}

/// Whether a `$schema` is one that engines know by heart; any other is fetched.
fn is_draft(target: &str) -> bool {
    let target = target.strip_suffix('#').unwrap_or(target);
    let target = target.strip_prefix("http://").or_else(|| target.strip_prefix("https://"));
    let path = target.and_then(|target| target.strip_prefix("json-schema.org/"));
    let known = [
        "schema",
        "draft-04/schema",
        "draft-06/schema",
        "draft-07/schema",
        "draft/2019-09/schema",
        "draft/2020-12/schema",
    ];
    path.is_some_and(|path| known.contains(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(schema: &Value) -> bool {
        check("values.schema.json", schema.to_string().as_bytes()).is_err()
    }

    #[test]
    fn references_to_the_schema_itself_are_followed() {
        let own = "https://example.org/schemas/values.json";
        assert!(!refused(
            &json!({"$id": own, "properties": {"a": {"$ref": format!("{own}#/$defs/a")}}, "$defs": {"a": {}}})
        ));
        assert!(!refused(&json!({"$id": own, "items": {"$ref": "values.json#/$defs/a"}})));
        assert!(!refused(&json!({"$ref": "#/$defs/a"})));
        assert!(refused(&json!({"$id": own, "$ref": "https://example.org/schemas/more.json"})));
        assert!(refused(&json!({"$id": own, "$ref": "more.json"})));
        assert!(refused(&json!({"$ref": "values.json"})));
        assert!(
            refused(&json!({"$id": own, "$ref": own})),
            "older drafts ignore what stands beside a reference"
        );
        assert!(refused(&json!({"id": own, "items": {"$ref": own}})), "no address in newer drafts");
        let inner = json!({"$id": "https://other.example/", "items": {"$ref": "values.json"}});
        assert!(refused(&json!({"$id": own, "items": inner})));
        assert!(refused(&json!({"const": {"$id": own}, "items": {"$ref": own}})));
        let oldest = "http://json-schema.org/draft-04/schema#";
        assert!(!refused(&json!({"$schema": oldest, "id": own, "items": {"$ref": own}})));
        assert!(refused(&json!({"$ref": "file:///etc/passwd"})));
        assert!(refused(&json!({"$schema": "https://example.org/draft"})));
    }

    #[test]
    fn only_files_in_folders_of_charts_are_schemas() {
        for file in
            ["values.schema.json", "charts/a/values.schema.json", "charts/a/charts/b/values.schema.json"]
        {
            assert!(is_schema(file), "{file}");
        }
        for file in [
            "files/values.schema.json",
            "templates/values.schema.json",
            "charts/a/files/values.schema.json",
            "charts/values.schema.json",
        ] {
            assert!(!is_schema(file), "{file}");
        }
    }

    #[test]
    fn a_failure_of_helm_tells_of_the_schema_that_was_replaced() {
        let mut schemas = Schemas::default();
        schemas.see("values.schema.json", b"{}");
        schemas.see("charts/a/values.schema.json", br#"{"$ref": "https://example.org/x"}"#);
        schemas.see("charts/b/values.schema.json", b"no JSON");
        assert!(schemas.replacement("values.schema.json").is_none());
        let replaced =
            String::from_utf8(schemas.replacement("charts/b/values.schema.json").unwrap().to_vec()).unwrap();
        let fault = schemas.fault_in(&format!("cannot compile {replaced}")).unwrap();
        assert!(
            matches!(fault, ChartFault::SchemaUnreadable { file } if file == "charts/b/values.schema.json")
        );
        assert!(schemas.fault_in("another failure").is_none());
    }
}
