//! Applies resourceRules of ModuleConfigs to targets: one ValidatingAdmissionPolicy and binding for each
//! ModuleConfig and resource, while the module is installed.
//!
//! A policy is applied if it differs, after a ModuleConfig changed or it was changed on the target. A refused policy
//! does not stop modules: the Kyma's condition gives the reason and the ModuleConfig names the Kyma.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use kyma_api::{Kyma, KymaStatus, labels, names};
use kyma_connection::owned_fields;
use kyma_controller::{
    DeleteGate, DeleteRequest, Failure, KymaKey, PausedOperations, ResourceVersion, find_object, is_plausible,
};
use kyma_targets::Target;

use crate::FIELD_MANAGER;
use crate::decision::resolve::{Decision, ResolvedModule};
use crate::error::Error;
use crate::hub::component::ComponentView;
use crate::observe::Observation;
use crate::state::State;
use crate::target::session;

mod policy;
mod prune;
mod refusals;
pub(crate) mod target_policies;
pub(crate) mod watch;

use policy::{BINDING, Body, Id, POLICY};
use prune::PruneScope;
use refusals::Refusals;
pub(crate) use refusals::is_refusal;
use target_policies::Versions;

/// Group of policies and bindings.
const GROUP: &str = "admissionregistration.k8s.io";
/// Kinds in the order in which they are applied: a binding without its policy has no effect.
const POLICY_KINDS: [&str; 2] = [POLICY, BINDING];

/// Applies the policies to a Kyma's target and deletes obsolete ones. Returns `None` if none is desired and this
/// succeeded.
pub(crate) async fn sync(
    state: &State,
    observed: &Observation,
    decided: &[ResolvedModule],
    paused_operations: &PausedOperations,
) -> Option<Result<(), Failure>> {
    let desired = desired_policies(state, observed, decided);
    let fingerprint = policy::fingerprint(&desired, &observed.missing_configs);
    let applied = if are_applied(state, &observed.key, &fingerprint) {
        Ok(())
    } else {
        apply_and_prune(state, observed, decided, (&desired, &fingerprint), paused_operations).await
    };
    (!desired.is_empty() || applied.is_err()).then_some(applied)
}

/// Reports whether the target has the policies with this fingerprint.
fn are_applied(state: &State, kyma: &KymaKey, fingerprint: &str) -> bool {
    state.kymas().get(kyma).is_some_and(|state| state.policies.are_applied(fingerprint))
}

/// Returns the policies and bindings of all modules.
fn desired_policies(state: &State, observed: &Observation, decided: &[ResolvedModule]) -> BTreeMap<Id, Body> {
    let modules = modules(&observed.views, observed.kyma.status.as_ref(), decided);
    let none = BTreeMap::new();
    let labels = observed.kyma.metadata.labels.as_ref().unwrap_or(&none);
    let configs = state.configs();
    modules
        .into_iter()
        .flat_map(|module| policy::of_module(&configs, labels, module, &observed.key))
        .collect()
}

/// Returns the names of installed modules, of mandatory modules on record, whose component may be missing, and of
/// modules that will be installed.
fn modules<'a>(
    views: &'a BTreeMap<String, ComponentView>,
    status: Option<&'a KymaStatus>,
    decided: &'a [ResolvedModule],
) -> BTreeSet<&'a str> {
    let selected = decided.iter().filter(|resolved| matches!(resolved.decision, Decision::Install(_)));
    let selected = selected.map(|resolved| resolved.module.as_str());
    let recorded = status.into_iter().flat_map(|status| status.mandatory_modules.iter().flatten());
    let recorded = recorded.filter(|known| !known.deleting).map(|known| known.name.as_str());
    views.keys().map(String::as_str).chain(recorded).chain(selected).collect()
}

/// Returns the selected modules that cannot be decided on now, for example because components or the catalogue are
/// missing. Their policies stay.
fn pending(decided: &[ResolvedModule]) -> BTreeSet<&str> {
    let is_pending = |resolved: &&ResolvedModule| {
        use Decision::{Await, Keep, KeepVersion, Refuse};
        matches!(resolved.decision, Await(..) | Keep(..) | KeepVersion(..) | Refuse(..))
    };
    decided.iter().filter(is_pending).map(|resolved| resolved.module.as_str()).collect()
}

async fn apply_and_prune(
    state: &State,
    observed: &Observation,
    decided: &[ResolvedModule],
    (desired, fingerprint): (&BTreeMap<Id, Body>, &str),
    paused_operations: &PausedOperations,
) -> Result<(), Failure> {
    let kyma = &observed.key;
    let local = state.runtime.access.local();
    let target = observed.remote.as_ref().map_or(&local, |remote| &remote.session.target);
    let applied = apply_all(state, kyma, target, desired).await;
    if let Some(reasons) = refusals::reasons(desired, applied.as_ref().map(|applied| &applied.refusals)) {
        state.record_rule_refusals(kyma, reasons);
    }
    let ApplyResult { found, versions, refusals } = applied?;
    let undesired: Vec<String> = undesired_names(&found, desired).collect();
    state.kymas().get_or_add(kyma).policies.record_undesired(undesired);
    let modules = modules(&observed.views, observed.kyma.status.as_ref(), decided);
    let pending = pending(decided);
    let obsolete: Vec<(Id, DynamicObject)> = {
        let configs = state.configs();
        let (modules, pending, refusals) = (&modules, &pending, &refusals);
        let scope = PruneScope { desired, configs: &configs, modules, pending, refusals };
        found.into_iter().filter(|(id, live)| scope.is_obsolete(id, &live.metadata)).collect()
    };
    let is_prune_paused = !obsolete.is_empty() && paused_operations.deletes().is_some();
    let pruned = if is_prune_paused {
        Ok(())
    } else {
        let gate = DeleteGate::new(paused_operations, &state.runtime.brake, kyma.to_string());
        delete(target, obsolete, &gate).await
    };
    let refused = refusals.into_first();
    // Without a fingerprint the next pass tries again, but changes of accepted policies are noticed before.
    let is_complete = refused.is_none() && !is_prune_paused && pruned.is_ok();
    let fingerprint = is_complete.then_some(fingerprint);
    let is_unchanged = state.kymas().get_or_add(kyma).policies.record_applied(fingerprint, versions);
    if !is_unchanged {
        state.requeue(kyma);
    }
    // The refusal is reported first: the status of the ModuleConfig refers to it.
    refused.map_or(pruned.map_err(Failure::from), Err)
}

/// Returns the names of policies that are not desired. They are recorded, so names that no API server would store are
/// left out.
fn undesired_names(
    found: &BTreeMap<Id, DynamicObject>,
    desired: &BTreeMap<Id, Body>,
) -> impl Iterator<Item = String> {
    found
        .iter()
        .filter(|(id, live)| !desired.contains_key(*id) && is_plausible(&live.metadata).is_ok())
        .map(|(id, _)| id.name.clone())
}

/// The result of applying all desired policies.
struct ApplyResult {
    /// The Kyma's policies on the target, as they were before.
    found: BTreeMap<Id, DynamicObject>,
    /// Versions of the policies in force.
    versions: Versions,
    refusals: Refusals,
}

/// Applies policies that differ. A refused policy does not keep others from the target.
///
/// # Errors
/// If the target does not answer, or refuses to list policies.
async fn apply_all(
    state: &State,
    kyma: &KymaKey,
    target: &Target,
    desired: &BTreeMap<Id, Body>,
) -> Result<ApplyResult, Failure> {
    // From here on the watch reports changes on the target; the list below is not older.
    state.kymas().get_or_add(kyma).policies.begin_apply(desired.keys());
    session::watch(state, kyma, target, !desired.is_empty())?;
    let found = list_policies(kyma, target, desired.is_empty()).await?;
    let (mut versions, mut refusals) = (Versions::new(), Refusals::default());
    for (id, body) in desired {
        let live = found.get(id).filter(|live| is_applied(live, body));
        let version = match live {
            Some(live) => ResourceVersion::of(&live.metadata),
            None if refusals.refuse_if_forbidden(&body.config) => continue,
            None => match apply(target, id, body).await {
                Ok(applied) => ResourceVersion::of(&applied.metadata),
                Err(error) => {
                    refusals.add(&body.config, error.into())?;
                    continue;
                }
            },
        };
        versions.insert(id.clone(), version.unwrap_or_default());
    }
    Ok(ApplyResult { found, versions, refusals })
}

/// Deletes all policies of a Kyma from its target. No inventory exists and a list may be incomplete, so policies are
/// read by name as well: by names derived from ModuleConfigs, and by names that earlier lists contained and whose
/// ModuleConfig is gone.
pub(crate) async fn clean(
    state: &State,
    kyma: &Kyma,
    target: &Target,
    gate: &DeleteGate,
) -> Result<(), Error> {
    let key = KymaKey::of(kyma);
    let mut found = list_policies(&key, target, true).await?;
    let mut named = {
        let none = BTreeMap::new();
        policy::possible_names(&state.configs(), kyma.metadata.labels.as_ref().unwrap_or(&none), &key)
    };
    named.extend(found.keys().map(|id| id.name.clone()));
    let undesired = state.kymas().get(&key).map(|state| state.policies.undesired().clone());
    named.extend(undesired.into_iter().flatten());
    for name in named {
        for kind in POLICY_KINDS {
            let id = Id { kind, name: name.clone() };
            if found.contains_key(&id) {
                continue;
            }
            if let Some(object) = read(&key, target, &id).await? {
                found.insert(id, object);
            }
        }
    }
    delete(target, found.into_iter().collect(), gate).await
}

/// Reads a policy or binding by name. `None` if the Kyma has none of this name, or the target forbids the read.
async fn read(kyma: &KymaKey, target: &Target, id: &Id) -> Result<Option<DynamicObject>, Error> {
    let owner = names::owner_hash(&kyma.namespace, &kyma.name);
    let is_of_kyma = |live: &DynamicObject| {
        live.labels().get(labels::OWNER) == Some(&owner) && live.labels().contains_key(labels::MODULE_CONFIG)
    };
    let failed = |source| Error::ReadPolicy { name: id.name.clone(), source };
    match find_object(&api(target, id.kind), &id.name).await {
        Ok(live) => Ok(live.filter(is_of_kyma)),
        Err(error) => {
            let is_unavailable = is_unavailable(&target.client(), id.kind, &error).await.map_err(failed)?;
            if is_unavailable { Ok(None) } else { Err(failed(error)) }
        }
    }
}

/// Reports whether a call failed because the target forbids it or its Kubernetes does not serve the kind. Roles of
/// earlier versions lack the permission, and Kubernetes before 1.30 the kind. A proxy answers 404 too, so discovery has
/// to show the latter.
async fn is_unavailable(target: &Client, kind: &str, error: &kube::Error) -> kube::Result<bool> {
    let kube::Error::Api(status) = error else { return Ok(false) };
    if status.code != 404 {
        return Ok(status.code == 403);
    }
    let plural = resource(kind).plural;
    let served = target.list_api_group_resources(&format!("{GROUP}/v1")).await?;
    Ok(!served.resources.iter().any(|one| one.name == plural))
}

/// Deletes bindings first, so that after an interruption the policy still identifies what is left.
async fn delete(
    target: &Target,
    mut objects: Vec<(Id, DynamicObject)>,
    gate: &DeleteGate,
) -> Result<(), Error> {
    objects.sort_by_key(|(id, _)| id.kind != BINDING);
    for (id, object) in objects {
        let resource = resource(id.kind);
        let request = DeleteRequest::new(&resource, &object.metadata, &[FIELD_MANAGER]);
        let deleted = gate.carry_out(&target.client(), &request).await;
        let failed = |source| Error::DeletePolicy { name: id.name, source };
        deleted.map_err(|error| Error::of_gate(error, failed))?;
    }
    Ok(())
}

async fn apply(target: &Target, id: &Id, body: &Body) -> Result<DynamicObject, Error> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = api(target, id.kind).patch(&id.name, &params, &Patch::Apply(&body.object)).await;
    applied.map_err(|source| Error::ApplyPolicy {
        name: id.name.clone(),
        config: body.config.clone(),
        source,
    })
}

/// Lists a Kyma's policies on the target. If none is desired, an API server that does not serve or permit to list the
/// kind counts as having none.
async fn list_policies(
    kyma: &KymaKey,
    target: &Target,
    none_is_desired: bool,
) -> Result<BTreeMap<Id, DynamicObject>, Error> {
    let mut found = BTreeMap::new();
    for kind in POLICY_KINDS {
        let listed = match api(target, kind).list(&ListParams::default().labels(&selector(kyma))).await {
            Ok(listed) => listed.items,
            Err(source) => {
                let failed = |source| Error::ListPolicies { source };
                let client = target.client();
                if none_is_desired && is_unavailable(&client, kind, &source).await.map_err(failed)? {
                    break;
                }
                return Err(failed(source));
            }
        };
        found.extend(listed.into_iter().map(|object| (Id { kind, name: object.name_any() }, object)));
        if none_is_desired && found.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// Reports whether the fields that the operator owns on the live object equal those of the desired one.
fn is_applied(live: &DynamicObject, body: &Body) -> bool {
    let owned = owned_fields::fingerprint(live, FIELD_MANAGER);
    owned.as_deref() == Some(owned_fields::fingerprint_of_apply(&body.object).as_str())
}

/// Returns the label selector for the policies of one Kyma.
fn selector(kyma: &KymaKey) -> String {
    let owner = names::owner_hash(&kyma.namespace, &kyma.name);
    format!("{},{}", names::label_selector(labels::OWNER, &owner), labels::MODULE_CONFIG)
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind))
}

fn api(target: &Target, kind: &str) -> Api<DynamicObject> {
    Api::all_with(target.client(), &resource(kind))
}

#[cfg(test)]
mod tests {
    use kyma_api::MandatoryModule;
    use serde_json::json;
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;
    use crate::state::tests::unconnected;

    const VERSION: &str = "/apis/admissionregistration.k8s.io/v1";

    #[test]
    fn mandatory_module_policies_outlive_component_and_release_meta() {
        let known = |name: &str, deleting| MandatoryModule {
            name: name.to_owned(),
            deleting,
            ..MandatoryModule::default()
        };
        let recorded = vec![known("warden", false), known("withdrawn", true)];
        let status = KymaStatus { mandatory_modules: Some(recorded), ..KymaStatus::default() };
        // Without a component and a release meta, nothing is decided about the module.
        assert_eq!(modules(&BTreeMap::new(), Some(&status), &[]), BTreeSet::from(["warden"]));
        assert!(modules(&BTreeMap::new(), None, &[]).is_empty());
    }

    #[tokio::test]
    async fn removal_deletes_policies_that_neither_list_nor_config_names() {
        const NAME: &str = "gold-lanterns-1";
        let target = ScriptedServer::start().await.unwrap();
        let kyma: Kyma = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "blue", "namespace": "kcp-system"}, "spec": {"channel": "regular"},
        }))
        .unwrap();
        let policy = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": POLICY,
            "metadata": {
                "name": NAME, "uid": "u", "resourceVersion": "7",
                "labels": {
                    labels::OWNER: names::owner_hash("kcp-system", "blue"), labels::MODULE_CONFIG: "gold",
                },
                "managedFields": [{"manager": FIELD_MANAGER, "operation": "Apply"}],
            },
        });
        let policies = format!("{VERSION}/validatingadmissionpolicies");
        let bindings = format!("{VERSION}/validatingadmissionpolicybindings");
        let named = |method: &str| RequestMatcher::path(&format!("{policies}/{NAME}")).method(method);
        let success = json!({"apiVersion": "v1", "kind": "Status", "status": "Success"});
        let none = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "List", "metadata": {}, "items": []});
        let absent = Answer::not_found(GROUP, "validatingadmissionpolicybindings", NAME);
        target.always(named("GET"), Answer::json(&policy));
        target.always(named("DELETE"), Answer::json(&success));
        target.always(RequestMatcher::path(&format!("{bindings}/{NAME}")), absent);
        target.always(RequestMatcher::path(&policies).method("GET"), Answer::json(&none));

        let (state, _trigger) = unconnected();
        let on_target = state.runtime.targets.local(target.access().client().unwrap());
        let gate = DeleteGate::uncounted(&PausedOperations::default());
        clean(&state, &kyma, &on_target, &gate).await.unwrap();
        assert_eq!(target.count(&named("DELETE")), 0, "nothing leads to it");
        let key = KymaKey::of(&kyma);
        {
            let mut kymas = state.kymas();
            let policies = &mut kymas.get_or_add(&key).policies;
            policies.begin_apply(std::iter::empty());
            policies.record_undesired([NAME.to_owned()]);
        }
        state.end_session(&key);
        clean(&state, &kyma, &on_target, &gate).await.unwrap();
        assert_eq!(target.count(&named("DELETE")), 1);
    }

    #[test]
    fn names_that_no_api_server_would_store_are_not_recorded() {
        let names = ["gold-lanterns-1".to_owned(), "n".repeat(254)];
        let object = |name: &String| {
            let id = Id { kind: POLICY, name: name.clone() };
            (id, DynamicObject::new(name, &resource(POLICY)))
        };
        let found: BTreeMap<Id, DynamicObject> = names.iter().map(object).collect();
        assert_eq!(undesired_names(&found, &BTreeMap::new()).collect::<Vec<_>>(), names[..1]);
    }

    #[tokio::test]
    async fn http_404_shows_old_kubernetes_only_if_discovery_lacks_kind() {
        let resources = |plural: &str| {
            let listed = json!({"name": plural, "singularName": "", "namespaced": false, "kind": "Any",
                "verbs": ["list"]});
            Answer::json(&json!({"kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": "admissionregistration.k8s.io/v1", "resources": [listed]}))
        };
        let page = || Answer::html(404, "no such cluster");
        let rows = [
            (resources("validatingwebhookconfigurations"), Some(true)),
            (resources("validatingadmissionpolicies"), Some(false)),
            (page(), None),
        ];
        for (discovery, expected) in rows {
            let target = ScriptedServer::start().await.unwrap();
            target.always(RequestMatcher::path(&format!("{VERSION}/validatingadmissionpolicies")), page());
            target.always(RequestMatcher::path(VERSION), discovery.clone());
            let client = target.access().client().unwrap();
            let policies: Api<DynamicObject> = Api::all_with(client.clone(), &resource(POLICY));
            let error = policies.list(&ListParams::default()).await.unwrap_err();
            assert_eq!(is_unavailable(&client, POLICY, &error).await.ok(), expected, "{discovery:?}");
        }
    }
}
