//! What `run --once` is asked for: one Kyma and the catalogue that it chooses from.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams, ValidationDirective},
};
use kyma_api::{Kyma, ModuleReleaseMeta, ModuleTemplate};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{error::Error, hub::MANAGER, module::read};

/// A wish as read from files.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) kyma: Kyma,
    templates: Vec<ModuleTemplate>,
    releases: Vec<ModuleReleaseMeta>,
}

impl Wish {
    /// Reads the files. Objects without a namespace get `namespace`.
    pub(super) fn read(kyma: &Path, catalogue: &[PathBuf], namespace: &str) -> Result<Self, Error> {
        let file = kyma;
        let mut wished = objects(file)?.into_iter();
        let (Some(kyma), None) = (wished.next(), wished.next()) else {
            return Err(Error::input(file.display().to_string(), "expected exactly one Kyma"));
        };
        let mut wish =
            Self { kyma: typed(file, "Kyma", kyma, namespace)?, templates: Vec::new(), releases: Vec::new() };
        for file in files(catalogue)? {
            for object in objects(&file)? {
                match object["kind"].as_str() {
                    Some("ModuleTemplate") => {
                        wish.templates.push(typed(&file, "ModuleTemplate", object, namespace)?);
                    }
                    Some("ModuleReleaseMeta") => {
                        wish.releases.push(typed(&file, "ModuleReleaseMeta", object, namespace)?);
                    }
                    other => {
                        let problem = format!(
                            "{} is no part of a catalogue",
                            other.unwrap_or("an object without kind")
                        );
                        return Err(Error::input(file.display().to_string(), problem));
                    }
                }
            }
        }
        Ok(wish)
    }

    /// Brings everything to the cluster: the catalogue first, so that the Kyma finds it.
    pub(super) async fn apply(&self, client: &Client) -> Result<(), Error> {
        for template in &self.templates {
            apply(client, template).await?;
        }
        for release in &self.releases {
            apply(client, release).await?;
        }
        apply(client, &self.kyma).await
    }

    /// The version that each module shall come to have, where the files say so.
    pub(super) fn versions(&self) -> BTreeMap<String, String> {
        let release = |module: &str| self.releases.iter().find(|release| release.spec.module_name == module);
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
    let mut parameters = PatchParams::apply(MANAGER).force();
    parameters.field_validation = Some(ValidationDirective::Strict);
    api.patch(&object.name_any(), &parameters, &Patch::Apply(object)).await?;
    Ok(())
}

/// Files as they are, directories as the YAML files in them, in the order of their names.
fn files(places: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for place in places {
        if !place.is_dir() {
            files.push(place.clone());
            continue;
        }
        let unreadable = |source| Error::Read { path: place.clone(), source };
        let entries = std::fs::read_dir(place).map_err(unreadable)?;
        let mut found: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(unreadable)?;
        found.retain(|path| {
            path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
        });
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

fn objects(file: &Path) -> Result<Vec<Value>, Error> {
    let documents: Vec<Value> = serde_saphyr::from_slice_multiple(&read(file)?)
        .map_err(|error| Error::input(file.display().to_string(), format!("not YAML: {error}")))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn typed<K>(file: &Path, kind: &str, mut object: Value, namespace: &str) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let wrong = |problem: String| Error::input(file.display().to_string(), problem);
    let version = K::api_version(&());
    if object["kind"] != kind || object["apiVersion"] != version.as_ref() {
        return Err(wrong(format!("expected a {kind} of {version}")));
    }
    if let Some(metadata) = object["metadata"].as_object_mut()
        && metadata.get("namespace").and_then(Value::as_str).unwrap_or_default().is_empty()
    {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    let object: K =
        serde_json::from_value(object).map_err(|error| wrong(format!("not a {kind}: {error}")))?;
    if object.meta().name.as_deref().unwrap_or_default().is_empty() {
        return Err(wrong(format!("the {kind} has no name")));
    }
    Ok(object)
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
metadata: {name: serverless, namespace: elsewhere}
spec: {moduleName: serverless, channels: [{channel: fast, version: 3.0.0}]}
";

    fn wish(kyma: &str, releases: &str) -> Result<Wish, Error> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kyma.yaml");
        let catalogue = directory.path().join("catalogue");
        std::fs::create_dir(&catalogue).unwrap();
        std::fs::write(&file, kyma).unwrap();
        std::fs::write(catalogue.join("a.yaml"), releases).unwrap();
        std::fs::write(catalogue.join("notes.txt"), "not YAML: [").unwrap();
        Wish::read(&file, &[catalogue], "kcp-system")
    }

    #[test]
    fn versions_come_from_pins_and_channels() {
        let wish = wish(KYMA, RELEASES).unwrap();
        let expected = [("istio", "1.30.0"), ("keda", "1.0.0"), ("serverless", "3.0.0")];
        assert_eq!(
            wish.versions(),
            expected.map(|(name, version)| (name.to_owned(), version.to_owned())).into()
        );
        assert_eq!(wish.kyma.namespace().as_deref(), Some("kcp-system"));
        let namespaces: Vec<_> = wish.releases.iter().filter_map(kube::ResourceExt::namespace).collect();
        assert_eq!(namespaces, ["kcp-system", "elsewhere"]);
    }

    #[test]
    fn what_is_no_kyma_and_no_catalogue_is_refused() {
        assert!(wish(RELEASES, RELEASES).unwrap_err().to_string().contains("exactly one Kyma"));
        assert!(
            wish("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "")
                .unwrap_err()
                .to_string()
                .contains("Kyma")
        );
        assert!(wish(KYMA, KYMA).unwrap_err().to_string().contains("no part of a catalogue"));
    }
}
