//! Checks the CRD of a component kind against the contract and computes the CRD to apply. Pure.
//!
//! A CRD on the hub is only extended: no version is removed or stops being served. A CRD without the operator's
//! label, or with that of another module, is not changed.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kyma_api::{COMPONENT_GROUP, OPERATOR_GROUP, Reason, annotations, component, labels};

use crate::decision::resolve::{ModuleProblem, compare};
use crate::hub::component::ComponentKind;

/// Label on an installed component CRD: the module whose template contains it. Set beside
/// [`kyma_api::labels::COMPONENT_CRD`].
pub(crate) const MODULE_LABEL: &str = "component.kyma-project.io/crd-of";
/// Annotation on an installed component CRD: the version of that module.
pub(crate) const VERSION_ANNOTATION: &str = annotations::CRD_VERSION;

/// Reports whether the group cannot contain component kinds.
fn is_reserved(group: &str) -> bool {
    let ours = [OPERATOR_GROUP, COMPONENT_GROUP];
    ours.contains(&group)
        || group.is_empty()
        || group == "k8s.io"
        || group.ends_with(".k8s.io")
        || !group.contains('.')
}

/// A CRD in a template.
#[derive(Debug, Clone)]
pub(crate) struct Offer<'a> {
    /// The module.
    pub(crate) module: &'a str,
    /// The module's version.
    pub(crate) version: &'a str,
    /// The kind that the template names.
    pub(crate) kind: &'a ComponentKind,
    /// The CRD.
    pub(crate) crd: &'a CustomResourceDefinition,
}

/// Returns the CRD to apply, or `None` if nothing would change.
pub(crate) fn install(
    offer: &Offer<'_>,
    live: Option<&CustomResourceDefinition>,
) -> Result<Option<CustomResourceDefinition>, ModuleProblem> {
    check_names(offer)?;
    let mut violations = violations(offer.crd, offer.kind);
    violations.extend(component::word_conflicts(offer.crd).iter().map(ToString::to_string));
    if !violations.is_empty() {
        return Err(violated(offer.kind, &violations));
    }
    let Some(live) = live else {
        return Ok(Some(marked(offer, offer.crd.spec.versions.clone())));
    };
    check_mark(offer, live)?;
    if !is_newer(offer, live) {
        return Ok(None);
    }
    let desired = marked(offer, joined(&offer.crd.spec.versions, &live.spec.versions));
    Ok(Some(desired))
}

/// Checks that no category of the offered CRD hides another component kind from kubectl.
pub(crate) fn check_categories<'a>(
    offer: &Offer<'_>,
    others: impl IntoIterator<Item = &'a CustomResourceDefinition>,
) -> Result<(), ModuleProblem> {
    let hidden = component::shadowing_categories(offer.crd, others);
    let violations: Vec<String> = hidden.iter().map(ToString::to_string).collect();
    if violations.is_empty() { Ok(()) } else { Err(violated(offer.kind, &violations)) }
}

/// Checks that components may be of the kind's group.
pub(crate) fn check_group(
    kind: &ComponentKind,
    allowed: &std::collections::BTreeSet<String>,
) -> Result<(), ModuleProblem> {
    if kind.is_helm() || (allowed.contains(kind.group()) && !is_reserved(kind.group())) {
        return Ok(());
    }
    let message = format!(
        "the API group of component kind {kind} is not allowed: the hub's administrator can allow it with \
         --component-groups"
    );
    Err(ModuleProblem::error(Reason::ComponentGroupNotAllowed, message))
}

/// Returns the violations of the component contract, as messages; empty if there are none.
pub(crate) fn violations(crd: &CustomResourceDefinition, kind: &ComponentKind) -> Vec<String> {
    let mut found: Vec<String> =
        component::check(crd, kind.version()).iter().map(ToString::to_string).collect();
    if crd.spec.conversion.as_ref().is_some_and(|conversion| conversion.strategy != "None") {
        found.push("a conversion webhook is not allowed on the hub".to_owned());
    }
    found
}

/// Returns the error for a CRD that violates the contract.
pub(crate) fn violated(kind: &ComponentKind, violations: &[String]) -> ModuleProblem {
    let message = format!(
        "the CRD of component kind {kind} violates the component contract: {}",
        violations.join("; ")
    );
    ModuleProblem::error(Reason::ContractViolated, message)
}

fn check_names(offer: &Offer<'_>) -> Result<(), ModuleProblem> {
    let spec = &offer.crd.spec;
    let name = format!("{}.{}", spec.names.plural, spec.group);
    if spec.group == offer.kind.group()
        && spec.names.kind == offer.kind.kind
        && offer.crd.metadata.name.as_deref() == Some(name.as_str())
    {
        return Ok(());
    }
    let message =
        format!("the CRD in module {} is not the CRD of its component kind {}", offer.module, offer.kind);
    Err(ModuleProblem::error(Reason::ContractViolated, message))
}

fn check_mark(offer: &Offer<'_>, live: &CustomResourceDefinition) -> Result<(), ModuleProblem> {
    let label = |name: &str| live.metadata.labels.as_ref()?.get(name);
    let owner =
        label(MODULE_LABEL).filter(|_| label(labels::COMPONENT_CRD).is_some_and(|mark| mark == "true"));
    match owner {
        Some(owner) if *owner == kyma_api::names::label_value(offer.module) => Ok(()),
        Some(owner) => {
            let message = format!(
                "the CRD of component kind {} was installed by module {owner} and stays owned by it",
                offer.kind
            );
            Err(ModuleProblem::error(Reason::CrdConflict, message))
        }
        None => {
            let message = format!(
                "the CRD of component kind {} exists on the hub and was not installed by kyma-operator: \
                 remove `crd` from the ModuleTemplate to use it unchanged",
                offer.kind
            );
            Err(ModuleProblem::error(Reason::CrdConflict, message))
        }
    }
}

fn is_newer(offer: &Offer<'_>, live: &CustomResourceDefinition) -> bool {
    let mark = live.metadata.annotations.as_ref().and_then(|annotations| annotations.get(VERSION_ANNOTATION));
    mark.is_none_or(|mark| compare(offer.version, mark).is_none_or(std::cmp::Ordering::is_gt))
}

/// Merges live versions into the desired ones: none is removed, and none stops being served.
fn joined(
    desired: &[CustomResourceDefinitionVersion],
    live: &[CustomResourceDefinitionVersion],
) -> Vec<CustomResourceDefinitionVersion> {
    let mut joined: Vec<_> = desired.to_vec();
    for old in live {
        match joined.iter_mut().find(|version| version.name == old.name) {
            Some(version) => version.served |= old.served,
            None => joined.push(CustomResourceDefinitionVersion { storage: false, ..old.clone() }),
        }
    }
    joined
}

/// Returns the body of the apply: the CRD's spec and the operator's labels and annotations, without the author's
/// metadata.
fn marked(offer: &Offer<'_>, versions: Vec<CustomResourceDefinitionVersion>) -> CustomResourceDefinition {
    let mut crd = CustomResourceDefinition { spec: offer.crd.spec.clone(), ..Default::default() };
    crd.metadata.name.clone_from(&offer.crd.metadata.name);
    crd.metadata.labels = Some(BTreeMap::from([
        (labels::COMPONENT_CRD.to_owned(), "true".to_owned()),
        (MODULE_LABEL.to_owned(), kyma_api::names::label_value(offer.module)),
    ]));
    crd.metadata.annotations =
        Some(BTreeMap::from([(VERSION_ANNOTATION.to_owned(), offer.version.to_owned())]));
    crd.spec.versions = versions;
    crd
}

/// Adds the mark of `kymactl run --once` to a CRD before it is applied: to a new one if `marks_created` is set. An
/// existing mark stays, an apply without it would remove it.
pub(crate) fn mark_created(
    desired: &mut CustomResourceDefinition,
    live: Option<&CustomResourceDefinition>,
    marks_created: bool,
) {
    let mark = |live: &CustomResourceDefinition| {
        live.metadata.annotations.as_ref().and_then(|all| all.get(annotations::CREATED_BY_RUN)).cloned()
    };
    let value = match live {
        Some(live) => mark(live),
        None => marks_created.then(|| "true".to_owned()),
    };
    if let Some(value) = value {
        let all = desired.metadata.annotations.get_or_insert_default();
        all.insert(annotations::CREATED_BY_RUN.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;
