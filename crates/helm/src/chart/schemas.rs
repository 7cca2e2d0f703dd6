//! Checks the schemas of a chart's values for references to files or the network, which an engine would follow.
//!
//! Helm reads only the schemas of enabled charts, which depend on the values. A schema with such a reference is
//! replaced by one that cannot be compiled; if Helm reads that, the error reports the fault of the original.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use url::Url;

use super::fault::ChartFault;

/// Part of the reference in a schema that replaces another one; the schema's number follows.
const REFUSED: &str = "refused-by-helm-component-";

/// The refused schemas of a chart.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    refused: BTreeMap<String, (usize, ChartFault)>,
}

impl Schemas {
    /// Checks one schema.
    pub(super) fn see(&mut self, file: &str, bytes: &[u8]) {
        if let Err(fault) = check(file, bytes) {
            let number = self.refused.len();
            self.refused.insert(file.to_owned(), (number, fault));
        }
    }

    /// Returns the replacement of a schema; `None` if it is not refused.
    pub(super) fn replacement(&self, file: &str) -> Option<Bytes> {
        let (number, _) = self.refused.get(file)?;
        Some(json!({"$ref": format!("#/{REFUSED}{number}-")}).to_string().into())
    }

    /// Returns the fault of the schema whose replacement an error text names.
    pub(super) fn fault_in(&self, error_text: &str) -> Option<ChartFault> {
        let is_named = |number: &usize| error_text.contains(&format!("{REFUSED}{number}-"));
        self.refused.values().find(|(number, _)| is_named(number)).map(|(_, fault)| fault.clone())
    }
}

/// Returns whether Helm reads a file as the schema of a chart: it is in the folder of the chart or of a subchart.
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
    let id = SchemaId::of(&schema);
    let target = first_field(&schema, &mut |key, value| {
        let target = value.as_str()?;
        let leads_out = match key {
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                let address = document(target);
                !address.is_empty() && !is_draft(address) && !id.is_target_of(target)
            }
            "$schema" => !is_draft(target),
            _ => false,
        };
        leads_out.then(|| target.chars().take(200).collect())
    });
    target.map_or(Ok(()), |target| Err(ChartFault::RemoteReference { file: file.to_owned(), target }))
}

/// The `$id` of a schema, and those of the schemas that are bundled with it.
///
/// Only that of the root counts, and addresses in the network in `$defs` and `definitions` of the root. Whether
/// another nested `$id` counts depends on the draft and on its siblings, and an engine that ignores it fetches
/// references to it.
struct SchemaId {
    root: Option<Url>,
    /// As written, without fragments: an engine need not read other spellings of an address as the same one.
    bundled: Vec<String>,
    /// Whether references may be relative to a nested `$id`.
    has_nested: bool,
}

impl SchemaId {
    fn of(schema: &Value) -> Self {
        let key = id_field(schema).unwrap_or("$id");
        let id = |schema: &Value| schema.get(key).and_then(Value::as_str).and_then(|id| Url::parse(id).ok());
        let root = id(schema).filter(|_| schema.get("$ref").is_none());
        let mut ids = 0;
        let _ = first_field(schema, &mut |key, value| {
            ids += usize::from((key == "$id" || key == "id") && value.is_string());
            None
        });
        Self { root: root.map(without_fragment), bundled: bundled(schema, key), has_nested: ids > 1 }
    }

    fn is_target_of(&self, reference: &str) -> bool {
        if self.bundled.iter().any(|id| id == document(reference)) {
            return true;
        }
        let address = match (Url::parse(reference), &self.root) {
            (Ok(address), _) => Some(address),
            (Err(_), Some(root)) if !self.has_nested => root.join(reference).ok(),
            _ => None,
        };
        address.is_some() && address.map(without_fragment) == self.root
    }
}

/// Returns the ids of the schemas that are bundled with a schema, whose ids are in the field `key`.
fn bundled(schema: &Value, key: &str) -> Vec<String> {
    let has_reference = |schema: &Value| schema.get("$ref").is_some();
    let is_old = schema.get("$schema").and_then(Value::as_str).is_some_and(|draft| draft.contains("draft-0"));
    // Older drafts ignore the siblings of a reference, and know no `$defs`.
    let fields: &[&str] = match (is_old, has_reference(schema)) {
        (true, true) => &[],
        (true, false) => &["definitions"],
        (false, _) => &["$defs", "definitions"],
    };
    let definitions = fields.iter().filter_map(|field| schema.get(*field)?.as_object());
    let inner = definitions.flat_map(Map::values).filter(|inner| !has_reference(inner));
    let inner = inner.filter(|inner| id_field(inner).is_none_or(|field| field == key));
    let ids = inner.filter_map(|inner| inner.get(key)?.as_str());
    let is_address =
        |id: &str| Url::parse(id).is_ok_and(|address| matches!(address.scheme(), "http" | "https"));
    ids.filter(|id| is_address(id)).map(|id| document(id).to_owned()).collect()
}

/// Returns the field for ids in the draft that a schema names; `None` if it names none.
fn id_field(schema: &Value) -> Option<&'static str> {
    let draft = schema.get("$schema")?.as_str()?;
    Some(if draft.contains("draft-04") { "id" } else { "$id" })
}

/// Returns a reference without its fragment.
fn document(reference: &str) -> &str {
    reference.split('#').next().unwrap_or(reference)
}

/// Returns the first result of `see` among all fields of a schema.
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

/// Returns whether a `$schema` is built into engines; any other is fetched.
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
        for draft in
            ["draft-07/schema#", "draft-07/schema#/definitions/nonNegativeInteger", "draft/2020-12/schema"]
        {
            assert!(
                !refused(&json!({"$ref": format!("http://json-schema.org/{draft}")})),
                "{draft} is built in"
            );
        }
        assert!(refused(&json!({"$ref": "http://json-schema.org/draft-07/other#/schema"})));
        let oldest = "http://json-schema.org/draft-04/schema#";
        assert!(!refused(&json!({"$schema": oldest, "id": own, "items": {"$ref": own}})));
        assert!(refused(&json!({"$ref": "file:///etc/passwd"})));
        assert!(refused(&json!({"$schema": "https://example.org/draft"})));
    }

    #[test]
    fn references_to_bundled_schemas_are_followed() {
        let other = "https://example.org/schemas/other.json";
        let reference = json!({"a": {"$ref": format!("{other}#/$defs/b")}});
        let bundled = json!({"x": {"$id": other, "$defs": {"b": {}}}});
        let seventh = "http://json-schema.org/draft-07/schema#";
        assert!(!refused(&json!({"properties": reference, "$defs": bundled})));
        assert!(!refused(&json!({"$ref": other, "$defs": bundled})));
        assert!(!refused(&json!({"$schema": seventh, "properties": reference, "definitions": bundled})));
        assert!(refused(&json!({"$schema": seventh, "$ref": other, "definitions": bundled})));
        assert!(refused(&json!({"$schema": seventh, "properties": reference, "$defs": bundled})));
        let oldest = "http://json-schema.org/draft-04/schema#";
        let of_other_draft = json!({"x": {"$schema": oldest, "$id": other, "id": "https://example.org/x"}});
        assert!(refused(&json!({"properties": reference, "$defs": of_other_draft})));
        let of_same_draft = json!({"x": {"$schema": "https://json-schema.org/schema", "$id": other}});
        assert!(!refused(&json!({"properties": reference, "$defs": of_same_draft})));
        let other_spelling = json!({"x": {"$id": "https://EXAMPLE.org/schemas/other.json"}});
        assert!(refused(&json!({"properties": reference, "$defs": other_spelling})));
        assert!(refused(&json!({"properties": reference, "examples": bundled})));
        assert!(refused(&json!({"properties": reference, "$defs": {"x": {"$id": other, "$ref": "#"}}})));
        let file = "file:///etc/passwd";
        assert!(refused(&json!({"$ref": file, "$defs": {"x": {"$id": file}}})));
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
    fn an_error_of_helm_names_the_replaced_schema() {
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
