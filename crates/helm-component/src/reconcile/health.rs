//! Steps that read objects whose health the watches alone do not show.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use kyma_controller::{Failure, evaluate_on_thread, target_group};
use kyma_health::HealthStatus;
use kyma_object_set::{Action, CallError, Entry, GroupKind, Identity};
use serde_json::Value;

use super::calls::failure;
use crate::memory::CauseReadTime;
use crate::observe::health::classes;
use crate::pass::Pass;
use crate::plan::{self, Operation};

/// Maximum number of parallel reads.
const MAX_PARALLEL_READS: usize = 8;
/// Timeout for the evaluation of the expressions of one object.
const JUDGING_DEADLINE: Duration = Duration::from_secs(10);
/// Maximum number of objects of a component whose causes are read.
const MAX_CAUSE_READS: usize = 5;
/// Maximum number of Pods and ReplicaSets that are read for one object.
const MAX_LISTED_PODS: u32 = 20;
/// Binding mode of a StorageClass that waits for the first Pod.
const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";
/// Annotation with the revision of the Deployment that a ReplicaSet belongs to.
const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";
/// Label that a ReplicaSet of a Deployment and its Pods share.
const POD_TEMPLATE_HASH_LABEL: &str = "pod-template-hash";

impl Pass<'_> {
    /// Notes Jobs of the inventory that have finished and that Kubernetes deletes by itself.
    pub(super) fn note_finished(&mut self) {
        let inventory = &mut self.state.recorded.inventory;
        for identity in self.shared.target_cache.finished(&self.context.target, inventory) {
            let entry = inventory.get(&identity).filter(|entry| !entry.finished).cloned();
            if let Some(entry) = entry {
                inventory.insert(identity, Entry { finished: true, ..entry });
            }
        }
    }

    /// Reads objects whose health was determined by other rules, and the StorageClasses of claims that no Pod uses.
    pub(super) async fn judge_health(&mut self, seen: &plan::Observed) -> Result<(), Failure> {
        self.done.judged = true;
        let snapshot = self.snapshot();
        self.state.classes = self.waiting_classes(classes(&snapshot, &seen.objects)).await;
        if snapshot.unjudged.is_empty() {
            return Ok(());
        }
        let this = &*self;
        let reads = stream::iter(snapshot.unjudged).map(|identity| this.read_and_judge(identity));
        reads.buffer_unordered(MAX_PARALLEL_READS).try_collect::<()>().await?;
        self.shared.target_cache.all_judged(&self.context.target, &self.key);
        Ok(())
    }

    async fn read_and_judge(&self, identity: Identity) -> Result<(), Failure> {
        let Some(object) = self.read_object(&identity).await.map_err(|error| failure(&error))? else {
            return Ok(());
        };
        let Ok(rules) = self.rules.clone() else { return Ok(()) };
        let (target_cache, target) = (self.shared.target_cache.clone(), self.context.target.clone());
        let group = target_group(target.key());
        let judge = move || target_cache.judge(&target, &rules, &identity, &object);
        evaluate_on_thread(&group, JUDGING_DEADLINE, judge).await
    }

    async fn read_object(&self, identity: &Identity) -> Result<Option<DynamicObject>, CallError> {
        let Some(mapping) = self.kinds.preferred(&identity.group_kind()) else { return Ok(None) };
        let api = mapping.api(&self.cluster.client, identity.namespace.as_deref());
        let found = api.get_opt(&identity.name).await;
        found.map_err(|error| CallError::new(Action::Get, Some(identity), error))
    }

    /// Returns for each class whether it binds a claim only for the first Pod. An unreadable class counts as one that
    /// does not.
    async fn waiting_classes(&self, wanted: BTreeSet<String>) -> BTreeMap<String, bool> {
        let api: Api<StorageClass> = Api::all(self.cluster.client.clone());
        let mut known = BTreeMap::new();
        for class in wanted {
            let waits = match self.state.classes.get(&class) {
                Some(waits) => *waits,
                None if kyma_controller::is_object_name(&class) => match api.get_opt(&class).await {
                    Ok(found) => found.is_some_and(|one| {
                        one.volume_binding_mode.as_deref() == Some(WAIT_FOR_FIRST_CONSUMER)
                    }),
                    Err(error) => {
                        let failure = Failure::target(&format!("read StorageClass {class}"), &error);
                        tracing::debug!(%failure, "the PersistentVolumeClaims of the class count as waiting");
                        false
                    }
                },
                None => false,
            };
            known.insert(class, waits);
        }
        known
    }

    /// Reads, a few times for each wait, the causes that hold up objects. They are only used in messages, so
    /// unreadable ones are left out.
    pub(super) async fn read_causes(&mut self, seen: &plan::Observed) {
        self.done.causes_read = true;
        if self.operation != Operation::Install {
            return;
        }
        let snapshot = self.snapshot();
        let waits = seen
            .objects
            .iter()
            .filter(|object| object.counts && !matches!(object.health, None | Some(HealthStatus::Current)));
        let mut causes = BTreeMap::new();
        for object in waits.take(MAX_CAUSE_READS) {
            let identity = &object.identity;
            let own = snapshot.objects.get(identity).and_then(|seen| seen.health.as_ref());
            let own = own.map(|health| health.message.clone()).unwrap_or_default();
            let found = self.read_cause(identity).await.unwrap_or_else(|failure| {
                tracing::debug!(%identity, %failure, "the cause cannot be read");
                None
            });
            causes.insert(identity.clone(), found.unwrap_or(own));
        }
        self.state.delay_causes = causes;
        let at = jiff::Timestamp::now().as_second();
        self.state.cause_read = self.state.unready_since.map(|wait| CauseReadTime { wait, at });
    }

    /// Returns the cause that a workload or its newest Pods show; `None` if they show none.
    async fn read_cause(&self, identity: &Identity) -> Result<Option<String>, Failure> {
        if identity.is("", "Pod") {
            let pod = self.read_object(identity).await.map_err(|error| failure(&error))?;
            return Ok(pod.and_then(|pod| kyma_health::pod_failure_reason(&pod.data)));
        }
        if !kyma_health::creates_pods(&identity.group, &identity.kind) {
            return Ok(None);
        }
        let workload = self.read_object(identity).await.map_err(|error| failure(&error))?;
        let Some(workload) = workload else { return Ok(None) };
        let Some(mut selector) = selector(&workload.data) else { return Ok(None) };
        let mut owner = workload.metadata.uid.clone().unwrap_or_default();
        if identity.is("apps", "Deployment") {
            let sets = self.list_objects(&GroupKind::new("apps", "ReplicaSet"), identity, &selector).await?;
            let newest = sets.into_iter().filter(|set| is_owned_by(set, &owner)).max_by_key(revision);
            let Some(newest) = newest else { return Ok(None) };
            if let Some(refused) = kyma_health::replica_failure(&newest.data) {
                return Ok(Some(refused));
            }
            if let Some(hash) = newest.labels().get(POD_TEMPLATE_HASH_LABEL) {
                selector = format!("{selector},{POD_TEMPLATE_HASH_LABEL}={hash}");
            }
            owner = newest.metadata.uid.unwrap_or_default();
        }
        let pods = self.list_objects(&GroupKind::new("", "Pod"), identity, &selector).await?;
        let own =
            pods.iter().filter(|pod| is_owned_by(pod, &owner) && pod.metadata.deletion_timestamp.is_none());
        let mut own: Vec<&DynamicObject> = own.collect();
        own.sort_by_key(|pod| std::cmp::Reverse(pod.creation_timestamp().map(|time| time.0)));
        let said = own.iter().find_map(|pod| {
            kyma_health::pod_failure_reason(&pod.data).map(|why| format!("Pod {}: {why}", pod.name_any()))
        });
        Ok(said.or_else(|| kyma_health::replica_failure(&workload.data)))
    }

    async fn list_objects(
        &self,
        kind: &GroupKind,
        of: &Identity,
        selector: &str,
    ) -> Result<Vec<DynamicObject>, Failure> {
        let Some(mapping) = self.kinds.preferred(kind) else { return Ok(vec![]) };
        let api = mapping.api(&self.cluster.client, of.namespace.as_deref());
        let params = ListParams::default().labels(selector).limit(MAX_LISTED_PODS);
        let listed = api.list(&params).await;
        listed.map(|list| list.items).map_err(|error| Failure::target(&format!("list {kind}"), &error))
    }

    pub(super) fn snapshot(&self) -> crate::target_cache::Snapshot {
        let inventory = &self.state.recorded.inventory;
        self.shared.target_cache.snapshot(&self.context.target, &self.key, inventory)
    }
}

/// Returns the labels by which a workload selects its Pods, as a selector; `None` if it selects them otherwise.
fn selector(workload: &Value) -> Option<String> {
    let selector = workload.pointer("/spec/selector")?;
    // The selector of a ReplicationController consists of the labels.
    let labels = selector.get("matchLabels").unwrap_or(selector).as_object()?;
    let pairs = labels.iter().map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    pairs.collect::<Option<Vec<_>>>().filter(|pairs| !pairs.is_empty()).map(|pairs| pairs.join(","))
}

fn is_owned_by(object: &DynamicObject, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.uid == uid)
}

fn revision(set: &DynamicObject) -> i64 {
    let revision = set.annotations().get(REVISION_ANNOTATION).and_then(|text| text.parse().ok());
    revision.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_are_found_by_labels_and_not_where_only_expressions_tell() {
        let selector = |found: Value| selector(&json!({"spec": {"selector": found}}));
        let both = json!({"matchLabels": {"app": "a", "tier": "b"}});
        assert_eq!(selector(both).as_deref(), Some("app=a,tier=b"));
        assert_eq!(selector(json!({"app": "a"})).as_deref(), Some("app=a"), "a ReplicationController's");
        assert_eq!(selector(json!({"matchLabels": {}})), None);
        assert_eq!(selector(json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]})), None);
    }
}
