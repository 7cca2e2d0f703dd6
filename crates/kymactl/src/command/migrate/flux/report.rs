//! Formats the results for one release. Pure.

use std::fmt::Write as _;

use kube::ResourceExt as _;
use kyma_api::HelmComponent;
use serde_json::Value;

use super::convert::Conversion;
use super::finding::Severity;

/// Returns a heading and a line for each finding; unneeded fields share one line.
pub(super) fn text(converted: &Conversion) -> String {
    let mut text = match &converted.component {
        Some(component) => {
            let namespace = component.namespace().unwrap_or_default();
            let suspended = if component.spec.suspend == Some(true) { ", suspended" } else { "" };
            format!("{}: HelmComponent {namespace}/{}{suspended}", converted.release, component.name_any())
        }
        None => format!("{}: no HelmComponent", converted.release),
    };
    let (idle, telling): (Vec<_>, Vec<_>) =
        converted.findings.iter().partition(|finding| finding.severity == Severity::NotNeeded);
    for finding in telling {
        let _ = write!(text, "\n  {}: {}: {}", finding.severity.word(), finding.path, finding.says);
    }
    if !idle.is_empty() {
        let paths: Vec<&str> = idle.iter().map(|finding| finding.path.as_str()).collect();
        let _ = write!(text, "\n  {}: {}", Severity::NotNeeded.word(), paths.join(", "));
    }
    text
}

/// Returns the component as a YAML document, as a user would write it.
pub(super) fn yaml(component: &HelmComponent) -> std::io::Result<String> {
    let mut object = serde_json::to_value(component).map_err(std::io::Error::other)?;
    if let Value::Object(map) = &mut object {
        map.remove("status");
        if let Some(Value::Object(spec)) = map.get_mut("spec") {
            spec.remove("resourcePolicy");
        }
    }
    let text = serde_saphyr::to_string(&object).map_err(std::io::Error::other)?;
    Ok(format!("---\n{text}"))
}
