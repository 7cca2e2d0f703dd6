//! Lists that are empty, fail, or break off in the middle, while operators run and when they start.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use e2e::landscape::{Landscape, Options};
use e2e::remains::until_as_before;
use e2e::snapshot::{self, Difference, Snapshot};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::Process;

use crate::faults::{CRDS, Fault, FaultInjector, Side, Stream};
use crate::losses;
use crate::table::KINDS;
use crate::world::{KYMAS, World};

/// A temporary fault of lists.
struct Row {
    what: &'static str,
    fault: Fault,
    /// The reason that Kymas report meanwhile.
    says: Option<&'static str>,
    /// Whether all operators are restarted during the fault.
    starts: bool,
    /// Whether the row runs only with `TEST_FULL=1`.
    only_in_full: bool,
}

const fn row(what: &'static str, fault: Fault) -> Row {
    Row { what, fault, says: None, starts: false, only_in_full: false }
}

impl Row {
    const fn says(self, reason: &'static str) -> Self {
        Self { says: Some(reason), ..self }
    }

    const fn at_start(self) -> Self {
        Self { starts: true, ..self }
    }

    const fn in_full(self) -> Self {
        Self { only_in_full: true, ..self }
    }
}

const ROWS: [Row; 15] = [
    row("Kymas are none", Fault::Empty(|side, of| side == Side::Hub && of == "kymas")),
    row("components are none", Fault::Empty(|side, of| side == Side::Hub && is_component(of))).in_full(),
    row("ModuleConfigs are none at the start", Fault::EmptyOf(Side::Hub, "moduleconfigs"))
        .says("ModuleConfigMissing")
        .at_start(),
    row("targets fail", Fault::Fails(Side::Targets)).says("TargetServerError").in_full(),
    row("answers of targets are cut off", Fault::Halved(Side::Targets)).says("TargetUnreachable"),
    row("all but Kymas is empty at the start", Fault::Empty(but_kymas))
        .says("ModuleReleaseMetaMissing")
        .at_start(),
    row("the catalogue is empty", Fault::Empty(|side, of| side == Side::Hub && is_catalogue(of)))
        .says("ModuleReleaseMetaMissing")
        .in_full(),
    row("CRDs are none", Fault::Empty(|_, of| of == CRDS)).in_full(),
    row("nothing runs on targets", Fault::Empty(|side, of| side == Side::Targets && of != "kymas")).in_full(),
    row("all is empty", Fault::Empty(|_, of| of != CRDS)).in_full(),
    row("the hub fails", Fault::Fails(Side::Hub)).in_full(),
    row("answers of the hub are cut off", Fault::Halved(Side::Hub)).in_full(),
    row("pages are missing", Fault::FirstPage).in_full(),
    row("all is empty at the start", Fault::Empty(|_, of| of != CRDS)).at_start().in_full(),
    row("all but components is empty at the start", Fault::Empty(but_components)).at_start().in_full(),
];

/// Faults of lists while the removal of a Kyma is requested.
const REMOVAL_FAULTS: [(&str, Fault); 2] = [
    ("nothing runs on targets", Fault::Empty(|side, of| side == Side::Targets && of != "kymas")),
    ("all is empty", Fault::Empty(|_, of| of != CRDS)),
];

fn is_component(resource: &str) -> bool {
    matches!(resource, "helmcomponents" | "greetings")
}

fn is_catalogue(resource: &str) -> bool {
    matches!(resource, "moduletemplates" | "modulereleasemetas")
}

/// Selects all lists except those of the hub through which Kymas lead operators to targets.
fn but_kymas(side: Side, resource: &str) -> bool {
    side == Side::Targets || !matches!(resource, "kymas" | "secrets" | CRDS)
}

/// Selects all lists except those of the hub through which components lead operators to targets.
fn but_components(side: Side, resource: &str) -> bool {
    side == Side::Targets || !matches!(resource, "helmcomponents" | "greetings" | "secrets" | CRDS)
}

pub(crate) async fn scenario(is_full: bool) -> Result<()> {
    let injector = FaultInjector::new();
    let options = Options { targets: KYMAS.len(), audit: true, ..Options::default() };
    let landscape =
        Landscape::start_behind(options, &|connection| Some(injector.interceptor(connection))).await?;
    let mut lists = Lists { world: World::on(landscape).await?, injector };
    lists.world.pause().await?;
    let baseline = lists.snapshots().await?;
    for row in ROWS.iter().filter(|row| is_full || !row.only_in_full) {
        lists.check_row(row).await.context(row.what)?;
    }
    for row in of_kinds().iter().filter(|_| is_full) {
        let when = if row.starts { "at the start" } else { "while operators run" };
        lists.check_row(row).await.with_context(|| format!("{} {when}", row.what))?;
    }
    lists.are_as_they_were(&KYMAS, &baseline).await?;
    // This recreates the Kymas on targets with modules sorted by name, so later comparisons need new snapshots.
    lists.loses_both_choices().await.context("without the choice of modules")?;
    let baseline = lists.snapshots().await?;
    for (number, (what, fault)) in REMOVAL_FAULTS.into_iter().enumerate() {
        lists.removes(KYMAS[number], fault).await.context(what)?;
        lists.are_as_they_were(&KYMAS[number + 1..], &baseline).await.context(what)?;
    }
    lists.world.stop().await
}

/// Returns two rows for each listed kind of the table: its list is empty while operators run, and when they start.
fn of_kinds() -> Vec<Row> {
    let listed = KINDS.iter().filter_map(|kind| Some((kind, kind.listed_on?)));
    let rows = listed.flat_map(|(kind, side)| {
        let row = |says, starts| Row {
            says,
            starts,
            ..row(kind.resource, Fault::EmptyOf(side, kind.resource)).in_full()
        };
        [row(kind.says, false), row(kind.says_at_start, true)]
    });
    rows.collect()
}

/// The world, and the proxies between its operators and clusters.
struct Lists {
    world: World,
    injector: Arc<FaultInjector>,
}

impl Lists {
    /// Sets the fault until all streams that it concerns have met it, and removes it. Checks that nothing is
    /// deleted, and that all Kymas are Ready afterwards.
    async fn check_row(&mut self, row: &Row) -> Result<()> {
        let marks = self.world.landscape.marks()?;
        let streams = self.injector.watched();
        if row.starts {
            self.world.landscape.operators().for_each(Process::kill);
        }
        self.injector.set(Some(row.fault));
        if row.starts {
            self.start_operators().await?;
        }
        self.ask_for_passes(row.what).await?;
        if row.starts && row.fault.empties(Side::Hub, CRDS) {
            self.injector.until_crds_are_missing(&streams).await?;
        } else {
            // An operator that starts without the hub's objects may not ask targets.
            let asks_targets = !row.starts || matches!(row.fault, Fault::EmptyOf(Side::Targets, _));
            let asked =
                streams.iter().filter(|stream| asks_targets || stream.side == Side::Hub).cloned().collect();
            self.injector.until_met(row.fault, &asked).await?;
        }
        if let Some(reason) = row.says {
            self.world.all_say(reason).await?;
        }
        if row.fault.is_believed() {
            self.world.landscape.until_at_rest().await?;
        }
        self.world.nothing_was_deleted(&marks)?;
        self.world.is_configured().await?;
        self.world.is_paused().await?;

        self.injector.set(None);
        self.injector.until_unaltered(&streams).await?;
        self.world.is_ready().await?;
        self.world.landscape.until_at_rest().await?;
        self.world.is_configured().await.context("afterwards")?;
        self.world.is_paused().await.context("afterwards")?;
        self.world.nothing_was_deleted(&marks).context("afterwards")
    }

    /// Deletes both records of the users' choices, every status and the Kymas on targets, while no operator runs.
    async fn loses_both_choices(&mut self) -> Result<()> {
        let marks = self.world.landscape.marks()?;
        self.world.landscape.operators().for_each(Process::kill);
        losses::every_status(&self.world).await?;
        losses::remote_kymas_by_force(&self.world).await?;
        self.start_operators().await?;
        self.world.is_ready().await?;
        self.world.landscape.until_at_rest().await?;
        self.world.is_configured().await?;
        self.world.nothing_was_deleted(&marks)
    }

    /// Deletes the Kyma during the fault. After the fault, the Kyma must go and its target must be as before the
    /// Kyma.
    async fn removes(&self, kyma: &str, fault: Fault) -> Result<()> {
        let streams = self.injector.watched();
        let of_hub: BTreeSet<Stream> =
            streams.iter().filter(|stream| stream.side == Side::Hub).cloned().collect();
        self.injector.set(Some(fault));
        self.injector.until_met(fault, &streams).await?;
        self.world.kymas().delete(kyma, &DeleteParams::default()).await?;
        self.world.landscape.until_at_rest().await?;
        self.injector.set(None);
        // Until these lists, a watch may be closed and thus missing for the next fault.
        self.injector.until_unaltered(&of_hub).await?;
        self.world.kyma_is_gone(kyma).await?;
        until_as_before(&self.world.target(kyma)?, self.world.before(kyma)?).await?;
        Ok(())
    }

    async fn start_operators(&mut self) -> Result<()> {
        let operators = self.world.landscape.operators().map(|operator| operator.name().to_owned());
        for name in operators.collect::<Vec<_>>() {
            self.world.landscape.start_again(&name).await?;
        }
        Ok(())
    }

    /// Annotates all Kymas, so that the operators that hear of it reconcile them.
    async fn ask_for_passes(&self, why: &str) -> Result<()> {
        let asked = Patch::Merge(json!({"metadata": {"annotations": {"example.com/look-at": why}}}));
        for kyma in KYMAS {
            self.world.kymas().patch_metadata(kyma, &PatchParams::default(), &asked).await?;
        }
        Ok(())
    }

    /// Returns a snapshot of each target.
    async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let mut snapshots = Vec::new();
        for kyma in KYMAS {
            snapshots.push(snapshot::take(&self.world.target(kyma)?).await?);
        }
        Ok(snapshots)
    }

    /// Checks that the targets of these Kymas are as before, except that copies of the catalogue may have been
    /// rewritten.
    async fn are_as_they_were(&self, kymas: &[&str], baseline: &[Snapshot]) -> Result<()> {
        let pairs = KYMAS.iter().zip(baseline.iter().zip(self.snapshots().await?));
        for (kyma, (before, after)) in pairs.filter(|(kyma, _)| kymas.contains(kyma)) {
            let differences = snapshot::differences(before, &after);
            let is_copy = |difference: &Difference| match difference {
                Difference::Changed(key, _) => {
                    matches!(key.kind.as_str(), "ModuleTemplate" | "ModuleReleaseMeta")
                }
                Difference::Added(_) | Difference::Removed(_) => false,
            };
            let wrong: Vec<String> =
                differences.iter().filter(|one| !is_copy(one)).map(ToString::to_string).collect();
            ensure!(wrong.is_empty(), "on the target of {kyma}:\n{}", wrong.join("\n"));
        }
        Ok(())
    }
}
