//! Values that a chart rejects: by its schema, by functions of its template, or because the output is invalid.

use anyhow::Result;
use kyma_api::Reason;
use serde_json::{Value, json};

use crate::planted::{HARMLESS_WORD, secret};
use crate::world::{Row, World};

/// The chart's only template. `mode` selects what is done with the secret; by default it goes into a Secret.
const TEMPLATE: &str = r#"
{{- $secret := .Values.secret -}}
{{- if eq .Values.mode "fail" }}{{ fail (printf "the password %s is too short" $secret) }}{{ end -}}
{{- if eq .Values.mode "fail-alone" }}{{ fail $secret }}{{ end -}}
{{- if eq .Values.mode "tpl" }}{{ tpl $secret . }}{{ end -}}
{{- if eq .Values.mode "regex" }}{{ mustRegexMatch $secret "a" }}{{ end -}}
{{- if eq .Values.mode "field" }}{{ $secret.field.of }}{{ end -}}
{{- if eq .Values.mode "include" }}{{ include $secret . }}{{ end -}}
{{- if eq .Values.mode "semver" }}{{ semverCompare $secret "1.0.0" }}{{ end -}}
{{- if eq .Values.mode "date" }}{{ mustToDate "2006-01-02" $secret }}{{ end -}}
{{- if eq .Values.mode "index" }}{{ index (list 1 2) $secret }}{{ end -}}
{{- if eq .Values.mode "json" }}{{ mustFromJson $secret }}{{ end -}}
{{- if eq .Values.mode "yaml" }}
broken: {{ $secret }}
{{- end }}
{{- if eq .Values.mode "document" }}
- {{ $secret }}
{{- else }}
apiVersion: v1
kind: Secret
metadata: {name: content}
stringData: {password: {{ $secret | quote }}}
{{- end }}
"#;

pub(crate) async fn rows(world: &World) -> Result<Vec<Row>> {
    let name = format!("{HARMLESS_WORD}-chart");
    let schema = json!({"type": "object", "properties": {
        "number": {"type": "integer"},
        "pattern": {"type": "string", "pattern": "^a$"},
        "enum": {"enum": ["a", "b"]},
        "const": {"const": "a"},
        "short": {"type": "string", "maxLength": 3},
        "nested": {"type": "object", "additionalProperties": false, "properties": {"list": {"type": "array", "items": {"type": "integer"}}}},
        "either": {"oneOf": [{"const": "a"}, {"type": "integer"}]},
        "unlike": {"not": {"type": "string"}},
    }});
    let files = [
        ("chart/Chart.yaml", json!({"apiVersion": "v2", "name": name, "version": "1.0.0"}).to_string()),
        ("chart/values.yaml", "mode: none\nsecret: none\n".to_owned()),
        ("chart/values.schema.json", schema.to_string()),
        ("chart/templates/content.yaml", TEMPLATE.to_owned()),
    ];
    world.push(&name, json!({"chart": "chart"}), &files).await?;
    let url = format!("oci://{}/charts/{name}", world.landscape.registry().address());
    let source = json!({"chart": {"url": url, "version": "1.0.0"}});
    let with = |field: &str, values: Value| json!({"source": source, field: values});

    let mut rows = Vec::new();
    let fields = ["number", "pattern", "enum", "const", "short", "either", "unlike"];
    for field in fields {
        rows.push(row(field, with("userValues", json!({field: secret(field)})), Reason::ValuesInvalid));
    }
    let nested = json!({"nested": {"list": [secret("nested")], "token": secret("nested")}});
    rows.push(row("nested", with("userValues", nested), Reason::ValuesInvalid));
    rows.push(row(
        "override",
        with("overrides", json!({"number": secret("override")})),
        Reason::ValuesInvalid,
    ));
    rows.push(row("module", with("values", json!({"number": secret("module")})), Reason::ValuesInvalid));
    for mode in ["fail", "fail-alone", "regex", "field", "include", "semver", "date", "index", "json"] {
        rows.push(row(
            mode,
            with("userValues", json!({"mode": mode, "secret": secret(mode)})),
            Reason::RenderFailed,
        ));
    }
    let broken = [
        ("tpl", "tpl", format!("{{{{ {} }}}}", secret("tpl"))),
        ("tpl-open", "tpl", format!("{{{{ \"{}", secret("tpl-open"))),
        ("yaml-colon", "yaml", format!("{}: [a", secret("yaml-colon"))),
        ("yaml-quote", "yaml", format!("\"{}", secret("yaml-quote"))),
        ("yaml-unknown", "yaml", "*planted-alias".to_owned()),
        ("yaml-int", "yaml", format!("!!int {}", secret("yaml-int"))),
    ];
    for (name, mode, text) in broken {
        rows.push(row(name, with("userValues", json!({"mode": mode, "secret": text})), Reason::RenderFailed));
    }
    let document = json!({"mode": "document", "secret": secret("document")});
    rows.push(row("document", with("userValues", document), Reason::RenderFailed));
    rows.push(overridden(&with("userValues", json!({"secret": secret("replaced")}))));
    Ok(rows)
}

/// Returns a row in which an override replaces a user's value, which is reported by its path.
fn overridden(spec: &Value) -> Row {
    let mut replaced = spec.clone();
    replaced["overrides"] = json!({"secret": secret("replacing"), "number": secret("replacing")});
    Row { name: "replaced", access: None, specs: vec![spec.clone(), replaced], reason: Reason::ValuesInvalid }
}

fn row(name: &'static str, spec: Value, reason: Reason) -> Row {
    Row { name, access: None, specs: vec![spec], reason }
}
