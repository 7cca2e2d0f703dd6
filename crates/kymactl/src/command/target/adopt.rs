//! `kymactl target adopt`.

use std::pin::pin;

use clap::Args;
use futures::{StreamExt as _, stream};
use indicatif::{ProgressBar, ProgressStyle};
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
};
use kyma_api::{Kyma, TargetIdentity, annotations};
use kyma_controller::{target_record, verdict_failure};
use kyma_targets::{
    LiveIdentity, Mismatch, STAMP_NAMESPACE, Stamp, Target, TargetRecord, Verdict, adopt, classify, compare,
    create_namespace, record, recorded as recorded_on,
};
use serde_json::{Value, json};

use super::connection::{ConnectionArgs, Start, uid_of};
use crate::{
    components,
    error::Error,
    hub::MANAGER,
    output::{self, Lines},
};

/// Maximum number of clusters at a time.
const MAX_PARALLEL_CLUSTERS: usize = 8;

/// Flags of `kymactl target adopt`.
#[derive(Args)]
pub(crate) struct Adopt {
    /// The Kyma of the cluster
    #[arg(required_unless_present = "all", value_parser = crate::name::kyma, add = crate::command::complete::kymas())]
    kyma: Option<String>,
    /// uid of the cluster's kube-system Namespace; without it nothing is written
    #[arg(long, value_name = "UID", conflicts_with = "all")]
    cluster_uid: Option<String>,
    /// Adopt the hub itself, after a restore in single-cluster mode
    #[arg(long, conflicts_with = "all")]
    local: bool,
    /// After a restore: adopt all clusters that a later state of this hub managed
    #[arg(long, conflicts_with = "kyma")]
    all: bool,
    /// With --all: adopt the clusters; without it they are only listed
    #[arg(long, requires = "all")]
    yes: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

impl Adopt {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let hub = self.connection.hub().await?;
        let mut lines = Lines::new(self.connection.hub.format());
        if let Some(kyma) = self.kyma.as_deref() {
            let start = hub.start(kyma).await?;
            let uid = self.cluster_uid.as_deref();
            let said = if self.local { local(start, uid).await? } else { adopt_cluster(start, uid).await? };
            lines.add(&said, kyma, &said)?;
            return lines.finish();
        }
        let done = all(hub.starts(None).await?, self.yes, &mut lines).await;
        lines.finish()?;
        done
    }
}

/// Adopts one cluster. Returns the result as text, also if there is nothing to adopt.
async fn adopt_cluster(start: Start, meant: Option<&str>) -> Result<String, Error> {
    let refused = match RefusedCluster::find(start).await? {
        CheckResult::Refused(refused) => refused,
        CheckResult::OnRecord { uid, .. } if meant.is_some_and(|meant| meant != uid) => {
            return Err(Error::input("--cluster-uid", format!("the access Secret leads to cluster {uid}")));
        }
        CheckResult::OnRecord { late: 0, .. } => {
            return Ok("nothing to adopt: the cluster is not refused".to_owned());
        }
        CheckResult::OnRecord { late, .. } => {
            return Ok(format!("the cluster is the Kyma's; {late} components follow"));
        }
    };
    let (uid, why) = (uid_of(&refused.found)?.to_owned(), verdict_failure(&refused.verdict));
    let adoption = refused.adoption()?;
    match meant {
        Some(meant) if meant == uid => {}
        Some(_) => {
            return Err(Error::input("--cluster-uid", format!("the access Secret leads to cluster {uid}")));
        }
        None => {
            let problem = format!(
                "refused for {}: {}. To adopt cluster {uid}, repeat with --cluster-uid={uid}",
                why.reason, why.message
            );
            return Err(Error::input("--cluster-uid", problem));
        }
    }
    let epoch = adoption.recorded.epoch;
    let components = adoption.write().await?;
    Ok(format!("cluster {uid} adopted with epoch {epoch}; {components} components follow"))
}

/// Records the hub itself as the Kyma's target. There is no stamp: no other hub manages its own cluster.
async fn local(start: Start, meant: Option<&str>) -> Result<String, Error> {
    let name = start.kyma.name_any();
    if let Some(secret) = start.any_secret().await? {
        let problem =
            format!("it has access Secret {secret}, so its target is another cluster; leave out --local");
        return Err(Error::input(format!("Kyma {name}"), problem));
    }
    let uid = start.hub_uid().to_owned();
    if meant != Some(uid.as_str()) {
        let problem = format!("the hub is cluster {uid}; to adopt it, repeat with --cluster-uid={uid}");
        return Err(Error::input("--cluster-uid", problem));
    }
    let before = target_record(&start.kyma);
    let is_on_record = before.target_uid.as_ref() == Some(&uid);
    let epoch = if is_on_record { before.epoch } else { before.epoch.saturating_add(1) };
    let recorded = TargetRecord { target_uid: Some(uid.clone()), epoch, fencing_generation: None };
    if !is_on_record {
        record_on_hub(&start, &recorded).await?;
    }
    let components = update_components(&start, &recorded).await?;
    requeue_operators(&start, &recorded).await?;
    Ok(format!("cluster {uid} adopted with epoch {epoch}; {components} components follow"))
}

/// Result for the cluster of one of all Kymas.
enum AdoptionOutcome {
    Adopted,
    Pending,
    Failed(Error),
    NotNeeded,
}

async fn all(starts: Vec<Start>, write: bool, lines: &mut Lines) -> Result<(), Error> {
    let bar = bar(starts.len());
    let outcomes = stream::iter(starts).map(|start| async move {
        let name = start.kyma.name_any();
        (name, among_all(start, write).await.unwrap_or_else(AdoptionOutcome::Failed))
    });
    let mut outcomes = pin!(outcomes.buffer_unordered(MAX_PARALLEL_CLUSTERS));
    let (mut adopted, mut would_be, mut left) = (0, 0, 0);
    while let Some((kyma, outcome)) = outcomes.next().await {
        let said = match outcome {
            AdoptionOutcome::NotNeeded => None,
            AdoptionOutcome::Adopted => {
                adopted += 1;
                Some("adopted".to_owned())
            }
            AdoptionOutcome::Pending => {
                would_be += 1;
                Some("managed by a later state of this hub".to_owned())
            }
            AdoptionOutcome::Failed(error) => {
                left += 1;
                Some(format!("not adopted: {error}"))
            }
        };
        if let Some(said) = said {
            bar.suspend(|| lines.add(&format!("{kyma}: {said}"), &kyma, &said))?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if left > 0 && !write {
        // Already reported, and not among those that `--yes` adopts.
        output::remark(&format!("{left} clusters would not be adopted: see their reasons above"));
    }
    if would_be > 0 {
        let problem = format!(
            "{would_be} clusters would be adopted; repeat with --yes if this hub is the one that continues"
        );
        return Err(Error::input("--all", problem));
    }
    lines.sum_up(&format!("{adopted} adopted, {left} not adopted"))?;
    if left > 0 { Err(Error::NotAdopted { count: left }) } else { Ok(()) }
}

/// Returns a progress bar, drawn only if standard error is a terminal.
fn bar(clusters: usize) -> ProgressBar {
    let bar = ProgressBar::new(clusters as u64);
    // If the constant template were invalid, indicatif's default style would be used.
    match ProgressStyle::with_template("{bar:24} {pos}/{len} clusters, {eta} to go") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

async fn among_all(start: Start, write: bool) -> Result<AdoptionOutcome, Error> {
    let CheckResult::Refused(refused) = RefusedCluster::find(start).await? else {
        return Ok(AdoptionOutcome::NotNeeded);
    };
    if refused.verdict != Verdict::StampMismatch(Mismatch::LaterState) {
        return Err(verdict_failure(&refused.verdict).into());
    }
    if !write {
        return Ok(AdoptionOutcome::Pending);
    }
    refused.adoption()?.write().await?;
    Ok(AdoptionOutcome::Adopted)
}

/// A refused cluster.
struct RefusedCluster {
    start: Start,
    target: Target,
    found: LiveIdentity,
    verdict: Verdict,
}

/// Result of the check.
enum CheckResult {
    Refused(Box<RefusedCluster>),
    /// The cluster is not refused, but an interrupted adoption may have left components to update.
    OnRecord {
        uid: String,
        late: usize,
    },
}

impl RefusedCluster {
    async fn find(start: Start) -> Result<CheckResult, Error> {
        let target = start.target(&start.secret().await?).await?;
        let found = target.identify().await.map_err(kyma_controller::Failure::from)?;
        // The fencing generation is recorded on the hub before the target, so the Kyma read earlier may be outdated.
        let start = start.read_again().await?;
        let (claim, recorded) = start.sides();
        match compare(&claim, &recorded, &found) {
            Verdict::Match { .. } => {
                let late = update_components(&start, &recorded).await?;
                if recorded.epoch > 1 {
                    requeue_operators(&start, &recorded).await?;
                }
                Ok(CheckResult::OnRecord { uid: uid_of(&found)?.to_owned(), late })
            }
            Verdict::FirstContact { .. } => {
                Ok(CheckResult::OnRecord { uid: uid_of(&found)?.to_owned(), late: 0 })
            }
            verdict => Ok(CheckResult::Refused(Box::new(Self { start, target, found, verdict }))),
        }
    }

    fn adoption(self: Box<Self>) -> Result<Adoption, Error> {
        let Self { start, target, found, .. } = *self;
        let (claim, recorded) = start.sides();
        let Some((recorded, stamp)) = adopt(&claim, &recorded, &found) else {
            // A refusal that names the owner is more precise than one about a changed cluster.
            return Err(verdict_failure(&compare(&claim, &TargetRecord::default(), &found)).into());
        };
        Ok(Adoption { start, target, found, recorded, stamp })
    }
}

/// A confirmed adoption.
struct Adoption {
    start: Start,
    target: Target,
    found: LiveIdentity,
    recorded: TargetRecord,
    stamp: Stamp,
}

impl Adoption {
    /// Writes the stamp first: the cluster stays refused until the hub has recorded it. Returns the number of
    /// components.
    async fn write(&self) -> Result<usize, Error> {
        self.namespace().await?;
        self.target.put_stamp(&self.stamp, &self.found).await.map_err(kyma_controller::Failure::from)?;
        record_on_hub(&self.start, &self.recorded).await?;
        let count = update_components(&self.start, &self.recorded).await?;
        requeue_operators(&self.start, &self.recorded).await?;
        Ok(count)
    }

    /// Ensures the namespace of the stamp. It has no owner.
    async fn namespace(&self) -> Result<(), Error> {
        let created = create_namespace(&self.target.client(), STAMP_NAMESPACE, &[], "kymactl-create").await;
        created.map(drop).map_err(|error| kyma_controller::Failure::from(classify(&error)).into())
    }
}

/// Records the target in the status of the Kyma.
async fn record_on_hub(start: &Start, recorded: &TargetRecord) -> Result<(), Error> {
    let kyma = &start.kyma;
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let kymas: Api<Kyma> = Api::namespaced(start.hub.clone(), &kyma.namespace().unwrap_or_default());
    let identity = TargetIdentity {
        cluster_uid: recorded.target_uid.clone().unwrap_or_default(),
        epoch: i64::try_from(recorded.epoch).ok(),
        ..TargetIdentity::default()
    };
    let mut record = json!(identity);
    // Fencing generations are counted for each epoch. The deprecated field would count if it stayed.
    for field in ["fencingGeneration", "turn"] {
        record[field] = Value::Null;
    }
    let status = json!({"metadata": {"uid": kyma.uid()}, "status": {"target": record}});
    kymas.patch_status(&kyma.name_any(), &params, &Patch::Merge(&status)).await?;
    Ok(())
}

/// Requeues the Kyma in all operators, unless its annotation already has this record.
async fn requeue_operators(start: &Start, recorded: &TargetRecord) -> Result<(), Error> {
    let kyma = &start.kyma;
    let adopted = format!("{}/{}", recorded.target_uid.as_deref().unwrap_or_default(), recorded.epoch);
    if kyma.annotations().get(annotations::TARGET_ADOPTED) == Some(&adopted) {
        return Ok(());
    }
    let kymas: Api<Kyma> = Api::namespaced(start.hub.clone(), &kyma.namespace().unwrap_or_default());
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let notes: Value = json!({"metadata": {
        "uid": kyma.uid(), "annotations": {annotations::TARGET_ADOPTED: adopted},
    }});
    kymas.patch_metadata(&kyma.name_any(), &params, &Patch::Merge(&notes)).await?;
    Ok(())
}

/// Updates the target's record in the Kyma's components. Returns how many changed.
async fn update_components(start: &Start, recorded: &TargetRecord) -> Result<usize, Error> {
    let namespace = start.kyma.namespace().unwrap_or_default();
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let mut count = 0;
    for resource in components::kinds(&start.hub, &start.kyma).await? {
        let api: Api<DynamicObject> = Api::namespaced_with(start.hub.clone(), &namespace, &resource);
        for component in api.list_metadata(&components::labelled(&start.kyma)).await?.items {
            if record(&recorded_on(component.metadata.annotations.as_ref())) == record(recorded) {
                continue;
            }
            let notes = json!({"metadata": {"uid": component.metadata.uid, "annotations": record(recorded)}});
            api.patch_metadata(&component.name_any(), &params, &Patch::Merge(&notes)).await?;
            count += 1;
        }
    }
    Ok(count)
}
