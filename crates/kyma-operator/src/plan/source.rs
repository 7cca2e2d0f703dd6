//! Merges a HelmComponent's `source` from the module's default, the module and ModuleConfigs. Pure.

use kyma_api::values;
use serde_json::{Map, Value};

use crate::decision::resolve::ModuleProblem;

/// Fields of which a source has exactly one.
const CONTENT_FIELDS: [&str; 3] = ["ocm", "chart", "manifests"];

/// Merges fields over a component's spec. Content of another kind replaces the content, since a source has exactly
/// one; required signatures replace the author's, since any one of several signers is enough.
pub(crate) fn lay_over_component(below: &mut Map<String, Value>, above: &Map<String, Value>) {
    if let (Some(Value::Object(below)), Some(Value::Object(above))) =
        (below.get_mut("source"), above.get("source"))
    {
        if let Some(kind) = content(above) {
            below.retain(|field, _| field == kind || !CONTENT_FIELDS.contains(&field.as_str()));
        }
        if above.get("verify").is_some_and(|verify| !verify.is_null()) {
            below.remove("verify");
        }
    }
    values::lay_over(below, above);
}

/// Merges the source in the spec over the default. Content of another kind, or a chart with its own address, replaces
/// the default's content.
///
/// # Errors
/// If the spec names no content and there is no default.
pub(super) fn complete(
    spec: &mut Map<String, Value>,
    default: impl FnOnce() -> Result<Value, ModuleProblem>,
) -> Result<(), ModuleProblem> {
    let given = match spec.remove("source") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(given)) => given,
        // The hub's schema refuses it.
        Some(other) => {
            spec.insert("source".to_owned(), other);
            return Ok(());
        }
    };
    let mut source = match (content(&given), default()) {
        (None, default) => default?,
        (Some(kind), Ok(default)) if default.get(kind).is_some() && given[kind].get("url").is_none() => {
            default
        }
        (Some(_), _) => Value::Object(Map::new()),
    };
    if let Value::Object(source) = &mut source {
        values::lay_over(source, &given);
    }
    spec.insert("source".to_owned(), source);
    Ok(())
}

fn content(source: &Map<String, Value>) -> Option<&'static str> {
    CONTENT_FIELDS.into_iter().find(|kind| source.get(*kind).is_some_and(|value| !value.is_null()))
}

#[cfg(test)]
mod tests {
    use kyma_api::Reason;
    use serde_json::json;

    use super::*;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    fn completed(given: &Value, default: &Value) -> Value {
        let mut spec = map(&json!({ "source": given }));
        complete(&mut spec, || Ok(default.clone())).unwrap();
        spec.remove("source").unwrap()
    }

    #[test]
    fn given_fields_are_laid_over_the_default_source() {
        let ocm = json!({"ocm": {"component": "example.org/keda", "version": "1.0.0"}});
        let chart = json!({"chart": {"url": "oci://r.example/keda", "version": "1.0.0"}});
        let pull = json!({"name": "pull"});
        let rows = [
            (json!(null), &ocm, ocm.clone()),
            (json!({"pullSecretRef": pull}), &ocm, json!({"ocm": ocm["ocm"], "pullSecretRef": pull})),
            (
                json!({"verify": {"keysSecretRef": {"name": "k", "key": "p"}}}),
                &chart,
                json!({"chart": chart["chart"], "verify": {"keysSecretRef": {"name": "k", "key": "p"}}}),
            ),
            (
                json!({"ocm": {"repository": "r.example/modules"}}),
                &ocm,
                json!({"ocm": {"component": "example.org/keda", "version": "1.0.0", "repository": "r.example/modules"}}),
            ),
            (
                json!({"chart": {"digest": "d"}}),
                &chart,
                json!({"chart": {"url": "oci://r.example/keda", "version": "1.0.0", "digest": "d"}}),
            ),
            (
                json!({"chart": {"url": "https://other.example", "name": "n", "version": "2.0.0"}}),
                &chart,
                json!({"chart": {"url": "https://other.example", "name": "n", "version": "2.0.0"}}),
            ),
            (
                json!({"manifests": {"url": "https://a.example/a.yaml"}}),
                &ocm,
                json!({"manifests": {"url": "https://a.example/a.yaml"}}),
            ),
        ];
        for (given, default, expected) in rows {
            assert_eq!(completed(&given, default), expected, "{given}");
        }
    }

    #[test]
    fn only_content_of_its_own_makes_up_for_a_missing_default() {
        let none = || Err(ModuleProblem::error(Reason::SourceMissing, "none"));
        let mut spec = map(&json!({"source": {"pullSecretRef": {"name": "pull"}}}));
        assert_eq!(complete(&mut spec, none).unwrap_err().reason, Reason::SourceMissing);
        let mut spec = map(&json!({"source": {"manifests": {"url": "https://a.example/a.yaml"}}}));
        complete(&mut spec, none).unwrap();
        assert_eq!(spec["source"], json!({"manifests": {"url": "https://a.example/a.yaml"}}));
    }

    #[test]
    fn required_signatures_replace_those_of_the_author() {
        let author = json!({"source": {"chart": {"url": "u"}, "verify": {"identities": [{"issuer": "i", "subject": "s"}]}}});
        let fleet = json!({"source": {"verify": {"keysSecretRef": {"name": "k", "key": "p"}}}});
        let mut spec = map(&author);
        lay_over_component(&mut spec, &map(&fleet));
        assert_eq!(spec["source"]["verify"], fleet["source"]["verify"]);
        assert_eq!(spec["source"]["chart"], json!({"url": "u"}));
    }

    #[test]
    fn content_of_another_kind_replaces_the_content_below() {
        let mut spec = map(&json!({"source": {"ocm": {"repository": "r"}, "pullSecretRef": {"name": "p"}}}));
        lay_over_component(&mut spec, &map(&json!({"source": {"chart": {"url": "u"}}})));
        assert_eq!(spec["source"], json!({"chart": {"url": "u"}, "pullSecretRef": {"name": "p"}}));
    }
}
