//! `kymactl target adopt`.

use std::pin::pin;

use clap::Args;
use futures::{StreamExt as _, stream};
use indicatif::{ProgressBar, ProgressStyle};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use kyma_api::{Kyma, TargetIdentity, annotations};
use kyma_sdk::targets::{
    self, Mismatch, Recorded, STAMP_NAMESPACE, Stamp, Target, Verdict, adopt, classify, compare, record,
    recorded as recorded_on,
};
use kyma_sdk::{is_conflict, refusal};
use serde_json::{Value, json};

use super::way::{Start, Way, uid_of};
use crate::{components, error::Error, hub::MANAGER, output};

/// Clusters at a time.
const PARALLEL: usize = 8;

/// Flags of `kymactl target adopt`.
#[derive(Args)]
pub(crate) struct Adopt {
    /// The Kyma whose cluster is meant.
    #[arg(required_unless_present = "all")]
    kyma: Option<String>,
    #[command(flatten)]
    way: Way,
    /// Uid of the cluster's Namespace `kube-system`: says that this very cluster is meant. Without it nothing is written.
    #[arg(long, value_name = "UID", conflicts_with = "all")]
    cluster_uid: Option<String>,
    /// After this hub was restored from a backup: take over the clusters of all Kymas that a later state of it managed.
    /// Those that are refused for another reason, or do not answer, are named and left; then the exit code is 1.
    #[arg(long, conflicts_with = "kyma")]
    all: bool,
    /// With --all: write. Without it the clusters are only named.
    #[arg(long, requires = "all")]
    yes: bool,
}

impl Adopt {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let hub = self.way.hub().await?;
        match self.kyma.as_deref() {
            Some(kyma) => one(hub.start(kyma).await?, self.cluster_uid.as_deref()).await,
            None => all(hub.starts(None).await?, self.yes).await,
        }
    }
}

async fn one(start: Start, meant: Option<&str>) -> Result<(), Error> {
    let refused = match Refused::find(start).await? {
        Found::Refused(refused) => refused,
        Found::OnRecord { late: 0 } => {
            return Ok(output::result("nothing to adopt: the cluster is not refused")?);
        }
        Found::OnRecord { late } => {
            return Ok(output::result(&format!("the cluster is the Kyma's; {late} components follow"))?);
        }
    };
    let (uid, why) = (uid_of(&refused.found)?.to_owned(), refusal(&refused.verdict));
    let adoption = refused.adoption()?;
    match meant {
        Some(meant) if meant == uid => {}
        Some(_) => {
            return Err(Error::input("--cluster-uid", format!("the access Secret leads to cluster {uid}")));
        }
        None => {
            let problem = format!(
                "refused for {}: {}. If cluster {uid} is meant, repeat with --cluster-uid={uid}",
                why.reason, why.message
            );
            return Err(Error::input("--cluster-uid", problem));
        }
    }
    let epoch = adoption.recorded.epoch;
    let components = adoption.write().await?;
    Ok(output::result(&format!("cluster {uid} adopted with epoch {epoch}; {components} components follow"))?)
}

/// What became of a Kyma's cluster among all.
enum Became {
    Adopted,
    WouldBe,
    Left(Error),
    Fine,
}

async fn all(starts: Vec<Start>, write: bool) -> Result<(), Error> {
    let bar = bar(starts.len());
    let outcomes = stream::iter(starts).map(|start| async move {
        let name = start.kyma.name_any();
        (name, among_all(start, write).await.unwrap_or_else(Became::Left))
    });
    let mut outcomes = pin!(outcomes.buffer_unordered(PARALLEL));
    let (mut adopted, mut would_be, mut left) = (0, 0, 0);
    while let Some((kyma, became)) = outcomes.next().await {
        let line = match became {
            Became::Fine => None,
            Became::Adopted => {
                adopted += 1;
                Some(format!("{kyma}: adopted"))
            }
            Became::WouldBe => {
                would_be += 1;
                Some(format!("{kyma}: managed by a later state of this hub"))
            }
            Became::Left(error) => {
                left += 1;
                Some(format!("{kyma}: left: {error}"))
            }
        };
        bar.suspend(|| line.map_or(Ok(()), |line| output::result(&line)))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    if would_be > 0 {
        let problem = format!(
            "{would_be} clusters would be adopted; repeat with --yes if this hub is the one to go on"
        );
        return Err(Error::input("--all", problem));
    }
    output::result(&format!("{adopted} adopted, {left} left"))?;
    if left > 0 { Err(Error::Left { count: left }) } else { Ok(()) }
}

/// Drawn only where standard error is a terminal.
fn bar(clusters: usize) -> ProgressBar {
    let bar = ProgressBar::new(clusters as u64);
    // The template is constant; if it ever were wrong, indicatif's own style remains.
    match ProgressStyle::with_template("{bar:24} {pos}/{len} clusters, {eta} to go") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

async fn among_all(start: Start, write: bool) -> Result<Became, Error> {
    let Found::Refused(refused) = Refused::find(start).await? else { return Ok(Became::Fine) };
    if refused.verdict != Verdict::StampMismatch(Mismatch::LaterState) {
        return Err(refusal(&refused.verdict).into());
    }
    if !write {
        return Ok(Became::WouldBe);
    }
    refused.adoption()?.write().await?;
    Ok(Became::Adopted)
}

/// A cluster that is refused.
struct Refused {
    start: Start,
    target: Target,
    found: targets::Found,
    verdict: Verdict,
}

/// Whether it is.
enum Found {
    Refused(Box<Refused>),
    /// It is not, though an adoption may have been broken off before it came to these components.
    OnRecord {
        late: usize,
    },
}

impl Refused {
    async fn find(start: Start) -> Result<Found, Error> {
        let target = start.target(&start.secret().await?).await?;
        let found = target.identify().await.map_err(kyma_sdk::Failure::from)?;
        // A turn is on record on the hub before it is there: what was read before may be behind without meaning it.
        let start = start.read_again().await?;
        let (claim, recorded) = start.sides();
        match compare(&claim, &recorded, &found) {
            Verdict::Match { .. } => {
                let late = components_follow(&start, &recorded).await?;
                if recorded.epoch > 1 {
                    tell(&start, &recorded).await?;
                }
                Ok(Found::OnRecord { late })
            }
            Verdict::FirstContact { .. } => Ok(Found::OnRecord { late: 0 }),
            verdict => Ok(Found::Refused(Box::new(Self { start, target, found, verdict }))),
        }
    }

    fn adoption(self: Box<Self>) -> Result<Adoption, Error> {
        let Self { start, target, found, .. } = *self;
        let (claim, recorded) = start.sides();
        let Some((recorded, stamp)) = adopt(&claim, &recorded, &found) else {
            // Whose it is says more than that it is another one.
            return Err(refusal(&compare(&claim, &Recorded::default(), &found)).into());
        };
        Ok(Adoption { start, target, found, recorded, stamp })
    }
}

/// A decision that is carried out.
struct Adoption {
    start: Start,
    target: Target,
    found: targets::Found,
    recorded: Recorded,
    stamp: Stamp,
}

impl Adoption {
    /// The stamp first: until the hub has it on record, the cluster is still refused. Tells how many components there
    /// are.
    async fn write(&self) -> Result<usize, Error> {
        self.namespace().await?;
        self.target.put_stamp(&self.stamp, &self.found).await.map_err(kyma_sdk::Failure::from)?;
        let kyma = &self.start.kyma;
        let (namespace, name) = (kyma.namespace().unwrap_or_default(), kyma.name_any());
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let kymas: Api<Kyma> = Api::namespaced(self.start.hub.clone(), &namespace);
        let identity = TargetIdentity {
            cluster_uid: self.recorded.target_uid.clone().unwrap_or_default(),
            epoch: i64::try_from(self.recorded.epoch).ok(),
            turn: None,
        };
        let mut record = json!(identity);
        // Counting begins anew.
        record["turn"] = Value::Null;
        let status = json!({"metadata": {"uid": kyma.uid()}, "status": {"target": record}});
        kymas.patch_status(&name, &params, &Patch::Merge(&status)).await?;
        let count = components_follow(&self.start, &self.recorded).await?;
        tell(&self.start, &self.recorded).await?;
        Ok(count)
    }

    /// Where the stamp lives. Nobody's afterwards.
    async fn namespace(&self) -> Result<(), Error> {
        let namespaces: Api<Namespace> = Api::all(self.target.client());
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(STAMP_NAMESPACE.to_owned());
        let params = PostParams { field_manager: Some("kymactl-create".to_owned()), ..PostParams::default() };
        match namespaces.create(&params, &namespace).await {
            Err(error) if !is_conflict(&error) => Err(kyma_sdk::Failure::from(classify(&error)).into()),
            _ => Ok(()),
        }
    }
}

/// Has all operators look at the Kyma, unless they were told of this record already.
async fn tell(start: &Start, recorded: &Recorded) -> Result<(), Error> {
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

/// Brings the Kyma's components to this record of its target; tells how many had another one.
async fn components_follow(start: &Start, recorded: &Recorded) -> Result<usize, Error> {
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
