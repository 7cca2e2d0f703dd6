//! Reads the objects of a component from its target.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::{StreamExt as _, TryStreamExt as _};
use helm_component::HelmComponents;
use jiff::Timestamp;
use kube::{
    Client, ResourceExt as _,
    api::{DynamicObject, ListParams, TypeMeta},
};
use kyma_api::{ErrorClass, HelmComponent, names};
use kyma_controller::Failure;
use kyma_object_set::{Cluster, Entry, GroupKind, Gvk, Identity, Kinds};
use kyma_sdk::Component as _;

use super::node::{Node, ReadResult, Role, View};
use crate::{error::Error, output};

/// Maximum number of concurrent calls to the target.
const MAX_PARALLEL_READS: usize = 8;
/// Page size of lists.
const LIST_PAGE_SIZE: u32 = 250;

/// An object of the component, with the record of its last apply.
type Part = (Identity, String, Role, Option<Entry>);

/// Returns all recorded objects of the component with the objects that they own.
pub(super) async fn nodes(
    client: &Client,
    component: &HelmComponent,
    now: Timestamp,
) -> Result<Vec<Node>, Error> {
    let (namespace, name) = (component.namespace().unwrap_or_default(), component.name_any());
    let owner = names::owner_hash(&namespace, &name);
    let view = View { manager: HelmComponents::NAME, owner: &owner, now };
    let cluster = Cluster::new(client.clone());
    let kinds = cluster.discovery.kinds(client).await;
    let kinds = kinds.map_err(|error| match error.of_target() {
        Some(cause) => Failure::target("ask what the target serves", cause),
        None => Failure::new(error.reason(), error.to_string()),
    })?;
    let target = Target { client, kinds: &kinds };
    let read = futures::stream::iter(parts(component)?).map(|(identity, version, role, entry)| {
        let (target, view) = (&target, &view);
        async move {
            let found = target.found(&identity, &version).await?;
            Ok::<_, Failure>(view.node(&identity, role, entry.as_ref(), &found))
        }
    });
    let mut nodes: Vec<Node> = read.buffered(MAX_PARALLEL_READS).try_collect().await?;
    let below = target.owned(&nodes).await?;
    view.grow(&mut nodes, &below);
    Ok(nodes)
}

/// Returns the objects in the status: inventory, default custom resource, hooks.
fn parts(component: &HelmComponent) -> Result<Vec<Part>, Error> {
    let inventory = helm_component::inventory(component).map_err(|error| Error::Input {
        what: format!("HelmComponent {}", component.name_any()),
        problem: format!("{error}; helm-component searches for its objects again at its next reconcile"),
    })?;
    let objects = inventory.iter().map(|(identity, entry)| {
        (identity.clone(), entry.version.clone(), Role::Object, Some(entry.clone()))
    });
    let status = component.status.as_ref();
    let made = status.and_then(|status| status.resource.as_ref()).map(|made| {
        let (group, version) = made.api_version.rsplit_once('/').unwrap_or(("", &made.api_version));
        let identity = Identity::new(group, &made.kind, made.namespace.as_deref(), &made.name);
        (identity, version.to_owned(), Role::DefaultResource, None)
    });
    let hooks = status.and_then(|status| status.hooks.as_ref());
    let hooks = hooks.into_iter().flat_map(|hooks| hooks.succeeded.iter().flatten().chain(&hooks.running));
    let hooks = hooks.filter_map(|hook| Some((named(hook)?, String::new(), Role::Hook, None)));
    Ok(objects.chain(made).chain(hooks).collect())
}

/// Parses `Kind.group namespace/name`, the format in records of hooks.
fn named(text: &str) -> Option<Identity> {
    let (kind, place) = text.split_once(' ')?;
    let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
    let (namespace, name) = place.split_once('/').map_or((None, place), |(space, name)| (Some(space), name));
    Some(Identity::new(group, kind, namespace, name))
}

struct Target<'a> {
    client: &'a Client,
    kinds: &'a Kinds,
}

impl Target<'_> {
    async fn found(&self, identity: &Identity, version: &str) -> Result<ReadResult, Failure> {
        let Some(mapping) = self.kinds.any(&Gvk::new(&identity.group, version, &identity.kind)) else {
            let unknown = self.kinds.is_unknown(&identity.group);
            return Ok(ReadResult::Unknown(if unknown {
                format!("the API group {} does not answer", identity.group)
            } else {
                "its kind is not served".to_owned()
            }));
        };
        let api = mapping.api(self.client, identity.namespace.as_deref());
        match api.get_opt(&identity.name).await {
            Ok(Some(live)) => Ok(ReadResult::Live(Box::new(live))),
            Ok(None) => Ok(ReadResult::Nothing),
            Err(error) => {
                let failure = Failure::target(&format!("read {identity}"), &error);
                let is_of_target = failure.class == ErrorClass::Unreachable;
                if is_of_target { Err(failure) } else { Ok(ReadResult::Unknown(failure.message)) }
            }
        }
    }

    /// Returns the objects that these workloads own: ReplicaSets and Jobs first, then Pods.
    async fn owned(&self, nodes: &[Node]) -> Result<Vec<(Identity, DynamicObject)>, Failure> {
        let mut owners: BTreeMap<&str, HashSet<String>> = BTreeMap::new();
        let mut middle: BTreeSet<(&str, &str)> = BTreeSet::new();
        for node in nodes {
            let (Some(namespace), Some(uid)) = (&node.namespace, &node.uid) else { continue };
            match (&*node.group, &*node.kind) {
                ("apps", "Deployment") => drop(middle.insert((namespace, "ReplicaSet"))),
                ("batch", "CronJob") => drop(middle.insert((namespace, "Job"))),
                ("apps", "StatefulSet" | "DaemonSet" | "ReplicaSet") | ("batch", "Job") => {}
                _ => continue,
            }
            owners.entry(namespace).or_default().insert(uid.clone());
        }
        let mut found = vec![];
        for (namespace, kind) in middle {
            let group = if kind == "Job" { "batch" } else { "apps" };
            let of = owners.get(namespace).cloned().unwrap_or_default();
            let listed = self.list(&GroupKind::new(group, kind), namespace, &of).await?;
            let uids = listed.iter().filter_map(|(_, one)| one.metadata.uid.clone());
            owners.entry(namespace).or_default().extend(uids);
            found.extend(listed);
        }
        for (namespace, of) in owners {
            found.extend(self.list(&GroupKind::new("", "Pod"), namespace, &of).await?);
        }
        Ok(found)
    }

    /// Lists the objects of a kind that one of these owns. A failure is reported and the rest of the kind omitted,
    /// unless the target is unreachable.
    async fn list(
        &self,
        kind: &GroupKind,
        namespace: &str,
        owners: &HashSet<String>,
    ) -> Result<Vec<(Identity, DynamicObject)>, Failure> {
        let Some(mapping) = self.kinds.preferred(kind) else { return Ok(vec![]) };
        let api = mapping.api(self.client, Some(namespace));
        let types = TypeMeta {
            api_version: mapping.resource.api_version.clone(),
            kind: mapping.resource.kind.clone(),
        };
        let mut params = ListParams::default().limit(LIST_PAGE_SIZE);
        let mut found = vec![];
        loop {
            let page = match api.list(&params).await {
                Ok(page) => page,
                Err(error) => {
                    let failure = Failure::target(&format!("list {kind} in {namespace}"), &error);
                    if failure.class == ErrorClass::Unreachable {
                        return Err(failure);
                    }
                    output::remark(&failure.message);
                    return Ok(found);
                }
            };
            let is_owned =
                |one: &DynamicObject| one.owner_references().iter().any(|owner| owners.contains(&owner.uid));
            for one in page.items.into_iter().filter(is_owned) {
                let identity = Identity::new(&kind.group, &kind.kind, Some(namespace), &one.name_any());
                // Items of a list do not repeat their kind.
                found.push((identity, DynamicObject { types: Some(types.clone()), ..one }));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_hooks_are_read_as_they_are_written() {
        let all = [
            Identity::new("batch", "Job", Some("n"), "j"),
            Identity::new("", "Pod", Some("n"), "p.q"),
            Identity::new("rbac.authorization.k8s.io", "ClusterRole", None, "system:r"),
        ];
        for identity in all {
            assert_eq!(named(&identity.to_string()), Some(identity));
        }
        assert_eq!(named("nothing"), None);
    }
}
