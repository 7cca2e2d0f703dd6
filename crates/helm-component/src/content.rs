//! From a component's spec to the objects it stands for: fetched, rendered, prepared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kyma_api::{CrdPolicy, HelmComponent, HelmComponentSpec, Reason, ResolvedVersion, Source, annotations};
use kyma_artifacts::{Artifacts, Credentials, LocalisedImages, RegistryBase, Trust, TrustRoot};
use kyma_object_set::{Identity, Kinds, Limits, ObjectSet, Yielded};
use kyma_sdk::Failure;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::changes::{self, Changes};
use crate::frozen::Frozen;
use crate::hub_secrets::Additions;
use crate::objects::{self, Marks, Prepared};
use crate::ranges;
use crate::release::Release;
use crate::render::{Chart, RenderError, RenderRequest, Renderer};
use crate::source::{self, Content};
use crate::values::{self, Merged, VALUES};
use crate::workloads::Workloads;

/// Where content comes from and what turns it into objects; shared by all components.
pub(crate) struct Sources {
    /// Artifacts, cached.
    pub artifacts: Artifacts,
    /// The render engine; `None` where there is none.
    pub renderer: Option<Arc<dyn Renderer>>,
    /// Where OCM components lie whose source names no repository.
    pub default_base: Option<RegistryBase>,
    /// Authorities and logs of signers without keys; `None` where the operator has none.
    pub trust_root: Option<Arc<TrustRoot>>,
}

/// Everything that decides a component's objects, but the content itself and the target's kinds.
#[derive(Debug, Clone)]
pub(crate) struct Inputs {
    /// Where the content comes from, with the version that a range stands for.
    pub source: Source,
    /// Name and namespace of the release.
    pub release: Release,
    /// Marks on every object.
    pub marks: Marks,
    /// The merged values.
    merged: Merged,
    /// What the spec changes in the objects.
    changes: Changes,
    /// Fields that others may change.
    pub yielded: Yielded,
    /// What the operator adds to the objects.
    pub additions: Additions,
    /// Digest over all of it.
    pub digest: String,
    /// Digest over what somebody asked for: all but the target's version.
    pub wish: String,
    /// Digest of the values.
    pub values_digest: String,
}

impl Inputs {
    /// Reads them from the spec, what its `valuesFrom` brought and the version that the range of its chart stands for,
    /// for a target of this version.
    pub(crate) fn of(
        spec: &HelmComponentSpec,
        resolved: Option<&ResolvedVersion>,
        from: &Map<String, Value>,
        release: Release,
        marks: Marks,
        kube_version: &str,
        additions: Additions,
    ) -> Result<Self, Failure> {
        let merged =
            values::merge(spec.values.as_ref(), from, spec.user_values.as_ref(), spec.overrides.as_ref());
        let values = serde_json::to_vec(&merged.values).unwrap_or_default();
        if values.len() > VALUES {
            return Err(Failure::new(
                Reason::ValuesInvalid,
                format!("the merged values are larger than {VALUES} bytes"),
            ));
        }
        let values_digest = digest(&[&values]);
        let source = ranges::pinned(&spec.source, resolved).into_owned();
        let mut whole = json!({
            "source": source,
            "values": values_digest,
            "release": [release.name, release.namespace],
            "marks": [marks.owner, marks.kyma, marks.version],
            "crds": spec.crds,
            "kube": kube_version,
        });
        if spec.source.ocm.is_some() {
            // Images are those of the component: objects made before that was so are made anew.
            whole["images"] = "localised".into();
        }
        changes::tell(spec, &mut whole);
        let ignored = spec.drift.as_ref().and_then(|drift| drift.ignore.as_deref()).unwrap_or_default();
        if !ignored.is_empty() {
            whole["ignored"] = json!(ignored);
        }
        if let Some(name) = &additions.pull_secret {
            whole["pullSecret"] = name.as_str().into();
        }
        if let Some(injectable) = &additions.injectable {
            whole["injectable"] = json!(injectable);
        }
        // Other keys may not have signed what these have.
        if !additions.verified_by.is_empty() {
            whole["verifiedBy"] = json!(additions.verified_by);
        }
        let changes = Changes::of(spec)?;
        let yielded = Yielded::parse(ignored)
            .map_err(|error| Failure::new(Reason::SpecInvalid, format!("spec.{error}")))?;
        let text = whole.to_string();
        whole["kube"] = Value::Null;
        let (digest, wish) = (digest(&[text.as_bytes()]), digest(&[whole.to_string().as_bytes()]));
        Ok(Self { source, release, marks, merged, changes, yielded, additions, digest, wish, values_digest })
    }

    /// Whether a release of this chart, with these values, is what is asked for.
    pub(crate) fn is_of(
        &self,
        chart: &(String, String),
        values: &Map<String, Value>,
        loaded: &Loaded,
    ) -> bool {
        loaded.chart.as_ref() == Some(chart) && self.merged.values == *values
    }

    /// Digest of what makes content from this artifact a release of its own.
    pub(crate) fn release_digest(&self, source: &str) -> String {
        let Release { name, namespace, .. } = &self.release;
        digest(&[json!([source, self.values_digest, name, namespace]).to_string().as_bytes()])
    }

    /// The chart's version, where its source names one.
    pub(crate) fn chart_version(&self) -> Option<&str> {
        self.source.chart.as_ref()?.version.as_deref()
    }

    /// Whether objects bear the version of the module.
    pub(crate) fn are_versioned(&self) -> bool {
        self.marks.kyma.is_some() && self.marks.version.is_some()
    }

    /// The merged values.
    pub(crate) fn values(&self) -> &Map<String, Value> {
        &self.merged.values
    }

    /// Whether a Kyma owns the component.
    pub(crate) fn are_a_kymas(&self) -> bool {
        self.marks.kyma.is_some()
    }

    /// Key paths at which an override replaced the user's value.
    pub(crate) fn overridden(&self) -> &[String] {
        &self.merged.replaced
    }
}

/// Content at hand.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// Digest of the inputs that it was made from.
    pub inputs: String,
    /// Digest of the target's kinds, where the chart asks for them.
    pub kinds: Option<String>,
    /// Digest of the artifact.
    pub source: String,
    /// Digest of the values.
    pub values: String,
    /// Digest of what makes it a release of its own: artifact, values, name and namespace. Of one that is gone back to, or
    /// tried again, also which time: its hooks run anew.
    pub release: String,
    /// Digest of all objects.
    pub rendered: String,
    /// The objects and what was left out.
    pub prepared: Arc<Prepared>,
    /// CRDs that are made where they are missing, and left as they are where they are not.
    pub made_once: BTreeSet<Identity>,
    /// Whether the objects are as the source has them, not rendered.
    pub raw: bool,
    /// Name and version of the chart, where it is one.
    pub chart: Option<(String, String)>,
    /// Version of what the chart brings, as it says.
    pub app_version: String,
    /// Whether the chart calls `lookup`, which finds nothing.
    pub uses_lookup: bool,
    /// Why the render is not kept, where each would give something else.
    pub unfrozen: Option<String>,
}

impl Loaded {
    /// The module's version on the objects that bear it.
    pub(crate) fn versions(&self) -> BTreeMap<Identity, String> {
        let objects = self.prepared.objects.iter();
        let marked = objects.filter_map(|one| {
            Some((one.identity(), one.annotation(annotations::MODULE_VERSION)?.to_owned()))
        });
        marked.collect()
    }

    /// Fills in namespaces of objects whose kind the target has come to serve since they were prepared.
    pub(crate) fn rescope(&mut self, kinds: &Kinds, namespace: &str) {
        let scoped = |object: &kyma_object_set::Object| kinds.scoped(&object.identity(), namespace).namespace;
        let fits = |object: &kyma_object_set::Object| object.namespace() == scoped(object).as_deref();
        if self.prepared.objects.iter().chain(self.prepared.hook_objects()).all(fits) {
            return;
        }
        let Prepared { objects, hooks, .. } = Arc::make_mut(&mut self.prepared);
        for object in objects.iter_mut().chain(hooks.iter_mut().map(|hook| &mut hook.object)) {
            let namespace = scoped(object);
            object.set_namespace(namespace.as_deref());
        }
    }
}

impl Sources {
    /// Fetches, renders and prepares; with `installed` only if the source still holds that, and where somebody is to be
    /// trusted only what they signed.
    pub(crate) async fn load(
        &self,
        component: &HelmComponent,
        inputs: &Inputs,
        kinds: &Kinds,
        installed: Option<kyma_artifacts::Digest>,
        (credentials, trust): (&Credentials, Option<Arc<Trust>>),
        frozen: &Frozen,
    ) -> Result<Loaded, Failure> {
        let spec = &component.spec;
        let place = source::place(&inputs.source, self.default_base.as_ref())?;
        let artifacts = trust.map_or_else(|| self.artifacts.clone(), |trust| self.artifacts.trusting(trust));
        let content = source::fetch(&artifacts, &place, installed, credentials).await?;
        let source = content.digest().to_string();
        let pull_secret = inputs.additions.pull_secret.clone();
        let mut workloads = Workloads { pull_secret, ..Workloads::default() };
        let mut unfrozen = None;
        let (text, chart): (Text, Option<Arc<Chart>>) = match content {
            Content::Manifests { yaml, images, .. } => {
                workloads.images = LocalisedImages::new(&images);
                (Text::Plain(yaml), None)
            }
            Content::Chart { chart, .. } => {
                let request = request(&chart, spec, inputs, kinds);
                let (text, why) = self.render(&request, frozen).await?;
                unfrozen = why;
                (Text::Rendered(text), Some(chart))
            }
        };
        let set = inputs.changes.apply(text.parse()?, kinds, &inputs.release.namespace)?;
        let release = &inputs.release.namespace;
        let prepared = objects::prepare(set, chart.is_some(), kinds, release, &inputs.marks, &workloads);
        let made_once = match &chart {
            Some(chart) if spec.crds == CrdPolicy::Create => crds(chart).await?,
            _ => BTreeSet::new(),
        };
        let kinds_matter = chart.as_ref().is_some_and(|chart| asks_for_kinds(chart, &inputs.merged.values));
        Ok(Loaded {
            inputs: inputs.digest.clone(),
            release: inputs.release_digest(&source),
            values: inputs.values_digest.clone(),
            kinds: kinds_matter.then(|| kinds_digest(kinds)),
            source,
            rendered: rendered_digest(&prepared),
            prepared: Arc::new(prepared),
            made_once,
            raw: chart.is_none(),
            chart: chart.as_ref().map(|chart| (chart.name().to_owned(), chart.version().to_owned())),
            app_version: chart.as_ref().map(|chart| chart.app_version().to_owned()).unwrap_or_default(),
            uses_lookup: chart.is_some_and(|chart| chart.uses_lookup()),
            unfrozen,
        })
    }

    /// Renders, but where each render would give something else and one is kept. Says why it is not.
    async fn render(
        &self,
        request: &RenderRequest,
        frozen: &Frozen,
    ) -> Result<(Arc<str>, Option<String>), Failure> {
        let Some(renderer) = &self.renderer else {
            return Err(Failure::new(
                Reason::RendererUnavailable,
                "no `helm` program was found when the operator started (--helm)",
            ));
        };
        let key = request.chart.goes_by_chance(&request.values).then(|| frozen_key(request));
        if let Some(key) = &key
            && let Some(kept) = frozen.thaw(key).await?
        {
            return Ok((kept, None));
        }
        let text = renderer.render(request).await.map_err(|error| failure(&error))?.manifest;
        let why = match &key {
            Some(key) => frozen.freeze(key, &text).await,
            None => None,
        };
        Ok((text, why))
    }
}

fn request(chart: &Arc<Chart>, spec: &HelmComponentSpec, inputs: &Inputs, kinds: &Kinds) -> RenderRequest {
    let api_versions =
        if asks_for_kinds(chart, &inputs.merged.values) { kinds.api_versions() } else { vec![] };
    RenderRequest {
        chart: Arc::clone(chart),
        release: inputs.release.name.clone(),
        namespace: inputs.release.namespace.clone(),
        values: inputs.merged.values.clone(),
        kube_version: kinds.kube_version().to_owned(),
        api_versions: Arc::new(api_versions.into_iter().collect()),
        crds: spec.crds != CrdPolicy::Skip,
        deadline: render_deadline(spec),
    }
}

/// What a render is kept for: all that goes into it, but for the version of Kubernetes where nothing asks for it. A new
/// version of the target's must not make new passwords.
fn frozen_key(request: &RenderRequest) -> String {
    let asks = request.chart.reads_kube_version() || mentions(&request.values, "KubeVersion");
    let version = if asks { request.kube_version.clone() } else { String::new() };
    RenderRequest { kube_version: version, ..request.clone() }.digest()
}

enum Text {
    Plain(bytes::Bytes),
    Rendered(Arc<str>),
}

impl Text {
    fn parse(&self) -> Result<ObjectSet, Failure> {
        let parsed = match self {
            Self::Plain(bytes) => ObjectSet::parse_bytes(bytes, &Limits::default()),
            Self::Rendered(text) => ObjectSet::parse(text, &Limits::default()),
        };
        parsed.map_err(|error| Failure::new(Reason::ManifestInvalid, error.to_string()))
    }
}

/// What lies in a chart's `crds` folders. Reading its archive is processor work.
async fn crds(chart: &Arc<Chart>) -> Result<BTreeSet<Identity>, Failure> {
    let chart = Arc::clone(chart);
    let read = tokio::task::spawn_blocking(move || chart.crds()).await;
    read.map_err(|error| Failure::new(Reason::Internal, error.to_string()))
}

/// Whether the target's list of kinds can change what the chart renders; `tpl` makes values count as templates.
fn asks_for_kinds(chart: &Chart, values: &Map<String, Value>) -> bool {
    chart.reads_api_versions() || mentions(values, "APIVersions")
}

fn mentions(values: &Map<String, Value>, word: &str) -> bool {
    Value::Object(values.clone()).to_string().contains(word)
}

fn render_deadline(spec: &HelmComponentSpec) -> Option<Duration> {
    let seconds = spec.timeouts.as_ref()?.render_seconds?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// Digest of the kinds that a target serves.
pub(crate) fn kinds_digest(kinds: &Kinds) -> String {
    digest(&[kinds.api_versions().join("\n").as_bytes()])
}

pub(crate) fn rendered_digest(prepared: &Prepared) -> String {
    let hashes: Vec<String> = prepared
        .objects
        .iter()
        .map(|object| format!("{} {}", object.identity(), object.intent_hash()))
        .collect();
    digest(&[hashes.join("\n").as_bytes()])
}

pub(crate) fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

fn failure(error: &RenderError) -> Failure {
    Failure::new(error.reason(), error.to_string())
}

#[cfg(test)]
mod tests {
    use kyma_sdk::Revision;

    use super::*;

    fn digest_of(source: &Value, additions: Additions) -> String {
        let spec: HelmComponentSpec = serde_json::from_value(json!({"source": source})).unwrap();
        let release = crate::release::of("c", &spec, "here");
        let marks = Marks { owner: "abc".to_owned(), kyma: None, version: None };
        Inputs::of(&spec, None, &Map::new(), release, marks, "1.36", additions).unwrap().digest
    }

    #[test]
    fn what_is_added_to_objects_is_told_by_the_digest_of_what_they_are_made_from() {
        let source = json!({"manifests": {"url": "https://example.org/a.yaml"}});
        let injectable = |version: &str| {
            let revision = Revision { uid: "u".to_owned(), resource_version: version.to_owned() };
            Some(BTreeMap::from([("s".to_owned(), revision)]))
        };
        let keys = |version: Option<&str>| {
            let revision =
                |version: &str| Revision { uid: "u".to_owned(), resource_version: version.to_owned() };
            BTreeMap::from([("keys".to_owned(), version.map(revision))])
        };
        let all = [
            Additions::default(),
            Additions { pull_secret: Some("pull".to_owned()), ..Additions::default() },
            Additions { pull_secret: Some("other".to_owned()), ..Additions::default() },
            Additions { injectable: Some(BTreeMap::new()), ..Additions::default() },
            Additions { injectable: injectable("1"), ..Additions::default() },
            Additions { injectable: injectable("2"), ..Additions::default() },
            Additions { verified_by: keys(None), ..Additions::default() },
            Additions { verified_by: keys(Some("1")), ..Additions::default() },
            Additions { verified_by: keys(Some("2")), ..Additions::default() },
        ];
        let digests: std::collections::BTreeSet<String> =
            all.iter().map(|additions| digest_of(&source, additions.clone())).collect();
        assert_eq!(digests.len(), all.len());
    }
}
