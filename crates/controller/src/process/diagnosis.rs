//! Diagnosis of one object, for users who want to know why an operator does nothing about it.

use std::{fmt, sync::Arc, time::Duration};

use kyma_targets::Target;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

/// State of one object at one operator. Times are seconds relative to now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// The operator.
    pub operator: String,
    /// Kind of the object.
    pub kind: String,
    /// Seconds since an event requested a reconcile that did not begin yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<f64>,
    /// Seconds since the running reconcile began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working: Option<f64>,
    /// Seconds until the next reconcile, if no event comes before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<f64>,
    /// Failed reconciles in a row.
    #[serde(default)]
    pub failures: u32,
    /// Reason and message of the last failed reconcile, while there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Target of the object, once resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetDiagnosis>,
}

/// State of the connection to a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetDiagnosis {
    /// The access Secret; absent for the hub itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Seconds since the target last answered. Absent: not since the Secret was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<f64>,
    /// Seconds until the next probe, while the breaker refuses calls; absent: calls pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for: Option<f64>,
    /// Cause of the refusal of calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

impl TargetDiagnosis {
    /// Returns the diagnosis of this target at this moment.
    pub(crate) fn of(target: &Target) -> Self {
        let contact = target.contact();
        let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
        Self {
            secret: target.key().map(|key| key.name.clone()),
            answered: seconds(contact.answered),
            held_for: seconds(contact.held_for),
            cause: contact.cause,
        }
    }
}

/// Returns the diagnosis of the object with this namespace and name, if there is one.
type DiagnosisSource = Box<dyn Fn(&str, &str) -> Option<Diagnosis> + Send + Sync>;

/// Sources of diagnoses in this process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Diagnoses(Arc<RwLock<Vec<DiagnosisSource>>>);

impl Diagnoses {
    /// Adds a source that finds objects by namespace and name.
    pub(crate) fn add(&self, source: impl Fn(&str, &str) -> Option<Diagnosis> + Send + Sync + 'static) {
        self.0.write().push(Box::new(source));
    }

    /// Returns the diagnoses of all objects of this namespace and name, of any kind.
    pub fn of(&self, namespace: &str, name: &str) -> Vec<Diagnosis> {
        let all = self.0.read();
        all.iter().filter_map(|source| source(namespace, name)).collect()
    }
}

impl fmt::Debug for Diagnoses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diagnoses").finish_non_exhaustive()
    }
}
