//! Helm's records on the target, described by their Secrets without the content.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, ObjectList, ObjectMeta, PartialObjectMeta, Patch, PatchParams};
use kube::{Api, ResourceExt};
use kyma_api::{ReleaseRecord, annotations};
use kyma_controller::{Failure, find_object, none_if_absent};
use kyma_helm::storage::{self, ReleaseStatus};

use super::shared_lists::Releases;
use crate::blocking::run_blocking;

/// Page size for records of one release. Helm keeps 10 by default (`--history-max`).
const RECORD_PAGE_SIZE: u32 = 500;
/// Maximum number of pages of one release.
const MAX_RECORD_PAGES: usize = 40;
/// Maximum number of records in a shared list of all releases of a namespace.
const MAX_SHARED_RECORDS: u32 = 200;
/// Label that names the release.
const RELEASE_LABEL: &str = "name";
/// Highest valid revision: Helm's counter is a 32-bit integer on some platforms.
const MAX_REVISION: i64 = 2_147_483_646;
/// Number of kept revisions if the spec has none, as in Helm.
pub(super) const DEFAULT_MAX_REVISIONS: usize = 10;

/// A record, described by its Secret without the content.
pub(super) struct Record {
    /// Name of the Secret.
    pub(super) name: String,
    /// Metadata of the Secret, for the delete gate.
    pub(super) metadata: ObjectMeta,
    /// Labels, which identify the revision and its status.
    labels: BTreeMap<String, String>,
    /// Digest of the release, if this operator wrote the record.
    pub(super) content: Option<String>,
}

impl Record {
    /// Returns the revision; `None` for a label value that is not a revision of Helm.
    pub(super) fn number(&self) -> Option<i64> {
        self.labels.get("version")?.parse().ok().filter(|number| (1..=MAX_REVISION).contains(number))
    }

    /// Reports whether this operator wrote the record.
    pub(super) fn is_ours(&self) -> bool {
        self.content.is_some()
    }

    pub(super) fn is(&self, status: ReleaseStatus) -> bool {
        self.labels.get("status").is_some_and(|label| label == status.as_str())
    }
}

/// Returns the revision after the newest of the records; `None` if the newest is the highest valid one.
pub(super) fn next_revision(records: &[Record]) -> Option<i64> {
    let newest = records.iter().filter_map(Record::number).max().unwrap_or_default();
    newest.checked_add(1).filter(|next| *next <= MAX_REVISION)
}

/// Returns the oldest records beyond those that are kept. One of the kept records is the newest, which `others`
/// lacks. Records that Helm wrote count towards the limit but are never deleted.
pub(super) fn surplus(others: &[Record], kept: usize) -> Vec<&Record> {
    let surplus = (others.len() + 1).saturating_sub(kept);
    others.iter().take(surplus).filter(|record| record.is_ours()).collect()
}

/// Returns all records of a release, without their content.
pub(super) async fn records(secrets: &Api<Secret>, release: &str) -> Result<Vec<Record>, Failure> {
    let listed = list_all(secrets, &storage::selector(release)).await.map_err(unlisted)?;
    Ok(listed.into_iter().filter_map(record).collect())
}

/// Lists all Secrets of a selector, page by page.
async fn list_all(secrets: &Api<Secret>, selector: &str) -> kube::Result<Vec<PartialObjectMeta<Secret>>> {
    let mut params = ListParams::default().labels(selector).limit(RECORD_PAGE_SIZE);
    let mut found = Vec::new();
    for _ in 0..MAX_RECORD_PAGES {
        let page = secrets.list_metadata(&params).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    Ok(found)
}

/// Returns the revision of a release that Helm has deployed; `None` if there is none, or Secrets may not be listed.
/// Records that the operator wrote, for an earlier object of a component, do not count.
pub(crate) async fn deployed(secrets: &Api<Secret>, release: &str) -> Result<Option<i64>, Failure> {
    let listed = match list_all(secrets, &storage::selector(release)).await {
        Ok(listed) => listed,
        Err(error) if is_forbidden(&error) => {
            tracing::info!(release, %error,
                "Secrets may not be listed, so no Helm record of a release is searched for");
            return Ok(None);
        }
        Err(error) => return Err(unlisted(error)),
    };
    Ok(deployed_in(listed).remove(release))
}

/// Returns the deployed revisions of all releases of a namespace; `None` if there are too many, or Secrets may not be
/// listed.
pub(crate) async fn all_deployed(secrets: &Api<Secret>) -> Result<Option<Releases>, Failure> {
    match list(secrets, storage::DEPLOYED, MAX_SHARED_RECORDS).await {
        Ok(listed) if listed.metadata.continue_.as_deref().unwrap_or_default().is_empty() => {
            Ok(Some(deployed_in(listed.items)))
        }
        Ok(_) => Ok(None),
        Err(error) if is_forbidden(&error) => Ok(None),
        Err(error) => Err(unlisted(error)),
    }
}

fn deployed_in(listed: Vec<PartialObjectMeta<Secret>>) -> Releases {
    let mut releases: BTreeMap<String, Vec<BTreeMap<String, String>>> = BTreeMap::new();
    for record in listed.into_iter().filter_map(record).filter(|record| !record.is_ours()) {
        let release = record.labels.get(RELEASE_LABEL).cloned().unwrap_or_default();
        releases.entry(release).or_default().push(record.labels);
    }
    let deployed = |(release, labels): (String, Vec<_>)| Some((release, storage::deployed(labels.iter())?));
    releases.into_iter().filter_map(deployed).collect()
}

async fn list(
    secrets: &Api<Secret>,
    selector: &str,
    most: u32,
) -> kube::Result<ObjectList<PartialObjectMeta<Secret>>> {
    secrets.list_metadata(&ListParams::default().labels(selector).limit(most)).await
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn unlisted(error: kube::Error) -> Failure {
    Failure::target("list Helm's records of the release", &error)
}

/// Returns the record in a Secret; `None` for other objects with such labels.
fn record(one: PartialObjectMeta<Secret>) -> Option<Record> {
    let record = Record {
        name: one.name_any(),
        content: one.annotations().get(annotations::RELEASE_CONTENT).cloned(),
        labels: one.metadata.labels.clone().unwrap_or_default(),
        metadata: one.metadata,
    };
    let release = record.labels.get(RELEASE_LABEL)?;
    let is_record = record.name == storage::secret_name(release, record.number()?);
    is_record.then_some(record)
}

/// Returns the state to store for a record that is too large. The next release is tried again.
pub(super) fn too_large(content: String, bytes: usize) -> ReleaseRecord {
    let message =
        format!("Helm's record would be {bytes} bytes large, more than a Secret may be, and is not written");
    ReleaseRecord { digest: content, message: Some(message), ..ReleaseRecord::default() }
}

/// Returns the state to store for a release whose newest record has the highest valid revision. The release itself is
/// installed, and the next one is tried again.
pub(super) fn without_successor(content: String) -> ReleaseRecord {
    let message = format!(
        "Helm's record is not written: the newest record has revision {MAX_REVISION}, the highest; delete its Secret"
    );
    ReleaseRecord { digest: content, message: Some(message), ..ReleaseRecord::default() }
}

/// Returns the stored release of a Secret; empty if it has none.
pub(super) fn stored_in(secret: Option<Secret>) -> Vec<u8> {
    let mut data = secret.and_then(|secret| secret.data).unwrap_or_default();
    data.remove(storage::KEY).map(|stored| stored.0).unwrap_or_default()
}

pub(super) async fn supersede(secrets: &Api<Secret>, record: &Record) -> Result<(), Failure> {
    let failed = |error: kube::Error| Failure::target("change Helm's record of an earlier revision", &error);
    let Some(found) = find_object(secrets, &record.name).await.map_err(failed)? else { return Ok(()) };
    let stored = stored_in(Some(found));
    // Unreadable records stay unchanged; Helm cannot read them either.
    let Ok(patch) = run_blocking(move || storage::superseded(&stored, Timestamp::now())).await? else {
        return Ok(());
    };
    let patched = secrets.patch_metadata(&record.name, &PatchParams::default(), &Patch::Merge(patch)).await;
    none_if_absent(secrets, &record.name, patched).map(drop).map_err(failed)
}

#[cfg(test)]
mod tests;
