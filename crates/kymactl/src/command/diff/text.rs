//! Formats changes as text and unified diffs. Pure.

use std::fmt;

use helm_component::{DryRunResult, EventHooks};
use kyma_object_set::{Identity, NoDryRunReason, ObjectDiff, content};
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use crate::{error::Error, output};

/// Placeholder for the data of Secrets.
const HIDDEN: &str = "(hidden)";
const HIDDEN_CHANGED: &str = "(hidden, changed)";
/// Annotation in which kubectl stores what it applied, including data of Secrets.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// One change of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Change {
    action: Action,
    /// `Kind.group namespace/name`.
    object: String,
    /// Additional information.
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
    /// Unified diff of the live and the desired object.
    #[serde(skip_serializing_if = "String::is_empty")]
    diff: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Action {
    Create,
    Change,
    Undiffable,
    Delete,
    Leave,
    RunHook,
}

impl Action {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Undiffable => "undiffable",
            Self::Delete => "delete",
            Self::Leave => "leave",
            Self::RunHook => "run hook",
        }
    }
}

impl Change {
    /// Returns `<kind>.<group>/<name>` of the object.
    pub(super) fn name(&self) -> String {
        let (kind, place) = self.object.split_once(' ').unwrap_or(("", &self.object));
        let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
        let name = place.rsplit('/').next().unwrap_or(place);
        output::qualified(kind, group, name)
    }

    fn of(action: Action, object: &impl fmt::Display, note: impl Into<String>) -> Self {
        let object = output::one_line(&object.to_string());
        Self { action, object, note: note.into(), diff: String::new() }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.as_str(), self.object)?;
        if !self.note.is_empty() {
            write!(f, ": {}", self.note)?;
        }
        writeln!(f)?;
        f.write_str(&self.diff)
    }
}

/// Returns all changes in the order in which they would be made.
pub(super) fn changes(result: &DryRunResult) -> Result<Vec<Change>, Error> {
    let namespace = result.namespace.iter();
    let mut all: Vec<Change> =
        namespace.map(|name| Change::of(Action::Create, &format!("Namespace {name}"), "")).collect();
    let comes_before = |run: &&EventHooks| run.event.starts_with("pre-");
    all.extend(result.hooks.iter().filter(comes_before).flat_map(runs));
    for (identity, object) in result.objects.iter().filter(|(_, object)| object.changes()) {
        all.push(change(identity, object)?);
    }
    all.extend(result.deleted.iter().map(|identity| Change::of(Action::Delete, identity, "")));
    let left = result.given_up.iter();
    all.extend(left.map(|(identity, why)| Change::of(Action::Leave, identity, why.to_string())));
    all.extend(result.hooks.iter().filter(|run| !comes_before(run)).flat_map(runs));
    if let Some((identity, body)) = &result.default_resource {
        let diff = unified(identity, None, &Value::Object(body.clone()))?;
        let note = "the default custom resource; later edits of it stay";
        all.push(Change { diff, ..Change::of(Action::Create, identity, note) });
    }
    Ok(all)
}

fn runs(run: &EventHooks) -> impl Iterator<Item = Change> {
    run.hooks.iter().map(|hook| Change::of(Action::RunHook, hook, run.event.clone()))
}

fn change(identity: &Identity, object: &ObjectDiff) -> Result<Change, Error> {
    let no_dry_run = object.no_dry_run.as_ref();
    if let Some(why @ NoDryRunReason::Webhook(_)) = no_dry_run {
        return Ok(Change::of(Action::Undiffable, identity, why.to_string()));
    }
    let takes_over = "fields that kubectl or Helm set and the content lacks are also removed, which a dry run does not show";
    let notes = [
        no_dry_run.map(|why| format!("no dry run, because {why}")),
        object.takes_over.then(|| takes_over.to_owned()),
    ];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    let action = if object.before.is_none() { Action::Create } else { Action::Change };
    let (before, after) = masked(identity, object.before.as_ref().map(content), content(&object.after));
    let diff = unified(identity, before.as_ref(), &after)?;
    Ok(Change { diff, ..Change::of(action, identity, notes.join("; ")) })
}

fn unified(identity: &Identity, before: Option<&Value>, after: &Value) -> Result<String, Error> {
    let yaml = |object: &Value| {
        serde_saphyr::to_string(object).map_err(|error| Error::input(identity.to_string(), error.to_string()))
    };
    let before = before.map(yaml).transpose()?.unwrap_or_default();
    let after = yaml(after)?;
    let names = [format!("live/{identity}"), format!("applied/{identity}")];
    let diff = TextDiff::from_lines(&before, &after);
    Ok(diff.unified_diff().header(&names[0], &names[1]).to_string())
}

/// Masks the data of Secrets in both states: keys stay visible, and which of them change.
fn masked(identity: &Identity, before: Option<Value>, after: Value) -> (Option<Value>, Value) {
    if !identity.is("", "Secret") {
        return (before, after);
    }
    let was = before.clone().map(|shown| hidden(shown, |_, _| HIDDEN));
    let old = |field: &str, key: &str| before.as_ref()?.get(field)?.get(key);
    let will = hidden(after.clone(), |field, key| match old(field, key) {
        Some(old) if after[field].get(key) != Some(old) => HIDDEN_CHANGED,
        _ => HIDDEN,
    });
    (was, will)
}

/// Replaces each value of a Secret by a mark, and removes the annotation in which kubectl stores the values.
fn hidden(mut secret: Value, mark: impl Fn(&str, &str) -> &'static str) -> Value {
    for field in ["data", "stringData"] {
        let values = secret.get_mut(field).and_then(Value::as_object_mut);
        for (key, value) in values.into_iter().flatten() {
            *value = mark(field, key).into();
        }
    }
    let annotations = secret.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.remove(LAST_APPLIED);
    }
    secret
}

#[cfg(test)]
mod tests;
