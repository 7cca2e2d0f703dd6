//! How things stand with one object: what people ask an operator that does nothing about it.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use kyma_targets::Target;
use serde::{Deserialize, Serialize};

/// How things stand with one object at one operator. Times are seconds before now, or from now on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// The operator.
    pub operator: String,
    /// Kind of the object.
    pub kind: String,
    /// For how long an event has been asking for a pass that did not begin yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<f64>,
    /// For how long a pass has been under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working: Option<f64>,
    /// When the next pass begins if no event comes before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<f64>,
    /// Passes that failed in a row.
    #[serde(default)]
    pub failures: u32,
    /// Reason and message of the last one, while there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Its target, once that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetDiagnosis>,
}

/// How things stand with a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetDiagnosis {
    /// The access Secret; absent for the hub itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// When the target last answered. Absent: not since the Secret was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<f64>,
    /// Calls are refused until it is probed then; absent: they pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for: Option<f64>,
    /// Why they are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

impl TargetDiagnosis {
    /// Of this target, as it is now.
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

type Asked = Box<dyn Fn(&str, &str) -> Option<Diagnosis> + Send + Sync>;

/// All who can be asked in this process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Diagnoses(Arc<RwLock<Vec<Asked>>>);

impl Diagnoses {
    /// One more who knows about objects by namespace and name.
    pub(crate) fn add(&self, asked: impl Fn(&str, &str) -> Option<Diagnosis> + Send + Sync + 'static) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(asked));
    }

    /// What is known of the objects of this namespace and name, of whatever kind.
    pub fn of(&self, namespace: &str, name: &str) -> Vec<Diagnosis> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(|asked| asked(namespace, name)).collect()
    }
}

impl fmt::Debug for Diagnoses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diagnoses").finish_non_exhaustive()
    }
}
