//! Input of `run --once`: one Kyma and its catalogue.

mod read;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, GroupVersionKind, Patch, PatchParams, ValidationDirective},
};
use kyma_api::{
    HelmComponent, Kyma, ModuleConfig, ModuleReleaseMeta, ModuleTemplate, names,
    visibility::{Audience, Viewer},
};
use serde::{Serialize, de::DeserializeOwned};

use super::mark::mark;
use crate::{error::Error, file::check_one_standard_input, hub::MANAGER};
use read::{files, objects, typed};

/// The objects read from files.
#[derive(Debug)]
pub(super) struct RunInput {
    pub(super) kyma: Kyma,
    templates: Vec<ModuleTemplate>,
    releases: Vec<ModuleReleaseMeta>,
    configs: Vec<ModuleConfig>,
}

/// A mandatory module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MandatoryModule {
    pub(super) name: String,
    pub(super) version: String,
    /// Kind of its component.
    pub(super) kind: GroupVersionKind,
}

impl RunInput {
    /// Reads the files. Objects without a namespace get `namespace`.
    pub(super) fn read(kyma: &Path, catalogue: &[PathBuf], namespace: &str) -> Result<Self, Error> {
        check_one_standard_input(catalogue.iter().map(PathBuf::as_path).chain([kyma]))?;
        let file = kyma;
        let mut kymas = objects(file)?.into_iter();
        let (Some(kyma), None) = (kymas.next(), kymas.next()) else {
            return Err(Error::input(file.display().to_string(), "expected exactly one Kyma"));
        };
        let mut input = Self {
            kyma: typed(file, "Kyma", kyma, namespace)?,
            templates: Vec::new(),
            releases: Vec::new(),
            configs: Vec::new(),
        };
        for file in files(catalogue)? {
            for object in objects(&file)? {
                match object["kind"].as_str() {
                    Some("ModuleTemplate") => {
                        input.templates.push(typed(&file, "ModuleTemplate", object, namespace)?);
                    }
                    Some("ModuleReleaseMeta") => {
                        input.releases.push(typed(&file, "ModuleReleaseMeta", object, namespace)?);
                    }
                    Some("ModuleConfig") => {
                        input.configs.push(typed(&file, "ModuleConfig", object, namespace)?);
                    }
                    other => {
                        let problem = format!(
                            "{} is not part of a catalogue",
                            other.unwrap_or("an object without kind")
                        );
                        return Err(Error::input(file.display().to_string(), problem));
                    }
                }
            }
        }
        Ok(input)
    }

    /// Applies everything to the cluster, the catalogue before the Kyma.
    pub(super) async fn apply(&self, client: &Client) -> Result<(), Error> {
        for config in &self.configs {
            apply(client, config).await?;
        }
        for template in &self.templates {
            apply(client, template).await?;
        }
        for release in &self.releases {
            apply(client, release).await?;
        }
        apply(client, &self.kyma).await
    }

    /// Returns the mandatory modules in the files that the Kyma gets.
    pub(super) fn mandatory(&self) -> Vec<MandatoryModule> {
        let (none, restricted) = (BTreeMap::new(), BTreeSet::new());
        let viewer =
            Viewer { labels: self.kyma.metadata.labels.as_ref().unwrap_or(&none), restricted: &restricted };
        let module = |release: &ModuleReleaseMeta| {
            let version = release.spec.mandatory.as_ref()?.version.clone();
            let name = release.name_any();
            let template = names::template_name(&name, &version);
            let template = self.templates.iter().find(|one| one.name_any() == template)?;
            let audience = Audience { mandatory: false, ..Audience::of(template) };
            viewer.version(audience).ok()?;
            let kind = match &template.spec.component {
                None => {
                    let base = ApiResource::erase::<HelmComponent>(&());
                    GroupVersionKind::gvk(&base.group, &base.version, &base.kind)
                }
                Some(component) => {
                    let (group, version) = component.api_version.split_once('/')?;
                    GroupVersionKind::gvk(group, version, &component.kind)
                }
            };
            Some(MandatoryModule { name, version, kind })
        };
        self.releases.iter().filter_map(module).collect()
    }

    /// Reports whether a module brings the CRD of its component kind, which kyma-operator then installs.
    pub(super) fn brings_crd(&self, group: &str, kind: &str) -> bool {
        let components = self.templates.iter().filter_map(|template| template.spec.component.as_ref());
        let is_of_group = |version: &str| version.split_once('/').is_some_and(|(of, _)| of == group);
        components
            .filter(|component| component.crd.is_some())
            .any(|component| component.kind == kind && is_of_group(&component.api_version))
    }

    /// Returns the expected version of each module, as far as the files define it.
    pub(super) fn versions(&self) -> BTreeMap<String, String> {
        let release = |module: &str| {
            self.releases.iter().find(|release| release.metadata.name.as_deref() == Some(module))
        };
        let of_channel = |module: &str, channel: &str| {
            let channels = release(module)?.spec.channels.iter().flatten();
            channels.into_iter().find(|one| one.channel == channel).map(|one| one.version.clone())
        };
        let modules = self.kyma.spec.modules.iter().flatten();
        modules
            .filter_map(|module| {
                let channel = module.channel.as_ref().unwrap_or(&self.kyma.spec.channel);
                let version = module.version.clone().or_else(|| of_channel(&module.name, channel))?;
                Some((module.name.clone(), version))
            })
            .collect()
    }
}

async fn apply<K>(client: &Client, object: &K) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let live = api.get_metadata_opt(&object.name_any()).await?;
    let mut object = object.clone();
    mark(object.meta_mut(), live.as_ref().map(|live| &live.metadata));
    let mut parameters = PatchParams::apply(MANAGER).force();
    parameters.field_validation = Some(ValidationDirective::Strict);
    api.patch(&object.name_any(), &parameters, &Patch::Apply(&object)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KYMA: &str = "\
apiVersion: operator.kyma-project.io/v1beta2
kind: Kyma
metadata: {name: one}
spec:
  channel: regular
  modules:
  - name: keda
  - {name: serverless, channel: fast}
  - {name: istio, version: 1.30.0}
  - name: unknown
";
    const RELEASES: &str = "\
apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleReleaseMeta
metadata: {name: keda, namespace: ''}
spec: {moduleName: keda, channels: [{channel: regular, version: 1.0.0}, {channel: fast, version: 2.0.0}]}
---
apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleReleaseMeta
metadata: {name: serverless, namespace: kcp-system}
spec: {moduleName: serverless, channels: [{channel: fast, version: 3.0.0}]}
";

    fn input(kyma: &str, releases: &str) -> Result<RunInput, Error> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kyma.yaml");
        let catalogue = directory.path().join("catalogue");
        std::fs::create_dir(&catalogue).unwrap();
        std::fs::write(&file, kyma).unwrap();
        std::fs::write(catalogue.join("a.yaml"), releases).unwrap();
        std::fs::write(catalogue.join("notes.txt"), "not YAML: [").unwrap();
        RunInput::read(&file, &[catalogue], "kcp-system")
    }

    #[test]
    fn versions_come_from_pins_and_channels() {
        let input = input(KYMA, RELEASES).unwrap();
        let expected = [("istio", "1.30.0"), ("keda", "1.0.0"), ("serverless", "3.0.0")];
        assert_eq!(
            input.versions(),
            expected.map(|(name, version)| (name.to_owned(), version.to_owned())).into()
        );
        assert_eq!(input.kyma.namespace().as_deref(), Some("kcp-system"));
        let namespaces: Vec<_> = input.releases.iter().filter_map(kube::ResourceExt::namespace).collect();
        assert_eq!(namespaces, ["kcp-system", "kcp-system"]);
    }

    #[test]
    fn the_output_of_kubectl_get_is_a_catalogue() {
        let meta = "creationTimestamp: '2026-01-01T00:00:00Z', generation: 3, resourceVersion: '7', uid: u, \
                    finalizers: [x/y], ownerReferences: [], managedFields: [{manager: m}], \
                    annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}', a: b}";
        let api = "operator.kyma-project.io/v1beta2";
        let kyma = format!(
            "apiVersion: {api}\nkind: Kyma\nmetadata: {{name: one, {meta}}}\nspec: {{channel: regular}}\n\
             status: {{state: Ready}}\n"
        );
        let release = |name: &str, typed: &str| {
            format!("{{{typed} metadata: {{name: {name}, {meta}}}, spec: {{moduleName: {name}}}}}")
        };
        let whole = format!("apiVersion: {api}, kind: ModuleReleaseMeta,");
        let lists = format!(
            "apiVersion: v1\nkind: List\nmetadata: {{resourceVersion: ''}}\nitems: [{}, {}]\n---\n\
             apiVersion: {api}\nkind: ModuleReleaseMetaList\nitems: [{}]\n---\n\
             apiVersion: v1\nkind: List\nitems: []\n",
            release("keda", &whole),
            release("istio", &whole),
            release("nats", "")
        );
        let input = input(&kyma, &lists).unwrap();
        let names: Vec<_> = input.releases.iter().map(kube::ResourceExt::name_any).collect();
        assert_eq!(names, ["keda", "istio", "nats"]);
        let metas = input.releases.iter().map(|release| &release.metadata).chain([&input.kyma.metadata]);
        for meta in metas {
            let left = serde_json::to_value(meta).unwrap();
            let mut fields: Vec<_> = left.as_object().unwrap().keys().map(String::as_str).collect();
            fields.sort_unstable();
            assert_eq!(fields, ["annotations", "name", "namespace"], "{left}");
            assert_eq!(left["annotations"], serde_json::json!({"a": "b"}));
        }
        assert_eq!(input.kyma.status, None);
    }

    #[test]
    fn mandatory_modules_that_the_kyma_may_see_are_awaited() {
        let module = |name: &str, labels: &str, component: &str| {
            format!(
                "---\napiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\nmetadata: {{name: {name}}}\n\
                 spec: {{moduleName: {name}, mandatory: {{version: 1.0.0}}}}\n\
                 ---\napiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\n\
                 metadata: {{name: {name}-1.0.0, labels: {{{labels}}}}}\n\
                 spec: {{descriptor: {{}}, moduleName: {name}, version: 1.0.0{component}}}\n"
            )
        };
        let own = ", component: {apiVersion: demo.example.org/v1, kind: Greeting, spec: {}, crd: {}}";
        let beta = "operator.kyma-project.io/beta: 'true'";
        let config = "---\napiVersion: operator.kyma-project.io/v1alpha1\nkind: ModuleConfig\nmetadata: {name: keda}\n\
                      spec: {module: keda}\n";
        let files = [
            module("agent", "", ""),
            module("greeter", "", own),
            module("early", beta, ""),
            config.to_owned(),
        ];
        let input = input(KYMA, &files.concat()).unwrap();
        let found: Vec<_> =
            input.mandatory().into_iter().map(|one| (one.name, one.version, one.kind.kind)).collect();
        let row = |name: &str, kind: &str| (name.to_owned(), "1.0.0".to_owned(), kind.to_owned());
        assert_eq!(found, [row("agent", "HelmComponent"), row("greeter", "Greeting")]);
        assert_eq!(input.configs.len(), 1);
        assert!(input.brings_crd("demo.example.org", "Greeting"));
        assert!(
            !input.brings_crd("example.org", "Greeting") && !input.brings_crd("demo.example.org", "Other")
        );
    }

    #[test]
    fn objects_of_a_namespace_that_is_not_served_are_refused() {
        let elsewhere = |text: &str| text.replacen("{name: ", "{namespace: team, name: ", 1);
        for (kyma, releases, object) in [
            (elsewhere(KYMA), String::new(), "Kyma one"),
            (KYMA.to_owned(), elsewhere(&RELEASES.replace(", namespace: ''", "")), "ModuleReleaseMeta keda"),
        ] {
            let error = input(&kyma, &releases).unwrap_err().to_string();
            let expected = format!("{object} is in namespace team; repeat with --namespace=team");
            assert!(error.ends_with(&expected), "{error}");
        }
    }

    #[test]
    fn kyma_and_catalogue_are_not_both_standard_input() {
        let input = Path::new("-");
        let error = RunInput::read(input, &[input.to_owned()], "kcp-system").unwrap_err().to_string();
        assert!(error.starts_with("standard input: `-` is given 2 times"), "{error}");
    }

    #[test]
    fn documents_of_other_kinds_are_refused() {
        assert!(input(RELEASES, RELEASES).unwrap_err().to_string().contains("exactly one Kyma"));
        assert!(
            input("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "")
                .unwrap_err()
                .to_string()
                .contains("Kyma")
        );
        assert!(input(KYMA, KYMA).unwrap_err().to_string().contains("not part of a catalogue"));
    }
}
