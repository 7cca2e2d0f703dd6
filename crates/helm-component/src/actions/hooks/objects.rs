//! Objects of hooks on the target: read, created, deleted and labelled.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams, PropagationPolicy};
use kyma_api::{DeleteProof, Reason, annotations, labels, needs_delete_proof};
use kyma_controller::{Authorship, DeleteRequest, Failure, WatchSpec, unreadable_fields};
use kyma_helm::hooks::{self, Hook, LiveHook, end};
use kyma_object_set::{Action, CallError, Entry, GroupKind, Guard, Identity, Mapping};
use serde_json::{Value, json};

use crate::pass::Pass;
use crate::plan::Operation;
use crate::reconcile::calls::{SERVED_DELAY, failure};
use crate::reconcile::component_list::has_component;

/// Requeue delay for an object that the user has to delete. No watch covers it.
const RECHECK_DELAY: Duration = Duration::from_mins(1);
/// Prefix of Helm's annotations.
const HELM_PREFIX: &str = "helm.sh/";

/// Mark of another component on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForeignMark<'a> {
    /// The component with this owner hash applied the object.
    Owner(&'a str),
    /// A hook of the component with this owner hash created the object. The component may be gone.
    Hook(&'a str),
}

/// Result of the creation of a hook's object.
pub(super) enum HookCreation {
    /// This run created the object.
    ByThisRun,
    /// An object of that name existed before.
    ByOthers,
    /// Its namespace is gone, and a removal continues without the hook.
    NamespaceGone,
    /// A webhook did not answer.
    Unanswered { webhook: String, failure: Failure },
}

/// Object of a hook on the target.
pub(super) struct HookObject<'p> {
    pass: &'p Pass<'p>,
    hook: &'p Hook,
    identity: Identity,
    /// Kind of the object on the target.
    mapping: Mapping,
    /// Mark of the current run.
    mark: &'p str,
}

impl<'p> HookObject<'p> {
    /// Returns the object of a hook in the run with this mark.
    ///
    /// # Errors
    /// If no hook may touch the object, or the target does not serve its kind.
    pub(super) fn of(pass: &'p Pass<'p>, hook: &'p Hook, mark: &'p str) -> Result<Self, Failure> {
        let identity = hook.identity();
        // An existing Namespace is never replaced.
        if pass.shared.protection.guard(&identity) == Some(Guard::Always) && !identity.is_namespace() {
            return Err(Failure::new(Reason::Protected, format!("{identity} may not be touched by a hook")));
        }
        let missing =
            || Failure::new(Reason::DependencyMissing, format!("the kind of the hook {identity} is missing"));
        let mapping = pass.served.get(&hook.object.gvk()).cloned().ok_or_else(missing)?;
        Ok(Self { pass, hook, identity, mapping, mark })
    }

    /// Reads the object.
    pub(super) async fn live(&self) -> Result<Option<LiveHook>, Failure> {
        let (pass, identity) = (self.pass, &self.identity);
        let api = self.mapping.api(&pass.cluster.client, identity.namespace.as_deref());
        let found = api.get_opt(&identity.name).await;
        let found = found.map_err(|error| failure(&CallError::new(Action::Get, Some(identity), error)))?;
        let entry = pass.state.recorded.inventory.get(identity);
        Ok(found.map(|found| live(found, &pass.key.owner, entry)))
    }

    /// Creates the object.
    pub(super) async fn create(&self) -> Result<HookCreation, Failure> {
        let (pass, identity) = (self.pass, &self.identity);
        if pass.shared.protection.guard(identity) == Some(Guard::Always) {
            return Err(Failure::new(Reason::Protected, format!("{identity} may not be created by a hook")));
        }
        let mut object = self.hook.object.clone();
        object.set_annotation(annotations::HOOK_RUN, self.mark);
        let value = object.into_value();
        let object: DynamicObject = serde_json::from_value(value.clone()).map_err(|_| {
            let message =
                format!("hook {identity}: a field is {}", unreadable_fields::<DynamicObject>(&value));
            Failure::new(Reason::ManifestInvalid, message)
        })?;
        let params = PostParams { field_manager: Some(pass.ownership.creator()), ..PostParams::default() };
        let api = self.mapping.api(&pass.cluster.client, identity.namespace.as_deref());
        match api.create(&params, &object).await {
            Ok(_) => Ok(HookCreation::ByThisRun),
            // Another actor created it first; the next read shows which.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(HookCreation::ByOthers),
            Err(error) => {
                let error = CallError::new(Action::Create, Some(identity), error);
                if let Some(namespace) = error.missing_namespace() {
                    if pass.operation == Operation::Remove {
                        return Ok(HookCreation::NamespaceGone);
                    }
                    await_namespace(pass, namespace);
                }
                let failure = failure(&error);
                if let kyma_object_set::Failure::WebhookFailed(webhook) = error.failure {
                    return Ok(HookCreation::Unanswered { webhook, failure });
                }
                // The kind of a CRD that was just established is served a moment later.
                let soon = error.failure == kyma_object_set::Failure::NotFound;
                Err(if soon { failure.retry_after(SERVED_DELAY) } else { failure })
            }
        }
    }

    /// Deletes the object, as the delete policy of its hook says, if a hook of this component created it.
    pub(super) async fn delete_own(&self) -> Result<(), Failure> {
        let live = self.live().await?;
        let Some(live) = live.filter(|live| live.is_own && !live.deleting) else { return Ok(()) };
        if is_kept(&self.identity, live.mark.as_deref() == Some(self.mark)) {
            return Ok(());
        }
        self.delete(&live).await
    }

    /// Returns kind and name of another component that owns the object. A Job or Pod whose hook ended has no owner,
    /// since Helm replaces it too, nor has an object that a deleted component left.
    ///
    /// # Errors
    /// If the hub does not list its components, or the list is incomplete.
    pub(super) async fn other_owner(&self, live: &LiveHook) -> Result<Option<String>, Failure> {
        let has_ended = self.hook.has_an_end() && end(&live.body, false).is_some();
        let owner = &self.pass.key.owner;
        let mark = foreign_mark(&live.metadata, owner);
        let mark = mark.filter(|mark| !(has_ended && matches!(mark, ForeignMark::Hook(_))));
        let Some(mark) = mark else { return Ok(None) };
        owner_of(mark, &self.pass.components(|_| true).await?, owner)
    }

    /// Deletes the object through the delete gate.
    pub(super) async fn delete(&self, live: &LiveHook) -> Result<(), Failure> {
        let pass = self.pass;
        let managers = [pass.ownership.manager.clone(), pass.ownership.creator()];
        let managers = managers.each_ref().map(String::as_str);
        let is_ours = live.is_own || live.recorded;
        let is_of_this_run = live.mark.as_deref() == Some(self.mark);
        let request = DeleteRequest {
            resource: &self.mapping.resource,
            live: &live.metadata,
            authorship: if is_ours { Authorship::Managers(&managers) } else { Authorship::HelmHook },
            proof: if is_of_this_run { DeleteProof::SameRun } else { DeleteProof::None },
            propagation: PropagationPolicy::Background,
        };
        match pass.context.delete_gate().carry_out(&pass.cluster.client, &request).await {
            Ok(_) => Ok(()),
            // The object was replaced meanwhile, so the delete policy does not apply to it. The next read shows it.
            Err(kyma_controller::DeleteError::Call(kube::Error::Api(status))) if status.is_conflict() => {
                Ok(())
            }
            Err(kyma_controller::DeleteError::Refused(failure)) => Err(failure),
            Err(kyma_controller::DeleteError::Call(error)) => {
                Err(failure(&CallError::new(Action::Delete, Some(&self.identity), error)))
            }
        }
    }

    /// Applies the chart's labels and annotations of a hook to an existing Namespace, unless they have these values.
    pub(super) async fn label_namespace(&self, live: &LiveHook) -> Result<(), Failure> {
        let (pass, identity) = (self.pass, &self.identity);
        if pass.shared.protection.guard(identity) == Some(Guard::Always) {
            return Ok(());
        }
        let metadata = self.hook.object.body().get("metadata").cloned().unwrap_or_default();
        let chart_labels = chart_entries(&metadata["labels"]);
        let chart_annotations = chart_entries(&metadata["annotations"]);
        if has_entries(live.metadata.labels.as_ref(), &chart_labels)
            && has_entries(live.metadata.annotations.as_ref(), &chart_annotations)
        {
            return Ok(());
        }
        let resource = &self.mapping.resource;
        let body = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {
                "name": identity.name, "uid": live.uid,
                "labels": chart_labels, "annotations": chart_annotations,
            },
        });
        let params = PatchParams::apply(&pass.ownership.share_manager(&pass.ownership.owner)).force();
        let api = self.mapping.api(&pass.cluster.client, None);
        let applied = api.patch_metadata(&identity.name, &params, &Patch::Apply(&body)).await;
        let failed = |error| failure(&CallError::new(Action::Apply, Some(identity), error));
        applied.map(drop).map_err(failed)
    }
}

/// Watches a missing namespace: its creation requeues the component.
fn await_namespace(pass: &Pass<'_>, name: &str) {
    let Some(mapping) = pass.kinds.preferred(&GroupKind::new("", "Namespace")) else { return };
    let fields = Some(format!("metadata.name={name}"));
    pass.context.watch(WatchSpec { fields, ..WatchSpec::in_kind(&mapping.resource) });
}

/// Returns the facts about a live object.
fn live(found: DynamicObject, owner: &str, entry: Option<&Entry>) -> LiveHook {
    let metadata = &found.metadata;
    let label = |key: &str| metadata.labels.as_ref().and_then(|all| all.get(key));
    let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
    LiveHook {
        mark: annotation(annotations::HOOK_RUN),
        is_own: label(labels::HOOK_OF).is_some_and(|of| of == owner),
        is_hook: annotation(hooks::HOOK).is_some(),
        deleting: metadata.deletion_timestamp.is_some(),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        uid: metadata.uid.clone(),
        recorded: entry.is_some_and(|entry| Some(&entry.uid) == metadata.uid.as_ref()),
        metadata: found.metadata,
        body: found.data,
    }
}

/// Returns the failure for an object that the user has to delete before the hook can run.
pub(super) fn deletion_refused(hook: &str, why: &str) -> Failure {
    Failure::new(Reason::DeletionRefused, format!("hook {hook}: {why}")).no_later_than(RECHECK_DELAY)
}

/// Reports whether an object stays whatever the delete policy of its hook: a Namespace or CRD, with which other objects
/// would be deleted, and data that another run created.
fn is_kept(identity: &Identity, is_of_this_run: bool) -> bool {
    let holds_objects = identity.is_namespace() || identity.is_crd();
    holds_objects || needs_delete_proof(&identity.group, &identity.kind) && !is_of_this_run
}

/// Returns the mark of another component than `us` on an object.
fn foreign_mark<'a>(metadata: &'a ObjectMeta, us: &str) -> Option<ForeignMark<'a>> {
    let of_other = |label: &str| {
        let owner = metadata.labels.as_ref().and_then(|all| all.get(label)).map(String::as_str);
        owner.filter(|owner| *owner != us)
    };
    let owner = of_other(labels::OWNER).map(ForeignMark::Owner);
    owner.or_else(|| of_other(labels::HOOK_OF).map(ForeignMark::Hook))
}

/// Returns kind and name of the component that a mark names; `None` if `components` shows that it is gone. `us` is the
/// owner hash of this component.
fn owner_of(
    mark: ForeignMark<'_>,
    components: &BTreeMap<String, String>,
    us: &str,
) -> Result<Option<String>, Failure> {
    match mark {
        ForeignMark::Owner(owner) => {
            // Another operator may serve the owner, so an unknown one counts too.
            let name = components.get(owner).cloned();
            Ok(Some(name.unwrap_or_else(|| format!("component {owner}"))))
        }
        ForeignMark::Hook(owner) => {
            has_component(components, us)?;
            Ok(components.get(owner).cloned())
        }
    }
}

/// Returns the chart's entries of a map: without Helm's annotations and the operator's labels.
fn chart_entries(map: &Value) -> BTreeMap<String, String> {
    let entries = map.as_object().into_iter().flatten();
    let entries = entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    let is_of_chart =
        |key: &str| key != labels::HOOK_OF && key != labels::OWNER && !key.starts_with(HELM_PREFIX);
    entries.filter(|(key, _)| is_of_chart(key)).collect()
}

/// Reports whether a live map has all wanted entries.
fn has_entries(live: Option<&BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| live.and_then(|live| live.get(key)) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_policy_keeps_containers_and_data_of_another_run() {
        let crds = ("apiextensions.k8s.io", "CustomResourceDefinition");
        for (group, kind, of_this_run, of_another) in [
            ("", "Namespace", true, true),
            (crds.0, crds.1, true, true),
            ("", "PersistentVolumeClaim", false, true),
            ("", "PersistentVolume", false, true),
            ("batch", "Job", false, false),
        ] {
            let identity = Identity::new(group, kind, None, "o");
            assert_eq!(
                (is_kept(&identity, true), is_kept(&identity, false)),
                (of_this_run, of_another),
                "{kind}"
            );
        }
    }

    #[test]
    fn labels_show_another_component_as_owner_or_creator() {
        let (owner, hook_of) = (labels::OWNER, labels::HOOK_OF);
        let rows = [
            (json!({}), None),
            (json!({owner: "us"}), None),
            (json!({hook_of: "us"}), None),
            (json!({owner: "other"}), Some(ForeignMark::Owner("other"))),
            (json!({hook_of: "other"}), Some(ForeignMark::Hook("other"))),
            (json!({owner: "us", hook_of: "other"}), Some(ForeignMark::Hook("other"))),
            (json!({owner: "other", hook_of: "us"}), Some(ForeignMark::Owner("other"))),
        ];
        for (labels, expected) in rows {
            let metadata: ObjectMeta = serde_json::from_value(json!({"labels": labels})).unwrap();
            assert_eq!(foreign_mark(&metadata, "us"), expected, "{labels}");
        }
    }

    #[test]
    fn incomplete_component_list_proves_no_hook_owner_absent() {
        let all = |owners: &[&str]| -> BTreeMap<String, String> {
            owners.iter().map(|owner| ((*owner).to_owned(), format!("HelmComponent n/{owner}"))).collect()
        };
        let owner = |mark: ForeignMark<'_>, listed: &[&str]| {
            owner_of(mark, &all(listed), "us").map_err(|failure| failure.reason)
        };
        let name = |text: &str| Ok(Some(text.to_owned()));
        let hook = ForeignMark::Hook("other");
        assert_eq!(owner(hook, &["other", "us"]), name("HelmComponent n/other"));
        assert_eq!(owner(hook, &["us"]), Ok(None));
        assert_eq!(owner(hook, &[]), Err(Reason::HubUnavailable));
        assert_eq!(owner(ForeignMark::Owner("other"), &["other", "us"]), name("HelmComponent n/other"));
        assert_eq!(owner(ForeignMark::Owner("other"), &[]), name("component other"));
    }

    #[test]
    fn only_the_charts_labels_and_annotations_go_to_a_namespace() {
        let map = json!({labels::HOOK_OF: "us", "helm.sh/hook": "pre-install", "team": "a", "odd": 1});
        let wanted = chart_entries(&map);
        assert_eq!(wanted, [("team".to_owned(), "a".to_owned())].into());
        assert!(
            has_entries(Some(&wanted), &wanted)
                && !has_entries(None, &wanted)
                && has_entries(None, &BTreeMap::new())
        );
    }
}
