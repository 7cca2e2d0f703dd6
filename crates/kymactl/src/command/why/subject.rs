//! A Kyma or component and the reason of its state. Pure.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kyma_api::{State, condition::types, labels};
use kyma_controller::{Diagnosis, TargetDiagnosis};
use serde::{Deserialize, Serialize};

use crate::{error::Error, output};

/// The object.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Subject {
    pub(super) kind: String,
    pub(super) name: String,
    /// Its state; empty if no operator has reported on it.
    state: State,
    /// Last transition of its Ready condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// Conditions that are not True: type, reason and message.
    waits_for: Vec<String>,
    /// Its shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<String>,
    /// Diagnoses of the operators.
    pub(super) diagnoses: Vec<Diagnosis>,
}

/// Status fields that all kinds share.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    state: State,
    conditions: Vec<Condition>,
}

impl Subject {
    /// Returns `<kind>/<name>`, as kubectl accepts it.
    pub(super) fn qualified_name(&self) -> String {
        output::qualified(&self.kind, "", &self.name)
    }

    /// Creates the subject from the object's own status. A component of another kind may have an unreadable one.
    pub(super) fn of(kind: &str, object: &(impl ResourceExt + Serialize)) -> Result<Self, Error> {
        let name = object.name_any();
        let whole = serde_json::to_value(object).map_err(std::io::Error::other)?;
        let (Status { state, conditions }, unreadable) =
            match serde_json::from_value::<Option<Status>>(whole["status"].clone()) {
                Ok(status) => (status.unwrap_or_default(), None),
                Err(error) => (
                    Status::default(),
                    Some(output::one_line(&format!("its status cannot be read: {error}"))),
                ),
            };
        let open = conditions.iter().filter(|condition| condition.status != "True").map(condition_line);
        let ready = conditions.iter().find(|condition| condition.type_ == types::READY);
        Ok(Self {
            kind: kind.to_owned(),
            name,
            state,
            since: ready.map(|ready| ready.last_transition_time.0.to_string()),
            waits_for: unreadable.into_iter().chain(open).collect(),
            shard: object.labels().get(labels::SHARD).cloned(),
            diagnoses: Vec::new(),
        })
    }
}

fn condition_line(condition: &Condition) -> String {
    let Condition { type_, reason, message, .. } = condition;
    let colon = if message.is_empty() { "" } else { ": " };
    output::one_line(&format!("{type_}: {reason}{colon}{message}"))
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Unset if self.waits_for.is_empty() => "no operator has reconciled it".to_owned(),
            State::Unset => "no state".to_owned(),
            state => state.to_string(),
        };
        write!(f, "{} {}: {state}", self.kind, self.name)?;
        if let Some(since) = &self.since {
            write!(f, " since {since}")?;
        }
        writeln!(f)?;
        if let Some(shard) = &self.shard {
            writeln!(f, "  shard {shard}")?;
        }
        for condition in &self.waits_for {
            writeln!(f, "  {condition}")?;
        }
        for diagnosis in &self.diagnoses {
            writeln!(f, "  {}: {}", diagnosis.operator, place(diagnosis))?;
            if let Some(target) = &diagnosis.target {
                writeln!(f, "    {}", contact(target))?;
            }
        }
        Ok(())
    }
}

/// Returns the state of the object in an operator's queue, with its failures.
fn place(diagnosis: &Diagnosis) -> String {
    let mut said = Vec::new();
    said.extend(diagnosis.queued.map(|time| format!("in the queue for {}", rough(time))));
    said.extend(diagnosis.working.map(|time| format!("being reconciled for {}", rough(time))));
    said.extend(
        diagnosis.next.map(|time| format!("next reconcile in {} unless an event occurs before", rough(time))),
    );
    if let Some(failure) = &diagnosis.failure {
        said.push(output::one_line(&format!("failed {} times in a row: {failure}", diagnosis.failures)));
    }
    if said.is_empty() { "no reconcile is due".to_owned() } else { said.join("; ") }
}

fn contact(target: &TargetDiagnosis) -> String {
    let cluster = target
        .secret
        .as_ref()
        .map_or_else(|| "the hub".to_owned(), |secret| format!("cluster of Secret {secret}"));
    let answered = target.answered.map_or_else(
        || "has not answered since the Secret was read".to_owned(),
        |time| format!("last answered {} ago", rough(time)),
    );
    let held = target.held_for.map(|time| {
        let cause = target.cause.as_deref().unwrap_or("it does not answer");
        output::one_line(&format!("; no requests until the next probe in {}: {cause}", rough(time)))
    });
    format!("{cluster} {answered}{}", held.unwrap_or_default())
}

/// Formats a duration in a suitable unit.
fn rough(seconds: f64) -> String {
    let units = [(86_400.0, "d"), (3600.0, "h"), (60.0, "min")];
    let fitting = units.iter().find(|(length, _)| seconds >= 2.0 * length);
    fitting.map_or_else(
        || format!("{:.1} s", seconds.max(0.0)),
        |(length, unit)| format!("{:.0} {unit}", seconds / length),
    )
}

#[cfg(test)]
mod tests {
    use kyma_api::Kyma;
    use serde_json::json;

    use super::*;

    fn kyma() -> Kyma {
        let transition = "2026-06-01T00:00:00Z";
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "sample", "labels": {labels::SHARD: "7"}},
            "spec": {"channel": "regular"},
            "status": {"state": "Warning", "conditions": [
                {"type": "Ready", "status": "False", "reason": "TargetTimeout", "message": "no\nanswer",
                    "lastTransitionTime": transition},
                {"type": "ModuleCatalog", "status": "True", "reason": "CatalogSynced", "message": "",
                    "lastTransitionTime": transition},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn unmet_conditions_are_shown_with_the_diagnoses() {
        let mut subject = Subject::of("Kyma", &kyma()).unwrap();
        let target = TargetDiagnosis {
            secret: Some("access".into()),
            answered: Some(300.0),
            held_for: Some(12.0),
            cause: Some("no answer within 15 s".into()),
        };
        subject.diagnoses = vec![
            Diagnosis {
                operator: "kyma-operator".into(),
                next: Some(90.0),
                failures: 3,
                failure: Some("TargetTimeout: no answer".into()),
                target: Some(target),
                ..Diagnosis::default()
            },
            Diagnosis { operator: "release-meta-syncer".into(), queued: Some(0.25), ..Diagnosis::default() },
        ];
        let expected = "\
Kyma sample: Warning since 2026-06-01T00:00:00Z
  shard 7
  Ready: TargetTimeout: no answer
  kyma-operator: next reconcile in 90.0 s unless an event occurs before; failed 3 times in a row: TargetTimeout: no answer
    cluster of Secret access last answered 5 min ago; no requests until the next probe in 12.0 s: no answer within 15 s
  release-meta-syncer: in the queue for 0.2 s
";
        assert_eq!(subject.to_string(), expected);
    }

    #[test]
    fn an_unreadable_status_is_reported_beside_the_other_objects() {
        let lantern: kube::api::DynamicObject = serde_json::from_value(json!({
            "apiVersion": "lamps.example.com/v1", "kind": "Lantern", "metadata": {"name": "sample"},
            "status": {"state": "Lit", "conditions": []},
        }))
        .unwrap();
        let text = Subject::of("Lantern", &lantern).unwrap().to_string();
        let expected = "Lantern sample: no state\n  its status cannot be read: ";
        assert!(text.starts_with(expected) && text.contains("Lit"), "{text}");
    }

    #[test]
    fn object_without_a_status_is_reported_as_not_reconciled() {
        let bare: Kyma = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "sample"}, "spec": {"channel": "regular"},
        }))
        .unwrap();
        assert_eq!(
            Subject::of("Kyma", &bare).unwrap().to_string(),
            "Kyma sample: no operator has reconciled it\n"
        );
    }
}
