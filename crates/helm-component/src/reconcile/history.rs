//! Steps that write releases to the target as Helm does.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{
    ApiResource, ListParams, ObjectList, ObjectMeta, PartialObjectMeta, Patch, PatchParams, PostParams,
};
use kube::{Api, ResourceExt};
use kyma_api::{Reason, ReleaseRecord, annotations};
use kyma_helm::storage::{self, ReleaseStatus, Revision};
use kyma_sdk::{DeleteError, DeleteRequest, Failure, find_object, none_if_absent};

use super::Pass;
use crate::blocking::run_blocking;
use crate::content::{Inputs, LoadedContent};
use crate::release_records::Releases;

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
const DEFAULT_MAX_REVISIONS: usize = 10;

/// A record, described by its Secret without the content.
struct Record {
    /// Name of the Secret.
    name: String,
    /// Metadata of the Secret, for the delete gate.
    metadata: ObjectMeta,
    /// Labels, which identify the revision and its status.
    labels: BTreeMap<String, String>,
    /// Digest of the release, if this operator wrote the record.
    content: Option<String>,
}

impl Record {
    /// Returns the revision; `None` for a label value that is not a revision of Helm.
    fn number(&self) -> Option<i64> {
        self.labels.get("version")?.parse().ok().filter(|number| (1..=MAX_REVISION).contains(number))
    }

    /// Reports whether this operator wrote the record.
    fn is_ours(&self) -> bool {
        self.content.is_some()
    }

    fn is(&self, status: ReleaseStatus) -> bool {
        self.labels.get("status").is_some_and(|label| label == status.as_str())
    }
}

impl Pass<'_> {
    /// Records the loaded content as a revision of the release.
    pub(super) async fn record_release(&mut self, status: ReleaseStatus) {
        self.done.history_tried = true;
        match self.write_release(status).await {
            Ok(Some(record)) => self.state.recorded.release_record = Some(record),
            Ok(None) => {}
            Err(failure) => self.done.history = Some(failure),
        }
    }

    async fn write_release(&self, status: ReleaseStatus) -> Result<Option<ReleaseRecord>, Failure> {
        let Some(loaded) = self.state.loaded.clone() else { return Ok(None) };
        let inputs = self.inputs.as_ref().map_err(Clone::clone)?;
        // Not the digest of a retry, which is the same release.
        let content = inputs.release_digest(&loaded.source);
        let secrets: Api<Secret> = Api::namespaced(self.cluster.client.clone(), &inputs.release.namespace);
        let mut records = records(&secrets, &inputs.release.name).await?;
        records.sort_by_key(Record::number);
        // A process that ended after it wrote this record continues with it.
        let written =
            records.iter().find(|record| record.content.as_deref() == Some(&*content) && record.is(status));
        let number = if let Some(number) = written.and_then(Record::number) {
            number
        } else {
            let Some(number) = next_revision(&records) else { return Ok(Some(without_successor(content))) };
            let first = self.first_deployed(&secrets, records.last()).await?;
            let (inputs, description) = (inputs.clone(), self.describe(status, number));
            let encoded = run_blocking(move || {
                let revision = revision(&inputs, &loaded, number, status, first, &description);
                revision.map(|revision| storage::encode(&revision))
            });
            match encoded.await? {
                None => return Ok(None),
                Some(Ok(secret)) => self.create_record(&secrets, secret, &content).await?,
                Some(Err(bytes)) => return Ok(Some(too_large(content, bytes))),
            }
            number
        };
        let (deployed, mut others): (Vec<Record>, Vec<Record>) = records
            .into_iter()
            .filter(|record| record.number() != Some(number))
            .partition(|record| record.is(ReleaseStatus::Deployed));
        if status == ReleaseStatus::Deployed {
            for record in &deployed {
                supersede(&secrets, record).await?;
            }
            others.extend(deployed);
            others.sort_by_key(Record::number);
        }
        self.drop_oldest(&others).await?;
        let status = Some(status.as_str().to_owned());
        Ok(Some(ReleaseRecord { digest: content, revision: Some(number), status, message: None }))
    }

    fn describe(&self, status: ReleaseStatus, number: i64) -> String {
        match status {
            ReleaseStatus::Failed => {
                let mut faults = self.done.faults.values();
                faults.next().map(|fault| format!("failed: {}", fault.message)).unwrap_or_default()
            }
            _ if number == 1 => "Install complete".to_owned(),
            _ => "Upgrade complete".to_owned(),
        }
    }

    async fn first_deployed(
        &self,
        secrets: &Api<Secret>,
        last: Option<&Record>,
    ) -> Result<Timestamp, Failure> {
        let Some(last) = last else { return Ok(Timestamp::now()) };
        let found = secrets.get_opt(&last.name).await;
        let found = found.map_err(|error| Failure::target("read Helm's record of the release", &error))?;
        let stored = stored_in(found);
        let first = run_blocking(move || storage::first_deployed(&stored)).await?;
        Ok(first.unwrap_or_else(Timestamp::now))
    }

    async fn create_record(
        &self,
        secrets: &Api<Secret>,
        secret: serde_json::Value,
        content: &str,
    ) -> Result<(), Failure> {
        let mut secret: Secret = serde_json::from_value(secret)
            .map_err(|_| Failure::new(Reason::Internal, "Helm's record of the release is not a Secret"))?;
        secret.annotations_mut().insert(annotations::RELEASE_CONTENT.to_owned(), content.to_owned());
        let params = PostParams { field_manager: Some(self.ownership.creator()), ..PostParams::default() };
        let made = secrets.create(&params, &secret).await;
        made.map(drop).map_err(|error| Failure::target("write Helm's record of the release", &error))
    }

    /// Deletes the oldest of the other records beyond the limit, unless nothing may be deleted now.
    async fn drop_oldest(&self, others: &[Record]) -> Result<(), Failure> {
        let release = self.context.resource.spec.release.as_ref();
        let kept = release.and_then(|release| release.history.as_ref()?.max);
        let kept = kept.and_then(|kept| usize::try_from(kept).ok()).unwrap_or(DEFAULT_MAX_REVISIONS).max(1);
        let surplus = surplus(others, kept);
        if surplus.is_empty() || self.context.may_delete().await.is_err() {
            return Ok(());
        }
        for record in surplus {
            self.delete_record(record).await?;
        }
        Ok(())
    }

    /// Deletes a record that this operator wrote.
    async fn delete_record(&self, record: &Record) -> Result<(), Failure> {
        let secrets = ApiResource::erase::<Secret>(&());
        let managers = [self.ownership.creator()];
        let managers = managers.each_ref().map(String::as_str);
        let request = DeleteRequest::new(&secrets, &record.metadata, &managers);
        match self.context.delete_gate().carry_out(&self.cluster.client, &request).await {
            Ok(_) => Ok(()),
            Err(DeleteError::Call(kube::Error::Api(status))) if status.is_conflict() => Ok(()),
            Err(error) => Err(error
                .into_failure(|error| Failure::target("delete Helm's record of an earlier revision", error))),
        }
    }

    /// Deletes the operator's records of a removed release, if the spec enables records.
    pub(super) async fn forget_release(&mut self) -> Result<(), Failure> {
        let release = self.context.resource.spec.release.as_ref();
        let is_kept = release.is_some_and(|release| release.history.is_some());
        if self.state.recorded.release_record.is_none() || !is_kept {
            return Ok(());
        }
        // Its values may no longer be readable.
        let release = self.release();
        let secrets: Api<Secret> = Api::namespaced(self.cluster.client.clone(), &release.namespace);
        for record in records(&secrets, &release.name).await?.iter().filter(|record| record.is_ours()) {
            self.delete_record(record).await?;
        }
        self.state.recorded.release_record = None;
        Ok(())
    }
}

/// Returns the revision after the newest of the records; `None` if the newest is the highest valid one.
fn next_revision(records: &[Record]) -> Option<i64> {
    let newest = records.iter().filter_map(Record::number).max().unwrap_or_default();
    newest.checked_add(1).filter(|next| *next <= MAX_REVISION)
}

/// Returns the oldest records beyond those that are kept. One of the kept records is the newest, which `others`
/// lacks. Records that Helm wrote count towards the limit but are never deleted.
fn surplus(others: &[Record], kept: usize) -> Vec<&Record> {
    let surplus = (others.len() + 1).saturating_sub(kept);
    others.iter().take(surplus).filter(|record| record.is_ours()).collect()
}

/// Returns all records of a release, without their content.
async fn records(secrets: &Api<Secret>, release: &str) -> Result<Vec<Record>, Failure> {
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
pub(super) async fn deployed(secrets: &Api<Secret>, release: &str) -> Result<Option<i64>, Failure> {
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
pub(super) async fn all_deployed(secrets: &Api<Secret>) -> Result<Option<Releases>, Failure> {
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
fn too_large(content: String, bytes: usize) -> ReleaseRecord {
    let message =
        format!("Helm's record would be {bytes} bytes large, more than a Secret may be, and is not written");
    ReleaseRecord { digest: content, message: Some(message), ..ReleaseRecord::default() }
}

/// Returns the state to store for a release whose newest record has the highest valid revision. The release itself is
/// installed, and the next one is tried again.
fn without_successor(content: String) -> ReleaseRecord {
    let message = format!(
        "Helm's record is not written: the newest record has revision {MAX_REVISION}, the highest; delete its Secret"
    );
    ReleaseRecord { digest: content, message: Some(message), ..ReleaseRecord::default() }
}

fn revision<'a>(
    inputs: &'a Inputs,
    loaded: &'a LoadedContent,
    number: i64,
    status: ReleaseStatus,
    first: Timestamp,
    description: &'a str,
) -> Option<Revision<'a>> {
    Some(Revision {
        name: &inputs.release.name,
        namespace: &inputs.release.namespace,
        number,
        chart: loaded.chart.as_ref()?,
        app_version: &loaded.app_version,
        values: inputs.values(),
        objects: &loaded.prepared.objects,
        hooks: &loaded.prepared.hooks,
        status,
        description,
        first,
        now: Timestamp::now(),
    })
}

/// Returns the stored release of a Secret; empty if it has none.
fn stored_in(secret: Option<Secret>) -> Vec<u8> {
    let mut data = secret.and_then(|secret| secret.data).unwrap_or_default();
    data.remove(storage::KEY).map(|stored| stored.0).unwrap_or_default()
}

async fn supersede(secrets: &Api<Secret>, record: &Record) -> Result<(), Failure> {
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
