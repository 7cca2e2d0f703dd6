//! Health of each kind, with its status as a real API server defaults, validates and stores it. No controller runs,
//! so objects stay as they were written.

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use kyma_health::{Health, HealthStatus};
use kyma_object_set::{Cluster, GroupKind};
use serde_json::{Value, json};
use testbed::until;

use super::story::{EVENT_TIMEOUT, TEST_ENV};

mod apis;
mod leaving;
mod plain;
mod pods;
mod workloads;

const START_TIME: &str = "2026-01-01T00:00:00Z";

/// A cluster without controllers, and a namespace on it.
struct Bare {
    cluster: Cluster,
    namespace: String,
}

impl Bare {
    async fn start() -> Result<Self> {
        let bare = TEST_ENV.cluster("bare", |builder| builder).await?;
        let namespace = bare.namespace("health").await?;
        let this = Self { cluster: Cluster::new(bare.client()?), namespace };
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        this.create(&account).await?;
        Ok(this)
    }

    fn client(&self) -> &Client {
        &self.cluster.client
    }

    async fn api(&self, object: &Value) -> Result<Api<DynamicObject>> {
        let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
        let kind = object["kind"].as_str().context("kind")?;
        let kind = GroupKind::new(group.map_or("", |(group, _)| group), kind);
        until(&format!("{kind} is served"), EVENT_TIMEOUT, || async {
            let kinds = self.cluster.discovery.kinds(self.client()).await?;
            let Some(mapping) = kinds.preferred(&kind) else {
                self.cluster.discovery.invalidate().await;
                return Ok(None);
            };
            Ok(Some(mapping.api(self.client(), Some(&self.namespace))))
        })
        .await
    }

    async fn create(&self, object: &Value) -> Result<DynamicObject> {
        let wished: DynamicObject = serde_json::from_value(object.clone())?;
        let created = self.api(object).await?.create(&PostParams::default(), &wished).await;
        created.with_context(|| object.to_string())
    }

    /// Writes a status as the kind's controller would, and returns the object as it is stored.
    async fn with_status(&self, object: &Value, status: &Value) -> Result<Value> {
        let created = self.create(object).await?;
        let api = self.api(object).await?;
        let name = created.name_any();
        if !status.is_null() {
            let patch = Patch::Merge(json!({"status": status}));
            let patched = api.patch_status(&name, &PatchParams::default(), &patch).await;
            patched.with_context(|| format!("{object}: {status}"))?;
        }
        Ok(serde_json::to_value(api.get(&name).await?)?)
    }

    async fn check(&self, row: Row) -> Result<()> {
        let Row { what, object, status, expected, message } = row;
        let found = assess(&self.with_status(&object, &status).await?);
        let is_said = message.is_none_or(|message| found.message == message);
        ensure!(found.status == expected && is_said, "{}: {what}: {found:?}", object["kind"]);
        Ok(())
    }

    async fn check_all(&self, rows: Vec<Row>) -> Result<()> {
        for row in rows {
            self.check(row).await?;
        }
        Ok(())
    }
}

struct Row {
    what: &'static str,
    object: Value,
    status: Value,
    expected: HealthStatus,
    message: Option<&'static str>,
}

impl Row {
    /// Expects this message too, which shows that this rule decided and no other.
    fn saying(self, message: &'static str) -> Self {
        Self { message: Some(message), ..self }
    }
}

fn row(what: &'static str, object: &Value, status: Value, expected: HealthStatus) -> Row {
    Row { what, object: object.clone(), status, expected, message: None }
}

fn assess(object: &Value) -> Health {
    kyma_health::assess(object, Timestamp::now())
}

fn conditions(all: &[(&str, &str, &str)]) -> Value {
    let condition = |(kind, status, reason): &(&str, &str, &str)| json!({"type": kind, "status": status, "reason": reason, "message": "prose", "lastTransitionTime": START_TIME});
    all.iter().map(condition).collect()
}
