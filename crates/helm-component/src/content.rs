//! Turns the spec of a component into objects: fetches, renders and prepares them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kyma_api::{CrdPolicy, HelmComponent, HelmComponentSpec, Reason, ReleaseRevision};
use kyma_artifacts::archive::run_unpacking;
use kyma_artifacts::{Artifacts, Credentials, LocalisedImages, RegistryBase, Trust, TrustRoot};
use kyma_controller::Failure;
use kyma_helm::chart::{Chart, Nondeterminism};
use kyma_helm::render::{RenderError, RenderRequest, Renderer, tests_folder_has_only_tests};
use kyma_object_set::{Identity, Kinds, ObjectSet};

use crate::actions::test::renders::OnlyTests;
use crate::objects::{self, PreparedObjects};
use crate::render_store::{RenderLookup, RenderStore, StoredRender};
use crate::source::{self, Content, OpenedCharts};
use crate::workloads::Workloads;

mod digest;
mod inputs;
mod loaded;
mod parsed;

pub(crate) use digest::digest;
pub(crate) use inputs::{Inputs, InstalledRelease};
pub(crate) use loaded::LoadedContent;
pub(crate) use parsed::ParsedTexts;
use parsed::Text;

/// Sources of content and the renderer; shared by all components.
pub(crate) struct Sources {
    /// Cache of artifacts.
    pub artifacts: Artifacts,
    /// Cache of opened charts.
    pub opened: OpenedCharts,
    /// The renderer; `None` without a `helm` program.
    pub renderer: Option<Arc<dyn Renderer>>,
    /// Renders in which only tests vary, which the renderer's cache does not keep.
    pub only_tests: OnlyTests,
    /// Parsed manifests and renders.
    pub parsed: ParsedTexts,
    /// Registry base of OCM components whose source names none.
    pub default_base: Option<RegistryBase>,
    /// Trust root for signers without keys; `None` if none is configured.
    pub trust_root: Option<Arc<TrustRoot>>,
}

impl Sources {
    /// Fetches, renders and prepares the content. With `installed`, fails if the source has another digest; with
    /// `trust`, accepts only signed content.
    pub(crate) async fn load(
        &self,
        component: &HelmComponent,
        inputs: &Inputs,
        kinds: &Kinds,
        installed: Option<kyma_artifacts::Digest>,
        (credentials, trust): (&Credentials, Option<Arc<Trust>>),
        render_store: &RenderStore,
    ) -> Result<LoadedContent, LoadFailure> {
        let spec = &component.spec;
        let place = source::place(&inputs.source, self.default_base.as_ref())?;
        let artifacts = trust.map_or_else(|| self.artifacts.clone(), |trust| self.artifacts.trusting(trust));
        let content = source::fetch(&artifacts, &self.opened, &place, installed, credentials).await?;
        let digest = content.digest();
        let source = digest.to_string();
        let pull_secret = inputs.additions.pull_secret.clone();
        let mut workloads = Workloads { pull_secret, ..Workloads::default() };
        let mut details = RenderDetails::default();
        let mut reads = ChartReads::default();
        let (text, chart): (Text, Option<Arc<Chart>>) = match content {
            Content::Manifests { yaml, images, .. } => {
                workloads.images = LocalisedImages::new(&images);
                (Text::Plain(yaml), None)
            }
            Content::Chart { chart, .. } => {
                reads = ChartReads::of(&chart, inputs, &source);
                let rendered =
                    self.render_chart(component, &chart, inputs, &reads, kinds, render_store).await?;
                details = rendered.details;
                (Text::Rendered(rendered.text), Some(chart))
            }
        };
        let warnings = reads.warnings(&text);
        let parsed = self.parse(&text, &details).map_err(|failure| match &chart {
            None => source::reject(&artifacts, &place, digest, credentials, failure),
            Some(_) => failure,
        });
        let set = inputs.changes.apply(Arc::unwrap_or_clone(parsed?), kinds, &inputs.release.namespace)?;
        let release = &inputs.release.namespace;
        let mut prepared = objects::prepare(set, chart.is_some(), kinds, release, &inputs.marks, &workloads);
        prepared.warnings.extend(warnings);
        let made_once = match &chart {
            Some(chart) if spec.crds == CrdPolicy::Create => crds(chart).await?,
            _ => BTreeSet::new(),
        };
        Ok(LoadedContent {
            inputs: inputs.digest.clone(),
            release: inputs.release_digest(&source),
            values: inputs.values_digest.clone(),
            values_from: inputs.values_from.clone(),
            kinds: reads.api_versions.then(|| kinds_digest(kinds)),
            source,
            render: details.stored_render,
            rendered: rendered_digest(&prepared),
            prepared: Arc::new(prepared),
            made_once,
            raw: chart.is_none(),
            chart: chart.as_ref().map(|chart| (chart.name().to_owned(), chart.version().to_owned())),
            app_version: chart.as_ref().map(|chart| chart.app_version().to_owned()).unwrap_or_default(),
            uses_lookup: chart.is_some_and(|chart| chart.uses_lookup()),
            store_failure: details.store_failure,
            tests_vary: details.tests_vary,
            revision: reads.revision,
        })
    }

    /// Parses a text. A render that varies is not kept: it may have a password, and no other component has the same.
    fn parse(&self, text: &Text, details: &RenderDetails) -> Result<Arc<ObjectSet>, Failure> {
        if details.is_nondeterministic() { text.parse().map(Arc::new) } else { self.parsed.objects(text) }
    }

    async fn render_chart(
        &self,
        component: &HelmComponent,
        chart: &Arc<Chart>,
        inputs: &Inputs,
        reads: &ChartReads,
        kinds: &Kinds,
        render_store: &RenderStore,
    ) -> Result<Render, LoadFailure> {
        let request = request(chart, &component.spec, inputs, kinds, reads.revision.as_ref()).await?;
        let rendered = self.render_with_own_kinds(component, request, kinds, render_store).await;
        rendered.map_err(|failure| LoadFailure { failure, awaits_kinds: reads.api_versions })
    }

    /// Renders with the kinds of the chart's own CRDs, which Helm installs before it renders. If the result lacks
    /// some of them, as for subcharts that the values disable, renders once more without those kinds.
    async fn render_with_own_kinds(
        &self,
        component: &HelmComponent,
        request: RenderRequest,
        kinds: &Kinds,
        render_store: &RenderStore,
    ) -> Result<Render, Failure> {
        let rendered = self.render(component, &request, render_store).await?;
        let served: BTreeSet<String> = kinds.api_versions().into_iter().collect();
        if request.api_versions.is_subset(&served) {
            return Ok(rendered);
        }
        let set = self.parse(&Text::Rendered(Arc::clone(&rendered.text)), &rendered.details)?;
        let brought: BTreeSet<Identity> = set.crds().map(kyma_object_set::Object::identity).collect();
        let own = request.chart.own_kinds().iter().filter(|(crd, _)| brought.contains(crd));
        let expected: BTreeSet<String> = own.flat_map(|(_, names)| names).chain(&served).cloned().collect();
        if *request.api_versions == expected {
            return Ok(rendered);
        }
        let request = RenderRequest { api_versions: Arc::new(expected), ..request };
        self.render(component, &request, render_store).await
    }

    /// Renders the chart, or returns a stored render if results vary. Varying results of tests alone are stored only
    /// for releases whose tests run.
    async fn render(
        &self,
        component: &HelmComponent,
        request: &RenderRequest,
        render_store: &RenderStore,
    ) -> Result<Render, Failure> {
        let Some(renderer) = &self.renderer else {
            return Err(Failure::new(
                Reason::RendererUnavailable,
                "no `helm` program was found when the operator started (--helm)",
            ));
        };
        let nondeterminism = request.chart.nondeterminism(&request.values);
        if nondeterminism == Nondeterminism::None {
            let text = rendered(renderer, request).await?;
            return Ok(Render { text, details: RenderDetails::default() });
        }
        let mut fresh = None;
        if nondeterminism == Nondeterminism::Tests && !render_store.stores_tests() {
            let details = RenderDetails { tests_vary: true, ..RenderDetails::default() };
            if let Some(text) = self.only_tests.get(component, request) {
                return Ok(Render { text, details });
            }
            let text = rendered(renderer, request).await?;
            if tests_folder_has_only_tests(&text, request.chart.name()) {
                self.only_tests.put(component, request, &text);
                return Ok(Render { text, details });
            }
            fresh = Some(text);
        }
        let key = request.lasting_digest();
        let StoredRender { text, render, failure } = match (render_store.find(&key).await?, fresh) {
            (RenderLookup::Found(stored), _) => stored,
            (RenderLookup::Missing(slot), Some(fresh)) => render_store.store(*slot, &key, fresh).await,
            (RenderLookup::Missing(slot), None) => {
                render_store.store(*slot, &key, rendered(renderer, request).await?).await
            }
        };
        Ok(Render {
            text,
            details: RenderDetails { stored_render: Some(render), store_failure: failure, tests_vary: false },
        })
    }
}

/// Prefix of a comment with a warning of the renderer.
const WARNING: &str = "# renderer warning: ";
/// Maximum number of warnings that are shown for one render.
const MAX_WARNINGS: usize = 10;

/// Properties of the release and the target that a chart reads with its values. The default reads nothing.
#[derive(Default)]
struct ChartReads {
    /// The revision of the release, if the chart reads it.
    revision: Option<ReleaseRevision>,
    /// Whether it reads the API versions of the target.
    api_versions: bool,
    /// Whether it also sees the API versions that Helm was compiled with.
    compiled_versions: bool,
}

impl ChartReads {
    fn of(chart: &Chart, inputs: &Inputs, source: &str) -> Self {
        let values = &inputs.merged.values;
        Self {
            revision: chart.depends_on_revision(values).then(|| inputs.revision_of(source)),
            api_versions: chart.depends_on_api_versions(values),
            compiled_versions: chart.keeps_compiled_versions(),
        }
    }

    /// Returns the warnings of the renderer, and one if the render may differ from Helm's.
    fn warnings(&self, text: &Text) -> Vec<String> {
        let mut warnings = match text {
            Text::Rendered(text) => warnings_of(text),
            Text::Plain(_) => vec![],
        };
        if self.api_versions && self.compiled_versions {
            warnings.push(COMPILED_VERSIONS.to_owned());
        }
        warnings
    }
}

/// An error of [`Sources::load`].
pub(crate) struct LoadFailure {
    pub failure: Failure,
    /// Whether a new kind on the target may resolve it: the render failed, and the chart reads the API versions.
    pub awaits_kinds: bool,
}

impl From<Failure> for LoadFailure {
    fn from(failure: Failure) -> Self {
        Self { failure, awaits_kinds: false }
    }
}

/// Warning for a chart that gets API versions that the target does not serve.
const COMPILED_VERSIONS: &str = "the chart prints .Capabilities.KubeVersion as a whole, so .Capabilities.APIVersions also \
     has the versions that the helm program was compiled with, which the target may not serve; print \
     .Capabilities.KubeVersion.Version instead";

/// Rendered chart.
struct Render {
    text: Arc<str>,
    details: RenderDetails,
}

/// Whether a render is deterministic, and whether it is stored.
#[derive(Default)]
struct RenderDetails {
    /// Digest of the stored render, if it is nondeterministic.
    stored_render: Option<String>,
    /// Why a nondeterministic render could not be stored.
    store_failure: Option<String>,
    /// Whether only tests vary, so that the render is not kept.
    tests_vary: bool,
}

impl RenderDetails {
    fn is_nondeterministic(&self) -> bool {
        self.stored_render.is_some() || self.tests_vary
    }
}

async fn rendered(renderer: &Arc<dyn Renderer>, request: &RenderRequest) -> Result<Arc<str>, Failure> {
    let done = renderer.render(request).await.map_err(|error| failure(&error))?;
    if done.warnings.is_empty() {
        return Ok(done.manifest);
    }
    // Warnings are stored as comments, so that they stay with the rendered text in every cache and record.
    let warnings = done.warnings.iter().map(|warning| format!("\n{WARNING}{warning}"));
    Ok(std::iter::once(done.manifest.to_string()).chain(warnings).collect::<String>().into())
}

/// Returns the renderer's warnings at the end of a rendered text.
fn warnings_of(text: &str) -> Vec<String> {
    let lines = text.lines().rev().map_while(|line| line.strip_prefix(WARNING));
    let mut warnings: Vec<String> = lines.take(MAX_WARNINGS).map(ToOwned::to_owned).collect();
    warnings.reverse();
    warnings
}

async fn request(
    chart: &Arc<Chart>,
    spec: &HelmComponentSpec,
    inputs: &Inputs,
    kinds: &Kinds,
    revision: Option<&ReleaseRevision>,
) -> Result<RenderRequest, Failure> {
    // The list has about a thousand entries, and most charts read none.
    let reads_kinds = chart.depends_on_api_versions(&inputs.merged.values);
    let mut api_versions = BTreeSet::new();
    if reads_kinds {
        api_versions.extend(kinds.api_versions());
        if spec.crds != CrdPolicy::Skip {
            api_versions.extend(own_kinds(chart).await?);
        }
    }
    Ok(RenderRequest {
        chart: Arc::clone(chart),
        release: inputs.release.name.clone(),
        namespace: inputs.release.namespace.clone(),
        values: inputs.merged.values.clone(),
        kube_version: kinds.kube_version().to_owned(),
        api_versions: Arc::new(api_versions),
        revision: revision.map(|revision| u32::try_from(revision.number).unwrap_or(1)),
        crds: spec.crds != CrdPolicy::Skip,
        deadline: render_deadline(spec),
    })
}

/// Returns the API versions and kinds of the chart's own CRDs, as in `.Capabilities.APIVersions`.
async fn own_kinds(chart: &Arc<Chart>) -> Result<Vec<String>, Failure> {
    let (chart, archive) = (Arc::clone(chart), chart.archive().clone());
    let read = run_unpacking(archive, move |_| chart.own_kinds().values().flatten().cloned().collect()).await;
    read.map_err(|error| Failure::new(Reason::Internal, error.to_string()))
}

/// Returns the identities of the objects in a chart's `crds` folders.
async fn crds(chart: &Arc<Chart>) -> Result<BTreeSet<Identity>, Failure> {
    let (chart, archive) = (Arc::clone(chart), chart.archive().clone());
    let read = run_unpacking(archive, move |_| chart.crds()).await;
    read.map_err(|error| Failure::new(Reason::Internal, error.to_string()))
}

fn render_deadline(spec: &HelmComponentSpec) -> Option<Duration> {
    let seconds = spec.timeouts.as_ref()?.render_seconds?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// Returns the digest of the kinds that a target serves.
pub(crate) fn kinds_digest(kinds: &Kinds) -> String {
    digest(&[kinds.api_versions().join("\n").as_bytes()])
}

pub(crate) fn rendered_digest(prepared: &PreparedObjects) -> String {
    let hashes: Vec<String> = prepared
        .objects
        .iter()
        .map(|object| format!("{} {}", object.identity(), object.intent_hash()))
        .collect();
    digest(&[hashes.join("\n").as_bytes()])
}

fn failure(error: &RenderError) -> Failure {
    Failure::new(error.reason(), error.to_string())
}
