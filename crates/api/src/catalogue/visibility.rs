//! Decides which Kymas may select a module or version: beta, internal, restricted and mandatory, as in KLM.
//!
//! The same rule decides which modules may be installed and which a target's catalogue shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};

use crate::catalogue::module_template::ModuleTemplate;
use crate::metadata::labels;

/// A Kyma for which visibility is decided.
#[derive(Clone, Copy, Debug)]
pub struct Viewer<'a> {
    /// Labels of the Kyma on the hub.
    pub labels: &'a BTreeMap<String, String>,
    /// Modules that need a matching `kymaSelector` (flag `restricted-default-modules`).
    pub restricted: &'a BTreeSet<String>,
}

/// Visibility of a ModuleTemplate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// Whether only Kymas with the beta label may select the version.
    pub beta: bool,
    /// Whether only Kymas with the internal label may select the version.
    pub internal: bool,
    /// Whether every Kyma gets the version, so that none selects it.
    pub mandatory: bool,
}

/// Reason why a Kyma may not select a module or version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisibilityRefusal {
    /// The module or version is mandatory.
    Mandatory,
    /// The module needs a matching `kymaSelector`.
    Restricted,
    /// The module or version is for Kymas with the beta label.
    Beta,
    /// The module or version is for Kymas with the internal label.
    Internal,
}

impl fmt::Display for VisibilityRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mandatory => "mandatory",
            Self::Restricted => "restricted",
            Self::Beta => "beta",
            Self::Internal => "internal",
        })
    }
}

impl Audience {
    /// Reads the visibility of a template, including its deprecated field `mandatory`.
    pub fn of(template: &ModuleTemplate) -> Self {
        let held = template.metadata.labels.as_ref();
        let has = |label: &str| held.is_some_and(|held| is_true(held, label));
        Self {
            beta: has(labels::BETA),
            internal: has(labels::INTERNAL),
            mandatory: template.spec.mandatory == Some(true) || has(labels::MANDATORY_MODULE),
        }
    }
}

impl Viewer<'_> {
    /// Checks whether the Kyma may select a module, by its release meta.
    ///
    /// A restricted module needs a matching selector; an empty selector matches no Kyma, and a selector on a module
    /// that is not restricted admits no Kyma.
    pub fn module(
        &self,
        name: &str,
        is_mandatory: bool,
        selector: Option<&LabelSelector>,
    ) -> Result<(), VisibilityRefusal> {
        if is_mandatory {
            return Err(VisibilityRefusal::Mandatory);
        }
        let is_restricted = self.restricted.contains(name);
        let admits = match selector {
            None => !is_restricted,
            Some(selector) => is_restricted && self.matches(selector),
        };
        if admits { Ok(()) } else { Err(VisibilityRefusal::Restricted) }
    }

    /// Checks whether the Kyma may select a version, by its template.
    pub fn version(&self, audience: Audience) -> Result<(), VisibilityRefusal> {
        if audience.mandatory {
            return Err(VisibilityRefusal::Mandatory);
        }
        if audience.beta && !is_true(self.labels, labels::BETA) {
            return Err(VisibilityRefusal::Beta);
        }
        if audience.internal && !is_true(self.labels, labels::INTERNAL) {
            return Err(VisibilityRefusal::Internal);
        }
        Ok(())
    }

    fn matches(&self, selector: &LabelSelector) -> bool {
        let is_empty = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
        !is_empty && Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(self.labels))
    }
}

fn is_true(held: &BTreeMap<String, String>, label: &str) -> bool {
    held.get(label).is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn labelled(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn template(labels: &[(&str, &str)], more: &Value) -> ModuleTemplate {
        let mut spec = json!({"descriptor": {}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let object = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
            "metadata": {"name": "keda-1.0.0", "labels": labelled(labels)}, "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_template_has_its_audience_in_labels_or_the_old_field() {
        let of = |labels: &[(&str, &str)], spec| Audience::of(&template(labels, &spec));
        let none = Audience::default();
        assert_eq!(of(&[], json!({})), none);
        assert_eq!(of(&[(labels::BETA, "true")], json!({})), Audience { beta: true, ..none });
        assert_eq!(of(&[(labels::BETA, "false"), (labels::INTERNAL, "yes")], json!({})), none);
        assert_eq!(of(&[(labels::INTERNAL, "true")], json!({})), Audience { internal: true, ..none });
        let mandatory = Audience { mandatory: true, ..none };
        assert_eq!(of(&[(labels::MANDATORY_MODULE, "true")], json!({})), mandatory);
        assert_eq!(of(&[], json!({"mandatory": true})), mandatory);
        assert_eq!(of(&[], json!({"mandatory": false})), none);
    }

    #[test]
    fn beta_or_internal_version_needs_every_label_that_it_requires() {
        let (beta, internal) = ((labels::BETA, "true"), (labels::INTERNAL, "true"));
        let both = Audience { beta: true, internal: true, mandatory: false };
        let rows: [(&[_], _, _); 7] = [
            (&[], Audience::default(), Ok(())),
            (&[], Audience { internal: false, ..both }, Err(VisibilityRefusal::Beta)),
            (&[], Audience { beta: false, ..both }, Err(VisibilityRefusal::Internal)),
            (&[beta], both, Err(VisibilityRefusal::Internal)),
            (&[beta, internal], both, Ok(())),
            (&[(labels::BETA, "True")], Audience { internal: false, ..both }, Err(VisibilityRefusal::Beta)),
            (&[beta, internal], Audience { mandatory: true, ..both }, Err(VisibilityRefusal::Mandatory)),
        ];
        let restricted = BTreeSet::new();
        for (kyma, audience, expected) in rows {
            let viewer = Viewer { labels: &labelled(kyma), restricted: &restricted };
            assert_eq!(viewer.version(audience), expected, "{kyma:?} {audience:?}");
        }
    }

    #[test]
    fn a_restricted_module_needs_a_selector_that_matches() {
        let gold = json!({"matchLabels": {"plan": "gold"}});
        let one_of = json!({"matchExpressions": [{"key": "plan", "operator": "In", "values": ["gold"]}]});
        let broken = json!({"matchExpressions": [{"key": "plan", "operator": "Near", "values": ["gold"]}]});
        let denied = Err(VisibilityRefusal::Restricted);
        let rows = [
            ("neither listed nor selecting", "free", Value::Null, Ok(())),
            ("selecting, not listed", "free", gold.clone(), denied),
            ("listed, without selector", "keda", Value::Null, denied),
            ("listed, empty selector", "keda", json!({}), denied),
            ("listed, empty matchLabels", "keda", json!({"matchLabels": {}}), denied),
            ("listed, matching", "keda", gold, Ok(())),
            ("listed, matching by expression", "keda", one_of, Ok(())),
            ("listed, of others", "keda", json!({"matchLabels": {"plan": "free"}}), denied),
            ("listed, not a selector", "keda", broken, denied),
        ];
        let (held, restricted) = (labelled(&[("plan", "gold")]), BTreeSet::from(["keda".to_owned()]));
        let viewer = Viewer { labels: &held, restricted: &restricted };
        for (name, module, selector, expected) in rows {
            let selector: Option<LabelSelector> = serde_json::from_value(selector).unwrap();
            assert_eq!(viewer.module(module, false, selector.as_ref()), expected, "{name}");
            let mandatory = viewer.module(module, true, selector.as_ref());
            assert_eq!(mandatory, Err(VisibilityRefusal::Mandatory), "{name}");
        }
    }
}
