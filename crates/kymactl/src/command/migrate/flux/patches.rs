//! Converts Kustomize patches and selectors. Pure.

use kyma_api::{DriftIgnore, ObjectSelector, Patch};
use serde_json::{Map, Value};

use super::facts::{list, text};
use super::finding::{Finding, Severity};

/// Label or annotation that excludes an object from Flux's drift correction.
pub(super) const DRIFT_MARK: &str = "helm.toolkit.fluxcd.io/driftDetection";
/// Maximum size of a component's patch, in bytes.
const MAX_PATCH_BYTES: usize = 65_536;

/// Returns the patches of all post-renderers in Kustomize's order.
pub(super) fn patches(spec: &Value, findings: &mut Vec<Finding>) -> Vec<Patch> {
    let mut patches = Vec::new();
    for (number, renderer) in list(spec, "/postRenderers").enumerate() {
        let place = format!("spec.postRenderers[{number}].kustomize");
        let all = |field: &str| list(renderer, &format!("/kustomize/{field}")).enumerate();
        for (number, patch) in all("patchesStrategicMerge") {
            let place = format!("{place}.patchesStrategicMerge[{number}]");
            patches.extend(made(None, patch, &place, findings));
            findings.extend(exempts(patch).then(|| exempted(place, spec)));
        }
        for (field, names) in [("patches", false), ("patchesJson6902", true)] {
            for (number, one) in all(field) {
                let place = format!("{place}.{field}[{number}]");
                unknown(one, &["patch", "target"], &place, findings);
                findings.extend(exempts(&one["patch"]).then(|| exempted(place.clone(), spec)));
                let target = one.get("target").map(|target| selector(target, names, &place));
                match target.transpose() {
                    Ok(target) => patches.extend(made(target, &one["patch"], &place, findings)),
                    Err(finding) => findings.push(finding),
                }
            }
        }
    }
    patches
}

/// Reports whether a patch sets this label or annotation, in a map or in a path.
fn exempts(patch: &Value) -> bool {
    let text = patch.as_str().map_or_else(|| patch.to_string(), str::to_owned);
    text.contains(DRIFT_MARK) || text.contains(&DRIFT_MARK.replace('/', "~1"))
}

/// Returns a finding for a field that sets `DRIFT_MARK`: a component would also correct the drift of these objects.
pub(super) fn exempted(place: String, spec: &Value) -> Finding {
    let corrects = text(spec, "/driftDetection/mode") == Some("enabled");
    let severity = if corrects { Severity::Suspended } else { Severity::NotConverted };
    let says = format!(
        "{DRIFT_MARK} excludes no object here: name the fields that others may change in `drift.ignore`"
    );
    Finding::new(place, severity, says)
}

fn made(
    target: Option<ObjectSelector>,
    patch: &Value,
    place: &str,
    findings: &mut Vec<Finding>,
) -> Option<Patch> {
    let text = match patch {
        Value::String(text) => Some(text.clone()),
        other => serde_saphyr::to_string(other).ok(),
    };
    let fits = |text: &String| !text.is_empty() && text.len() <= MAX_PATCH_BYTES;
    let Some(patch) = text.filter(fits) else {
        let says = format!("a patch has 1 to {MAX_PATCH_BYTES} bytes: split it");
        findings.push(Finding::new(place, Severity::Suspended, says));
        return None;
    };
    Some(Patch { target, patch })
}

/// Converts `driftDetection.ignore`.
pub(super) fn ignored(spec: &Value, findings: &mut Vec<Finding>) -> Vec<DriftIgnore> {
    let mut rules = Vec::new();
    for (number, rule) in list(spec, "/driftDetection/ignore").enumerate() {
        let place = format!("spec.driftDetection.ignore[{number}]");
        unknown(rule, &["paths", "target"], &place, findings);
        let paths: Vec<String> =
            list(rule, "/paths").filter_map(|path| path.as_str().map(str::to_owned)).collect();
        match rule.get("target").map(|target| selector(target, false, &place)).transpose() {
            Ok(target) if !paths.is_empty() => rules.push(DriftIgnore { target, paths }),
            Ok(_) => {}
            Err(finding) => findings.push(finding),
        }
    }
    rules
}

/// Converts a Kustomize selector. Its fields are regular expressions for the whole text, unless `exact`.
fn selector(target: &Value, exact: bool, place: &str) -> Result<ObjectSelector, Finding> {
    let place = format!("{place}.target");
    let mut findings = Vec::new();
    unknown(target, &["group", "version", "kind", "name", "namespace"], &place, &mut findings);
    if let Some(finding) = findings.pop() {
        return Err(Finding::new(
            finding.path,
            Severity::Suspended,
            "objects are selected only by kind and name",
        ));
    }
    let field = |name: &str| match target[name].as_str() {
        None | Some("") => Ok(None),
        Some(text) if exact => Ok(Some(text.to_owned())),
        Some(text) => literal(text).map_err(|()| {
            let says = format!(
                "`{text}` is a regular expression: write a patch or rule for each object that it means"
            );
            Finding::new(format!("{place}.{name}"), Severity::Suspended, says)
        }),
    };
    Ok(ObjectSelector {
        group: field("group")?,
        version: field("version")?,
        kind: field("kind")?,
        namespace: field("namespace")?,
        name: field("name")?,
    })
}

/// Returns the text of an anchored regular expression that matches one text, or `None` if it matches all.
///
/// # Errors
/// If it matches several texts.
fn literal(expression: &str) -> Result<Option<String>, ()> {
    let text = expression.strip_prefix('^').unwrap_or(expression);
    let text = text.strip_suffix('$').unwrap_or(text);
    if text == ".*" {
        return Ok(None);
    }
    let text = text.replace("\\.", ".");
    // A dot matches any character, but in a name it is meant literally.
    if text.contains(['*', '+', '?', '|', '(', ')', '[', ']', '{', '}', '^', '$', '\\']) {
        return Err(());
    }
    Ok(Some(text))
}

/// Adds findings for unknown fields.
pub(super) fn unknown(value: &Value, known: &[&str], place: &str, findings: &mut Vec<Finding>) {
    let none = Map::new();
    let fields = value.as_object().unwrap_or(&none).keys().filter(|key| !known.contains(&key.as_str()));
    findings.extend(fields.map(|key| {
        Finding::new(format!("{place}.{key}"), Severity::Suspended, "is unknown: check its effect")
    }));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn regular_expression_name_is_converted_if_it_means_one_name() {
        assert_eq!(literal("web"), Ok(Some("web".to_owned())));
        assert_eq!(literal("^a\\.b$"), Ok(Some("a.b".to_owned())));
        assert_eq!(literal(".*"), Ok(None));
        assert_eq!(literal("web-.*"), Err(()));
        assert_eq!(literal("a|b"), Err(()));
    }

    #[test]
    fn patches_come_in_the_order_in_which_kustomize_applies_them() {
        let spec = json!({"postRenderers": [{"kustomize": {
            "patches": [{"patch": "second", "target": {"kind": "Deployment"}}],
            "patchesJson6902": [{"patch": [{"op": "remove", "path": "/a"}], "target": {"name": "web-.*"}}],
            "patchesStrategicMerge": [{"kind": "Deployment"}],
        }}]});
        let mut findings = vec![];
        let found: Vec<String> = patches(&spec, &mut findings).into_iter().map(|one| one.patch).collect();
        assert_eq!(found, ["kind: Deployment\n", "second", "- op: remove\n  path: /a\n"]);
        assert_eq!(findings, []);
    }

    #[test]
    fn objects_without_drift_correction_in_flux_are_reported() {
        let exempts = json!({"helm.toolkit.fluxcd.io/driftDetection": "disabled"});
        let operation =
            r"[{op: add, path: /metadata/labels/helm.toolkit.fluxcd.io~1driftDetection, value: disabled}]";
        let mut spec = json!({"driftDetection": {"mode": "enabled"}, "postRenderers": [{"kustomize": {
            "patchesStrategicMerge": [{"kind": "A", "metadata": {"name": "a", "annotations": exempts}}],
            "patches": [{"patch": operation, "target": {"kind": "A"}}, {"patch": "b"}],
        }}]});
        let found = |spec: &Value| {
            let mut findings = vec![];
            assert_eq!(patches(spec, &mut findings).len(), 3);
            findings.into_iter().map(|one| (one.path, one.severity)).collect::<Vec<_>>()
        };
        let places = ["patchesStrategicMerge[0]", "patches[0]"]
            .map(|place| format!("spec.postRenderers[0].kustomize.{place}"));
        assert_eq!(found(&spec), places.clone().map(|place| (place, Severity::Suspended)));
        spec["driftDetection"]["mode"] = json!("warn");
        assert_eq!(found(&spec), places.map(|place| (place, Severity::NotConverted)));
    }

    #[test]
    fn a_patch_with_an_unconvertible_selector_is_reported() {
        let spec = json!({"postRenderers": [{"kustomize": {"patches": [
            {"patch": "a", "target": {"kind": "Deployment", "labelSelector": "a=b"}},
            {"patch": "b", "target": {"name": "web-.*"}, "options": {"allowNameChange": true}},
        ]}}]});
        let mut findings = vec![];
        assert_eq!(patches(&spec, &mut findings), []);
        let paths: Vec<&str> = findings.iter().map(|one| one.path.as_str()).collect();
        let place = "spec.postRenderers[0].kustomize.patches";
        let expected = [
            format!("{place}[0].target.labelSelector"),
            format!("{place}[1].options"),
            format!("{place}[1].target.name"),
        ];
        assert_eq!(paths, expected);
        assert!(findings.iter().all(|one| one.severity == Severity::Suspended));
    }
}
