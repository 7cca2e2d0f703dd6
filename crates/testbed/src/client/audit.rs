//! Reads which requests were sent to a cluster.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;

/// The audit log of one cluster. It contains a request by the time the response arrives.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
}

/// A position in the log, which separates earlier records from later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditMark(u64);

/// One request, watches included: a watch is one request however long it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// Name of the user, such as `system:serviceaccount:kcp-system:kyma-operator`.
    pub user: String,
    /// Name of the impersonated user; empty without impersonation.
    pub impersonated: String,
    /// User-Agent; empty if the client sent none.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Path and query.
    pub uri: String,
    /// API group, empty for the core group and for requests that are not about objects.
    pub group: String,
    /// Resource in plural, with subresource: `pods`, `kymas/status`; empty for `/version` and its like.
    pub resource: String,
    /// Namespace, empty for cluster-scoped.
    pub namespace: String,
    /// Name of the object, empty for lists.
    pub name: String,
    /// HTTP status of the response; 0 if there was none.
    pub code: u16,
    /// Time at which the apiserver received the request.
    pub received: Timestamp,
    /// Time at which the apiserver wrote this record.
    pub recorded: Timestamp,
}

impl AuditEvent {
    /// Reports whether the request asks for a change, dry runs included.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Reports whether the request renews a Lease.
    pub fn is_lease_renewal(&self) -> bool {
        let renews = matches!(self.verb.as_str(), "update" | "patch");
        renews && self.group == "coordination.k8s.io" && self.resource == "leases"
    }

    /// Reports whether operators at rest send the request too: a watch, or the renewal of a Lease.
    pub fn is_routine(&self) -> bool {
        self.verb == "watch" || self.is_lease_renewal()
    }
}

impl Audit {
    pub(crate) fn of(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the end of the log.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn mark(&self) -> Result<AuditMark> {
        let length =
            self.path.metadata().with_context(|| format!("cannot read {}", self.path.display()))?.len();
        Ok(AuditMark(length))
    }

    /// Returns the requests recorded after `mark` (`AuditMark::default()` for all), each once, in the order of
    /// records.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn since(&self, mark: AuditMark) -> Result<Vec<AuditEvent>> {
        let records = self.records(mark)?.into_iter();
        Ok(records.filter(|record| !record.is_end_of_watch()).map(AuditEvent::from).collect())
    }

    /// Returns watches that ended after the mark; they lasted from [`AuditEvent::received`] to
    /// [`AuditEvent::recorded`].
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn watches_ended_since(&self, mark: AuditMark) -> Result<Vec<AuditEvent>> {
        let records = self.records(mark)?.into_iter();
        Ok(records.filter(Record::is_end_of_watch).map(AuditEvent::from).collect())
    }

    fn records(&self, mark: AuditMark) -> Result<Vec<Record>> {
        let mut file =
            File::open(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        file.seek(SeekFrom::Start(mark.0))?;
        let mut records = Vec::new();
        for line in BufReader::new(file).lines() {
            // The last line may be incomplete: it belongs to a request without a response yet.
            records.extend(serde_json::from_str::<Record>(&line?));
        }
        Ok(records)
    }

    /// Returns the number of requests by user, verb and resource, for users for which `user` holds.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn count(
        &self,
        mark: AuditMark,
        user: impl Fn(&str) -> bool,
    ) -> Result<BTreeMap<(String, String, String), u64>> {
        let mut counts = BTreeMap::new();
        for event in self.since(mark)?.into_iter().filter(|event| user(&event.user)) {
            *counts.entry((event.user, event.verb, event.resource)).or_default() += 1;
        }
        Ok(counts)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    user: User,
    #[serde(default)]
    impersonated_user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: Object,
    #[serde(default)]
    response_status: Status,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

impl Record {
    /// Reports whether this is the second record of a watch, which is recorded when it starts and when it ends.
    fn is_end_of_watch(&self) -> bool {
        self.stage == "ResponseComplete" && self.verb == "watch"
    }
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    api_group: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
}

impl From<Record> for AuditEvent {
    fn from(record: Record) -> Self {
        let Object { mut resource, subresource, namespace, name, api_group: group } = record.object_ref;
        if !subresource.is_empty() {
            resource = format!("{resource}/{subresource}");
        }
        Self {
            user: record.user.username,
            impersonated: record.impersonated_user.username,
            user_agent: record.user_agent,
            verb: record.verb,
            uri: record.uri,
            group,
            resource,
            namespace,
            name,
            code: record.response_status.code,
            received: record.request_received_timestamp,
            recorded: record.stage_timestamp,
        }
    }
}
