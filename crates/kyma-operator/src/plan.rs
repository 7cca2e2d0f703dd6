//! Turns decisions into writes: CRDs to install, components to apply, deletion requests. Pure.
//!
//! Objects that are up to date are not in the plan.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kyma_api::component::DeletionReason;
use kyma_api::{DeletionPolicy, Reason, State, TargetIdentity, TargetRef, limits};
use kyma_connection::owned_fields;
use kyma_controller::KymaKey;
use serde_json::{Map, Value};

use crate::decision::deletion::{ComponentDeletion, IgnorePolicy};
use crate::decision::resolve::{Decision, Install, ModuleProblem, Policy, ResolvedModule};
use crate::hub::component::{ComponentKind, ComponentView, kind_of};
use crate::hub::component_crd::{self, Offer};
use crate::hub::kinds::{GroupKind, KindStatus, Kinds};

mod body;
mod source;

pub(crate) use source::lay_over_component;

pub(crate) use body::{owner, values_without_effect, withheld};

/// Inputs of a plan.
#[derive(Debug)]
pub(crate) struct Scope<'a> {
    /// The Kyma.
    pub(crate) kyma: &'a KymaKey,
    /// Its uid.
    pub(crate) uid: &'a str,
    /// Its generation.
    pub(crate) generation: i64,
    /// The shard that handles its target.
    pub(crate) shard: u8,
    /// Its target; `None` if it is the hub itself.
    pub(crate) target: Option<&'a TargetRef>,
    /// Recorded identity of the target.
    pub(crate) identity: Option<&'a TargetIdentity>,
    /// Namespace on the target for objects that name none.
    pub(crate) target_namespace: &'a str,
    /// Installed components by module.
    pub(crate) installed: &'a BTreeMap<String, ComponentView>,
    /// Modules whose default CR was created for an earlier component.
    pub(crate) default_resources: &'a BTreeSet<String>,
    /// Component kinds on the hub.
    pub(crate) kinds: &'a Kinds,
    /// The operator's settings.
    pub(crate) policy: &'a Policy,
    /// Policy for the removal of modules with `customResourcePolicy: Ignore`.
    pub(crate) ignore: IgnorePolicy,
    /// Reason why no component may be deleted now.
    pub(crate) deletes_paused: Option<&'a str>,
}

/// Writes for one Kyma.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Component CRDs to install or extend.
    pub(crate) crds: Vec<OfferedCrd>,
    /// Components to apply.
    pub(crate) components: Vec<DesiredComponent>,
    /// Deletion requests to write.
    pub(crate) deletions: Vec<ComponentDeletion>,
    /// Missing components to create with a deletion request.
    pub(crate) missing_components: Vec<DesiredComponent>,
    /// New versions for components whose removal is blocked.
    pub(crate) upgrades: Vec<Upgrade>,
    /// Components whose deletion request is withdrawn, because the module was selected again.
    pub(crate) withdrawals: Vec<ComponentView>,
    /// Modules that wait for something on the hub.
    pub(crate) blocked: BTreeMap<String, ModuleProblem>,
}

impl Plan {
    /// Reports whether the plan changes anything on the target.
    pub(crate) fn changes_target(&self) -> bool {
        !self.components.is_empty()
            || !self.missing_components.is_empty()
            || !self.upgrades.is_empty()
            || !self.withdrawals.is_empty()
            || self.deletions.iter().any(ComponentDeletion::removes)
    }
}

/// A component CRD of a template that is missing or older on the hub, as far as the index shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OfferedCrd {
    /// The module.
    pub(crate) module: String,
    /// The module's version.
    pub(crate) version: String,
    /// The kind that the template names.
    pub(crate) kind: ComponentKind,
    /// The CRD as its author wrote it.
    pub(crate) crd: CustomResourceDefinition,
}

/// A new version for a component that is being removed. The rest of its spec, including the deletion request, stays
/// unchanged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Upgrade {
    /// The component.
    pub(crate) component: ComponentView,
    /// Top-level fields of its `spec`.
    pub(crate) fields: Map<String, Value>,
}

/// A component to apply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DesiredComponent {
    /// Its module.
    pub(crate) module: String,
    /// Its kind.
    pub(crate) kind: ComponentKind,
    /// Plural of its resource.
    pub(crate) plural: String,
    /// Body of the apply.
    pub(crate) body: Value,
}

/// Plans the writes for all decisions about one Kyma.
pub(crate) fn plan(scope: &Scope<'_>, decided: &[ResolvedModule]) -> Plan {
    let mut plan = Plan::default();
    for resolved in decided {
        let module = resolved.module.as_str();
        let view = scope.installed.get(module);
        match &resolved.decision {
            Decision::Install(install)
            | Decision::KeepVersion(install, _)
            | Decision::Await(Some(install), _) => {
                if let Err(problem) = add_component(scope, install, view, &mut plan) {
                    plan.blocked.insert(module.to_owned(), problem);
                }
            }
            Decision::Remove { reason, .. } => {
                add_deletion(
                    scope,
                    view.map(|view| ComponentDeletion::remove(view, scope.ignore, *reason)),
                    &mut plan,
                );
            }
            Decision::UpgradeDuringRemoval(install) => {
                if let Some(Err(problem)) = view.map(|view| add_upgrade(scope, install, view, &mut plan)) {
                    plan.blocked.insert(module.to_owned(), problem);
                }
            }
            Decision::FinishRemoval(install, reason) => {
                if let Err(problem) = add_missing_component(scope, install, *reason, &mut plan) {
                    plan.blocked.insert(module.to_owned(), problem);
                }
            }
            Decision::Unmanage => {
                add_deletion(
                    scope,
                    view.map(|view| ComponentDeletion::orphan(view, DeletionReason::Disabled)),
                    &mut plan,
                );
            }
            Decision::Keep(_) | Decision::Await(None, _) => {
                plan.withdrawals.extend(request_to_withdraw(view));
            }
            Decision::Refuse(_) => {}
        }
    }
    plan
}

/// Returns the component if its requested removal has to be withdrawn.
fn request_to_withdraw(view: Option<&ComponentView>) -> Option<ComponentView> {
    view.filter(|view| view.deletion_policy == DeletionPolicy::Delete).cloned()
}

fn add_deletion(scope: &Scope<'_>, deletion: Option<ComponentDeletion>, plan: &mut Plan) {
    let Some(deletion) = deletion.filter(ComponentDeletion::is_due) else { return };
    match scope.deletes_paused {
        Some(why) => {
            let problem = ModuleProblem::warning(Reason::Paused, why);
            plan.blocked.insert(deletion.component.module, problem);
        }
        None => plan.deletions.push(deletion),
    }
}

/// Adds the component of an install to the plan if it has to be written.
///
/// # Errors
/// If the module has to wait or cannot be installed.
fn add_component(
    scope: &Scope<'_>,
    install: &Install,
    view: Option<&ComponentView>,
    plan: &mut Plan,
) -> Result<(), ModuleProblem> {
    let kind = kind_of(&install.template);
    component_crd::check_group(&kind, &scope.policy.component_groups)?;
    plan.withdrawals.extend(request_to_withdraw(view));
    if view.is_some_and(|view| view.terminating) {
        return Err(waiting(
            Reason::Deleting,
            "its component is being deleted, and the module is installed again afterwards",
        ));
    }
    let plural = plural(scope, install, &kind, plan)?;
    let body = body::compose(scope, install, &kind, view)?;
    if !limits::fits(&body, limits::OBJECT_BYTES) {
        let message =
            format!("component {kind} of module {} would be larger than 1 MiB", install.release.module);
        return Err(ModuleProblem::error(Reason::ObjectTooLarge, message));
    }
    let fingerprint = owned_fields::fingerprint_of_apply(&body);
    let is_written = view.and_then(|view| view.owned_fingerprint.as_ref()) == Some(&fingerprint);
    if !is_written {
        plan.components.push(DesiredComponent { module: install.release.module.clone(), kind, plural, body });
    }
    Ok(())
}

/// Adds a new version for a component that is being removed to the plan.
fn add_upgrade(
    scope: &Scope<'_>,
    install: &Install,
    view: &ComponentView,
    plan: &mut Plan,
) -> Result<(), ModuleProblem> {
    let kind = kind_of(&install.template);
    component_crd::check_group(&kind, &scope.policy.component_groups)?;
    let mut body = body::compose(scope, install, &kind, Some(view))?;
    let mut fields = body["spec"].as_object_mut().map(std::mem::take).unwrap_or_default();
    // The module is no longer selected, so these keep the values that they had when it was removed from the Kyma.
    for kept in ["target", "userValues", "resourcePolicy", "deletionPolicy"] {
        fields.remove(kept);
    }
    plan.upgrades.push(Upgrade { component: view.clone(), fields });
    Ok(())
}

/// Adds a missing component to the plan, with a deletion request.
fn add_missing_component(
    scope: &Scope<'_>,
    install: &Install,
    reason: DeletionReason,
    plan: &mut Plan,
) -> Result<(), ModuleProblem> {
    let kind = kind_of(&install.template);
    component_crd::check_group(&kind, &scope.policy.component_groups)?;
    let plural = plural(scope, install, &kind, plan)?;
    if let Some(why) = scope.deletes_paused {
        return Err(ModuleProblem::warning(Reason::Paused, why));
    }
    let mut body = body::compose(scope, install, &kind, None)?;
    body::add_deletion_request(scope, reason, &mut body);
    plan.missing_components.push(DesiredComponent {
        module: install.release.module.clone(),
        kind,
        plural,
        body,
    });
    Ok(())
}

/// Returns the plural of a component kind if its components can be written.
fn plural(
    scope: &Scope<'_>,
    install: &Install,
    kind: &ComponentKind,
    plan: &mut Plan,
) -> Result<String, ModuleProblem> {
    offer_crd(scope, install, kind, plan)?;
    match scope.kinds.status(kind) {
        KindStatus::Ready { plural } => Ok(plural),
        KindStatus::Starting => Err(waiting(Reason::Progressing, "the component kind is being read")),
        KindStatus::Violated(violations) => Err(component_crd::violated(kind, &violations)),
        KindStatus::Missing => {
            let message = format!(
                "the hub has no CRD for component kind {kind}: install it, or add it to the ModuleTemplate"
            );
            Err(ModuleProblem::error(Reason::ComponentCrdMissing, message))
        }
    }
}

/// Adds a template's CRD to the plan before the first component is created. The Kyma is requeued when the kind is
/// served.
fn offer_crd(
    scope: &Scope<'_>,
    install: &Install,
    kind: &ComponentKind,
    plan: &mut Plan,
) -> Result<(), ModuleProblem> {
    let brought = install.template.spec.component.as_ref().and_then(|component| component.crd.as_ref());
    let Some(brought) = brought.filter(|_| !kind.is_helm()) else {
        return Ok(());
    };
    let module = install.release.module.as_str();
    if !limits::fits(brought, limits::INLINE_CRD_BYTES) {
        let message = format!("the CRD in module {module} is larger than {} bytes", limits::INLINE_CRD_BYTES);
        return Err(ModuleProblem::error(Reason::ObjectTooLarge, message));
    }
    let unreadable = |_: serde_json::Error| {
        let message = format!("the CRD in module {module} is not a CustomResourceDefinition");
        ModuleProblem::error(Reason::ContractViolated, message)
    };
    let crd: CustomResourceDefinition =
        serde_json::from_value(Value::Object(brought.clone())).map_err(unreadable)?;
    let offer = Offer { module, version: &install.version, kind, crd: &crd };
    let live = scope.kinds.crd(kind).map(AsRef::as_ref);
    if component_crd::install(&offer, live)?.is_none() {
        return Ok(());
    }
    component_crd::check_categories(&offer, scope.kinds.crds())?;
    plan.crds.push(OfferedCrd {
        module: module.to_owned(),
        version: install.version.clone(),
        kind: kind.clone(),
        crd,
    });
    let is_usable = live.is_some_and(|live| component_crd::violations(live, kind).is_empty());
    if is_usable {
        Ok(())
    } else {
        Err(waiting(Reason::Progressing, "the component's CRD is being installed"))
    }
}

/// Returns kinds of required components that cannot be written yet. The Kyma is requeued when they can.
pub(crate) fn unready_kinds(kinds: &Kinds, decided: &[ResolvedModule]) -> Vec<GroupKind> {
    let required = decided.iter().filter_map(|resolved| match &resolved.decision {
        Decision::Install(install)
        | Decision::KeepVersion(install, _)
        | Decision::Await(Some(install), _)
        | Decision::UpgradeDuringRemoval(install)
        | Decision::FinishRemoval(install, _) => Some(kind_of(&install.template)),
        _ => None,
    });
    let unready = required.filter(|kind| !matches!(kinds.status(kind), KindStatus::Ready { .. }));
    unready.map(|kind| (kind.group().to_owned(), kind.kind.clone())).collect()
}

/// Returns a problem with state Processing. Deleting is only for modules with a requested removal: see
/// [`crate::decision::missing_components`].
fn waiting(reason: Reason, message: &str) -> ModuleProblem {
    ModuleProblem { reason, state: State::Processing, message: message.to_owned() }
}

#[cfg(test)]
mod tests;
