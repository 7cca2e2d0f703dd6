//! Steps that write releases to the target as Helm does, and remove their records.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, PostParams};
use kube::{Api, ResourceExt};
use kyma_api::{Reason, ReleaseRecord, annotations};
use kyma_controller::{DeleteError, DeleteRequest, Failure};
use kyma_helm::storage::{self, ReleaseStatus, Revision};

use super::observe::is_enabled;
use super::records::{
    DEFAULT_MAX_REVISIONS, Record, next_revision, records, stored_in, supersede, surplus, too_large,
    without_successor,
};
use crate::blocking::run_blocking;
use crate::content::{Inputs, LoadedContent};
use crate::pass::Pass;

/// Records the loaded content as a revision of the release. A dry run counts the record as written, since it is no
/// object of the chart.
pub(crate) async fn run(pass: &mut Pass<'_>, status: ReleaseStatus, is_dry_run: bool) {
    pass.done.history.was_tried = true;
    if is_dry_run {
        let digest = pass.state.loaded.as_ref().map(|loaded| loaded.release.clone()).unwrap_or_default();
        pass.state.recorded.release_record = Some(ReleaseRecord { digest, ..ReleaseRecord::default() });
        return;
    }
    match write(pass, status).await {
        Ok(Some(record)) => pass.state.recorded.release_record = Some(record),
        Ok(None) => {}
        Err(failure) => pass.done.history.failure = Some(failure),
    }
}

async fn write(pass: &Pass<'_>, status: ReleaseStatus) -> Result<Option<ReleaseRecord>, Failure> {
    let Some(loaded) = pass.state.loaded.clone() else { return Ok(None) };
    let inputs = pass.inputs.as_ref().map_err(Clone::clone)?;
    // Not the digest of a retry, which is the same release.
    let content = inputs.release_digest(&loaded.source);
    let secrets: Api<Secret> = Api::namespaced(pass.cluster.client.clone(), &inputs.release.namespace);
    let mut records = records(&secrets, &inputs.release.name).await?;
    records.sort_by_key(Record::number);
    // A process that ended after it wrote this record continues with it.
    let written =
        records.iter().find(|record| record.content.as_deref() == Some(&*content) && record.is(status));
    let number = if let Some(number) = written.and_then(Record::number) {
        number
    } else {
        let Some(number) = next_revision(&records) else { return Ok(Some(without_successor(content))) };
        let first = first_deployed(&secrets, records.last()).await?;
        let (inputs, description) = (inputs.clone(), describe(pass, status, number));
        let encoded = run_blocking(move || {
            let revision = revision(&inputs, &loaded, number, status, first, &description);
            revision.map(|revision| storage::encode(&revision))
        });
        match encoded.await? {
            None => return Ok(None),
            Some(Ok(secret)) => create(pass, &secrets, secret, &content).await?,
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
    drop_oldest(pass, &others).await?;
    let status = Some(status.as_str().to_owned());
    Ok(Some(ReleaseRecord { digest: content, revision: Some(number), status, message: None }))
}

fn describe(pass: &Pass<'_>, status: ReleaseStatus, number: i64) -> String {
    match status {
        ReleaseStatus::Failed => {
            let mut faults = pass.done.faults.values();
            faults.next().map(|fault| format!("failed: {}", fault.message)).unwrap_or_default()
        }
        _ if number == 1 => "Install complete".to_owned(),
        _ => "Upgrade complete".to_owned(),
    }
}

async fn first_deployed(secrets: &Api<Secret>, last: Option<&Record>) -> Result<Timestamp, Failure> {
    let Some(last) = last else { return Ok(Timestamp::now()) };
    let found = secrets.get_opt(&last.name).await;
    let found = found.map_err(|error| Failure::target("read Helm's record of the release", &error))?;
    let stored = stored_in(found);
    let first = run_blocking(move || storage::first_deployed(&stored)).await?;
    Ok(first.unwrap_or_else(Timestamp::now))
}

async fn create(
    pass: &Pass<'_>,
    secrets: &Api<Secret>,
    secret: serde_json::Value,
    content: &str,
) -> Result<(), Failure> {
    let mut secret: Secret = serde_json::from_value(secret)
        .map_err(|_| Failure::new(Reason::Internal, "Helm's record of the release is not a Secret"))?;
    secret.annotations_mut().insert(annotations::RELEASE_CONTENT.to_owned(), content.to_owned());
    let params = PostParams { field_manager: Some(pass.ownership.creator()), ..PostParams::default() };
    let made = secrets.create(&params, &secret).await;
    made.map(drop).map_err(|error| Failure::target("write Helm's record of the release", &error))
}

/// Deletes the oldest of the other records beyond the limit, unless nothing may be deleted now.
async fn drop_oldest(pass: &Pass<'_>, others: &[Record]) -> Result<(), Failure> {
    let release = pass.context.resource.spec.release.as_ref();
    let kept = release.and_then(|release| release.history.as_ref()?.max);
    let kept = kept.and_then(|kept| usize::try_from(kept).ok()).unwrap_or(DEFAULT_MAX_REVISIONS).max(1);
    let surplus = surplus(others, kept);
    if surplus.is_empty() || pass.context.may_delete().await.is_err() {
        return Ok(());
    }
    for record in surplus {
        delete(pass, record).await?;
    }
    Ok(())
}

/// Deletes a record that this operator wrote.
async fn delete(pass: &Pass<'_>, record: &Record) -> Result<(), Failure> {
    let secrets = ApiResource::erase::<Secret>(&());
    let managers = [pass.ownership.creator()];
    let managers = managers.each_ref().map(String::as_str);
    let request = DeleteRequest::new(&secrets, &record.metadata, &managers);
    match pass.context.delete_gate().carry_out(&pass.cluster.client, &request).await {
        Ok(_) => Ok(()),
        Err(DeleteError::Call(kube::Error::Api(status))) if status.is_conflict() => Ok(()),
        Err(error) => {
            Err(error
                .into_failure(|error| Failure::target("delete Helm's record of an earlier revision", error)))
        }
    }
}

/// Deletes the operator's records of a removed release, if the spec enables records.
///
/// # Errors
/// If the target does not answer, or deletions are not allowed.
pub(crate) async fn forget(pass: &mut Pass<'_>) -> Result<(), Failure> {
    if pass.state.recorded.release_record.is_none() || !is_enabled(&pass.context.resource.spec) {
        return Ok(());
    }
    // Its values may no longer be readable.
    let release = pass.release();
    let secrets: Api<Secret> = Api::namespaced(pass.cluster.client.clone(), &release.namespace);
    for record in records(&secrets, &release.name).await?.iter().filter(|record| record.is_ours()) {
        delete(pass, record).await?;
    }
    pass.state.recorded.release_record = None;
    Ok(())
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
