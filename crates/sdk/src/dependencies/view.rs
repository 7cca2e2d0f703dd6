//! Reduced form of a component: its readiness for dependents, and its own dependencies. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::{Resource, ResourceExt, api::ObjectMeta};
use kyma_api::{HelmComponent, condition, labels, names};
use kyma_controller::{Expression, ExpressionResult, is_object_name};
use serde_json::Value;

use crate::contract::Contract;

/// A kind of component, in any version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) kind: String,
}

/// A component in the hub namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

/// A component or module that an entry of `dependsOn` names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DependencyTarget {
    /// A component by name.
    Component(Node),
    /// A module of a Kyma, by the values of the labels that components carry.
    Module { kyma: String, module: String },
    /// A module, named by a component that belongs to no Kyma.
    ModuleWithoutKyma(String),
}

/// One entry of `dependsOn` that names a component or module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub(crate) on: DependencyTarget,
    /// Name for messages: the component's kind and name, or the module's name.
    pub(crate) name: String,
    /// API version in which its kind is read.
    pub(crate) version: String,
    /// CEL expression for its readiness.
    pub(crate) ready: Option<String>,
}

/// Result of an expression for a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    NotReady,
    /// The expression is not valid CEL, or reads fields that the component lacks.
    Unclear,
}

/// A component, reduced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) uid: String,
    pub(crate) is_deleting: bool,
    /// Whether the condition Ready is True for the current generation.
    pub(crate) is_ready: bool,
    pub(crate) kyma: Option<String>,
    pub(crate) module: Option<String>,
    pub(crate) needs: Vec<Requirement>,
    /// Results of the expressions that dependents have about it.
    pub(crate) judged: BTreeMap<String, Readiness>,
}

impl Kind {
    pub(crate) fn of<R: Resource<DynamicType = ()>>() -> Self {
        Self { group: R::group(&()).into_owned(), kind: R::kind(&()).into_owned() }
    }

    /// Reports whether a CRD can define the kind in this API version. Any other text could change the path of the
    /// request.
    pub(crate) fn can_be(&self, api_version: &str) -> bool {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let is_kind = self.kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !self.kind.is_empty();
        let is_group = group.is_empty() || is_object_name(group);
        is_kind && is_group && is_object_name(version) && !version.contains('.')
    }

    /// Returns the default kind of components, HelmComponent.
    pub(crate) fn helm() -> Self {
        Self::of::<HelmComponent>()
    }
}

impl fmt::Display for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.kind.kind, self.name)
    }
}

impl View {
    /// Reduces a component; `judged` holds the results of its dependents' expressions.
    pub(crate) fn of(meta: &ObjectMeta, contract: &Contract, judged: BTreeMap<String, Readiness>) -> Self {
        let label = |key: &str| meta.labels.as_ref().and_then(|all| all.get(key)).cloned();
        let (kyma, module) = (label(labels::KYMA_NAME), label(labels::MODULE_NAME));
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            is_deleting: meta.deletion_timestamp.is_some(),
            is_ready: is_ready(meta, contract),
            needs: needs(contract, kyma.as_deref()),
            kyma,
            module,
            judged,
        }
    }

    /// Returns the component's module, as other components refer to it.
    pub(crate) fn as_module(&self) -> Option<DependencyTarget> {
        let (kyma, module) = (self.kyma.clone()?, self.module.clone()?);
        Some(DependencyTarget::Module { kyma, module })
    }

    /// Reports whether both views are the same for dependents.
    pub(crate) fn offers_the_same(&self, other: &Self) -> bool {
        let offer = |view: &Self| {
            let View { uid, is_deleting, is_ready, kyma, module, judged, needs: _ } = view.clone();
            (uid, is_deleting, is_ready, kyma, module, judged)
        };
        offer(self) == offer(other)
    }
}

fn is_ready(meta: &ObjectMeta, contract: &Contract) -> bool {
    let Some(ready) = condition::get(&contract.status.conditions, condition::types::READY) else {
        return false;
    };
    let observed = ready.observed_generation.or(contract.status.observed_generation);
    ready.status == "True" && observed == meta.generation
}

/// Returns the needs of a component of this Kyma.
pub(crate) fn needs(contract: &Contract, kyma: Option<&str>) -> Vec<Requirement> {
    let mut needs = vec![];
    for dependency in &contract.spec.depends_on {
        let ready = dependency.ready.clone();
        let version = HelmComponent::api_version(&()).into_owned();
        if let Some(module) = &dependency.module {
            let on = kyma.map_or_else(
                || DependencyTarget::ModuleWithoutKyma(module.clone()),
                |kyma| DependencyTarget::Module { kyma: kyma.to_owned(), module: names::label_value(module) },
            );
            needs.push(Requirement { on, name: format!("module {module}"), version, ready });
        } else if let Some(component) = &dependency.component {
            let version = component.api_version.clone().unwrap_or(version);
            let group = version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
            let kind = component.kind.clone().unwrap_or_else(|| HelmComponent::kind(&()).into_owned());
            let node = Node { kind: Kind { group, kind }, name: component.name.clone() };
            needs.push(Requirement {
                name: node.to_string(),
                on: DependencyTarget::Component(node),
                version,
                ready,
            });
        }
    }
    needs
}

/// Maximum number of evaluated expressions about one component.
const MAX_EXPRESSIONS: usize = 64;

/// Evaluates expressions for a component. Expressions beyond the maximum are `Unclear`.
pub(crate) fn evaluate(expressions: BTreeSet<String>, object: &Value) -> BTreeMap<String, Readiness> {
    let judged = expressions.into_iter().enumerate().map(|(at, text)| {
        if at >= MAX_EXPRESSIONS {
            return (text, Readiness::Unclear);
        }
        let judgement = Expression::compile(&text).map(|expression| expression.evaluate_object(object));
        let verdict = match judgement {
            Ok(ExpressionResult::Holds) => Readiness::Ready,
            Ok(ExpressionResult::Fails) => Readiness::NotReady,
            Ok(ExpressionResult::Unclear | ExpressionResult::TooLarge) | Err(_) => Readiness::Unclear,
        };
        (text, verdict)
    });
    judged.collect()
}

/// Returns the value of the label `kyma-name`.
pub(crate) fn kyma_of<R: ResourceExt>(resource: &R) -> Option<&str> {
    resource.labels().get(labels::KYMA_NAME).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dependency_is_ready_only_for_current_spec_and_unsuspended() {
        let is_ready = |status: &str, of: Option<i64>| {
            let ready = json!({"type": "Ready", "status": status, "reason": "R", "message": "",
                "observedGeneration": of, "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let object = json!({"status": {"conditions": [ready], "observedGeneration": 2}});
            let meta = ObjectMeta { generation: Some(2), ..ObjectMeta::default() };
            View::of(&meta, &Contract::of_value(&object).unwrap(), BTreeMap::new()).is_ready
        };
        assert!(is_ready("True", Some(2)) && is_ready("True", None));
        assert!(!is_ready("True", Some(1)), "the spec before");
        assert!(!is_ready("Unknown", Some(2)), "suspended or paused, whatever its state says");
    }

    #[test]
    fn a_kind_that_no_crd_can_define_is_told_apart() {
        let can_be = |version: &str, kind: &str| {
            let group = version.rsplit_once('/').map_or("", |(group, _)| group);
            Kind { group: group.to_owned(), kind: kind.to_owned() }.can_be(version)
        };
        assert!(can_be("v1", "Pod") && can_be("example.org/v1beta1", "Greeting"));
        for (version, kind) in [
            ("'\"`$(x)", "Pod"),
            ("v1?watch=1", "Pod"),
            ("../v1", "Pod"),
            ("a/../v1", "Pod"),
            ("", "Pod"),
            ("v1", ""),
            ("v1", "http://127.0.0.1:1/x"),
        ] {
            assert!(!can_be(version, kind), "{version} {kind}");
        }
    }
}
