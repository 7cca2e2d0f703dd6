//! Finds users' objects that block a removal. A kind that cannot be listed blocks the removal too.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, ListParams, PartialObjectMeta},
    core::{DynamicObject, GroupVersionKind},
    discovery::{self, ApiCapabilities, ApiGroup},
    error::DiscoveryError,
};
use kyma_api::GroupKind;

use crate::calls::served::none_if_unserved;
use crate::failure::Failure;

/// Objects in one page of a list.
const LIST_PAGE_SIZE: u32 = 500;
/// Maximum number of objects that a message names.
const MAX_LISTED_OBJECTS: usize = 20;
/// Number of objects at which counting stops.
const MAX_COUNTED_OBJECTS: usize = 10_000;
/// Maximum length of a displayed name or finalizer, in characters.
const MAX_NAME_CHARS: usize = 253;

/// Kinds whose objects block a removal.
///
/// ```
/// use kyma_api::GroupKind;
/// use kyma_controller::Blocking;
///
/// let kind = GroupKind { group: "demo.example.org".to_owned(), kind: "Guest".to_owned(), version: None };
/// let blocking = Blocking { kinds: vec![kind], ..Blocking::default() };
/// assert!(blocking.own.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocking {
    /// The kinds; without a version, every served version is listed.
    pub kinds: Vec<GroupKind>,
    /// uids of objects that do not count: the component's own inventory and the default CR.
    pub own: Vec<String>,
}

/// Objects that block a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blockers {
    /// Number of objects; counting stops at 10,000.
    pub count: usize,
    /// The first 20 by kind, namespace and name.
    pub first: Vec<Blocker>,
    /// The listed kinds, as the target serves them. The caller watches them until the removal continues.
    pub resources: Vec<ApiResource>,
}

/// One object that blocks a removal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blocker {
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty if cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its finalizers, whose controllers have to finish if the object is being deleted.
    pub finalizers: Vec<String>,
    /// Whether it has a deletionTimestamp.
    pub deleting: bool,
}

impl Blockers {
    /// Returns a message of one line for users: the blocking objects, and what to do.
    pub fn describe(&self) -> String {
        let named: Vec<String> = self.first.iter().map(Blocker::describe).collect();
        let more = match self.count.saturating_sub(self.first.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("delete these first: {}{more}", named.join(", "))
    }
}

impl Blocker {
    fn describe(&self) -> String {
        let Self { kind, namespace, name, finalizers, deleting } = self;
        let place = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
        match (deleting, finalizers.as_slice()) {
            (true, [_, ..]) => format!("{kind} {place} (being deleted, waits for {})", finalizers.join(", ")),
            _ => format!("{kind} {place}"),
        }
    }
}

/// Lists objects of the blocking kinds in all namespaces, in the version that the kind names if the target serves it
/// and otherwise in all served versions. A kind that the target does not serve has none.
///
/// # Errors
/// Any failure that leaves the answer incomplete.
pub async fn find_blockers(target: &Client, blocking: &Blocking) -> Result<Blockers, Failure> {
    let own: HashSet<&str> = blocking.own.iter().map(String::as_str).collect();
    let mut found = BTreeMap::new();
    let mut resources = vec![];
    // All versions show the same objects, so it is enough that one of them can be listed.
    let mut kinds: BTreeMap<(String, String), Option<Failure>> = BTreeMap::new();
    for resource in served_kinds(target, &blocking.kinds).await? {
        let listed = list(target, &resource, &own, &mut found).await;
        let kind = (resource.group.clone(), resource.kind.clone());
        match (listed, kinds.get(&kind)) {
            (Ok(()), _) => drop(kinds.insert(kind, None)),
            (Err(failure), None) => drop(kinds.insert(kind, Some(failure))),
            (Err(_), Some(_)) => {}
        }
        resources.push(resource);
    }
    if let Some(failure) = kinds.into_values().flatten().next() {
        return Err(failure);
    }
    let mut first: Vec<Blocker> = found.values().cloned().collect();
    first.sort_unstable();
    first.truncate(MAX_LISTED_OBJECTS);
    Ok(Blockers { count: found.len(), first, resources })
}

/// Returns the kinds that the target serves: in the named versions if it serves all of them, otherwise in all versions.
///
/// # Errors
/// The target does not answer for one of the API groups.
pub async fn served_kinds(target: &Client, kinds: &[GroupKind]) -> Result<Vec<ApiResource>, Failure> {
    let mut groups: BTreeMap<&str, BTreeMap<&str, Versions<'_>>> = BTreeMap::new();
    for GroupKind { group, kind, version } in kinds {
        let named = groups.entry(group).or_default().entry(kind).or_insert_with(|| Some(BTreeSet::new()));
        match (version, named.as_mut()) {
            (None, _) => *named = None,
            (Some(version), Some(versions)) => drop(versions.insert(version.as_str())),
            (Some(_), None) => {}
        }
    }
    let mut resources = vec![];
    for (name, kinds) in groups {
        let Some(group) = api_group(target, name).await? else { continue };
        let mut found = vec![];
        for version in group.versions() {
            let all = group.versioned_resources(version).into_iter().map(|(resource, _)| resource);
            found.extend(all.filter(|resource| kinds.contains_key(resource.kind.as_str())));
        }
        resources.extend(kinds_to_list(&kinds, &found));
    }
    Ok(resources)
}

/// Returns a kind with its scope as the target serves it: in the named version, or in another one if that is not
/// served. `None`: the target does not serve the kind.
///
/// # Errors
/// The target does not answer for the API group.
pub async fn served_kind(
    target: &Client,
    named: &GroupVersionKind,
) -> Result<Option<(ApiResource, ApiCapabilities)>, Failure> {
    // One request; any failure is judged by the read of the whole group.
    if let Ok(served) = discovery::pinned_kind(target, named).await {
        return Ok(Some(served));
    }
    let Some(group) = api_group(target, &named.group).await? else { return Ok(None) };
    let in_version = |version: &str| {
        let all = group.versioned_resources(version);
        all.into_iter().find(|(resource, _)| resource.kind == named.kind)
    };
    Ok(in_version(&named.version).or_else(|| group.versions().find_map(in_version)))
}

/// Returns an API group of the target with its kinds; `None` if the target does not serve it.
async fn api_group(target: &Client, name: &str) -> Result<Option<ApiGroup>, Failure> {
    match discovery::group(target, name).await {
        Ok(group) => Ok(Some(group)),
        Err(kube::Error::Discovery(DiscoveryError::MissingApiGroup(_))) => Ok(None),
        Err(error) => Err(Failure::target(&format!("look up API group {name}"), &error)),
    }
}

/// Versions that entries name for a kind; `None` if an entry names no version, so that all served versions count.
type Versions<'a> = Option<BTreeSet<&'a str>>;

/// Keeps only the named versions of a kind if the target serves each of them; otherwise keeps all served versions,
/// since the named ones may not show all objects.
fn kinds_to_list(kinds: &BTreeMap<&str, Versions<'_>>, served: &[ApiResource]) -> Vec<ApiResource> {
    let is_served = |kind: &str, version: &str| {
        served.iter().any(|resource| resource.kind == kind && resource.version == version)
    };
    let is_kept = |resource: &ApiResource| {
        let Some(Some(versions)) = kinds.get(resource.kind.as_str()) else { return true };
        let all_served = versions.iter().all(|version| is_served(&resource.kind, version));
        !all_served || versions.contains(resource.version.as_str())
    };
    served.iter().filter(|resource| is_kept(resource)).cloned().collect()
}

async fn list(
    target: &Client,
    resource: &ApiResource,
    own: &HashSet<&str>,
    found: &mut BTreeMap<String, Blocker>,
) -> Result<(), Failure> {
    let api: Api<DynamicObject> = Api::all_with(target.clone(), resource);
    let mut params = ListParams::default().limit(LIST_PAGE_SIZE);
    while found.len() < MAX_COUNTED_OBJECTS {
        let page = none_if_unserved(target, resource, api.list_metadata(&params).await).await;
        let page = page.map_err(|error| Failure::target(&format!("list {}", resource.kind), &error))?;
        // Discovery lags behind the removal of a CRD, and with the CRD its objects went.
        let Some(page) = page else { return Ok(()) };
        for object in &page.items {
            let uid = object.uid().unwrap_or_default();
            if !own.contains(uid.as_str()) {
                found.insert(shown(&uid), blocker(resource, object));
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
    Ok(())
}

fn blocker(resource: &ApiResource, object: &PartialObjectMeta<DynamicObject>) -> Blocker {
    Blocker {
        kind: resource.kind.clone(),
        namespace: shown(&object.namespace().unwrap_or_default()),
        name: shown(&object.name_any()),
        finalizers: object.finalizers().iter().map(|one| shown(one)).take(MAX_LISTED_OBJECTS).collect(),
        deleting: object.metadata.deletion_timestamp.is_some(),
    }
}

/// Sanitizes a name from an untrusted target: keeps only characters that object names consist of.
fn shown(name: &str) -> String {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || "-._:/".contains(*c);
    name.chars().filter(allowed).take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocker(name: &str, finalizers: &[&str], deleting: bool) -> Blocker {
        Blocker {
            kind: "Sample".into(),
            namespace: "default".into(),
            name: name.into(),
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
            deleting,
        }
    }

    #[test]
    fn a_named_version_is_listed_where_it_is_served() {
        let resource = |version: &str| ApiResource {
            group: "x.io".into(),
            version: version.into(),
            api_version: format!("x.io/{version}"),
            kind: "Sample".into(),
            plural: "samples".into(),
        };
        let found = |versions: Versions<'_>| -> Vec<String> {
            let kinds = BTreeMap::from([("Sample", versions)]);
            let all = kinds_to_list(&kinds, &[resource("v1"), resource("v2")]);
            all.into_iter().map(|resource| resource.version).collect()
        };
        assert_eq!(found(None), ["v1", "v2"]);
        assert_eq!(found(Some(BTreeSet::from(["v2"]))), ["v2"]);
        assert_eq!(found(Some(BTreeSet::from(["v3"]))), ["v1", "v2"], "fails closed");
        assert_eq!(found(Some(BTreeSet::from(["v1", "v3"]))), ["v1", "v2"]);
    }

    #[test]
    fn people_are_told_what_to_delete_and_what_a_deletion_waits_for() {
        let blockers = Blockers {
            count: 25,
            first: vec![blocker("a", &["x.io/f"], false), blocker("b", &["x.io/f"], true)],
            resources: vec![],
        };
        assert_eq!(
            blockers.describe(),
            "delete these first: Sample default/a, Sample default/b (being deleted, waits for x.io/f) and 23 more"
        );
    }

    #[test]
    fn names_from_targets_are_reduced_to_names() {
        assert_eq!(shown("a-b.c\n<script>\u{1b}[31m"), "a-b.cscript31m");
        assert_eq!(shown(&"x".repeat(10_000)).len(), MAX_NAME_CHARS);
    }
}
