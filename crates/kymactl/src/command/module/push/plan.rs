//! Resolves file and flags to a plan before anything is pushed.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use kyma_api::{ChartSource, FreeForm, Manager, TemplateComponent, labels, patterns};
use kyma_artifacts::{ComponentVersion, Image};
use kyma_object_set::{Limits, Object, ObjectSet};
use serde_json::{Value, json};

use super::flags::Push;
use crate::command::module::config::{Chart, Crd, ModuleConfig};
use crate::command::module::sources::{self, Location};
use crate::error::Error;

/// Default prefix of component names.
const COMPONENT_PREFIX: &str = "kyma-project.io/module/";

/// A resolved push.
pub(super) struct Plan {
    /// Name of the OCM component.
    pub(super) name: String,
    /// Name of the module.
    pub(super) module: String,
    pub(super) version: String,
    pub(super) content: Content,
    pub(super) default_cr: Option<Location>,
    /// The config with flags applied.
    pub(super) config: ModuleConfig,
    directory: PathBuf,
}

/// Content that installs the module.
pub(super) enum Content {
    /// Plain manifests.
    Manifest(Location),
    /// A chart to push.
    Chart(PathBuf),
    /// A published chart.
    PublishedChart(ChartSource),
    /// Only the module's own reconciler.
    OwnReconciler,
}

impl Plan {
    /// Applies the flags to the file and validates the result.
    pub(super) fn resolve(
        (mut config, directory): (ModuleConfig, PathBuf),
        push: &Push,
    ) -> Result<Self, Error> {
        let name = component_name(push.name.as_ref().or(config.name.as_ref()))?;
        let module = module_name(&name)?.to_owned();
        let version = version(push.version.as_ref().or(config.version.as_ref()))?.to_owned();
        if let Some(manager) = &push.manager {
            config.manager = Some(parse_manager(manager)?);
        }
        if let Some(namespace) = push.hub.given_namespace() {
            config.namespace = Some(namespace.to_owned());
        }
        let place = |flag: Option<&String>, field: Option<&String>| match (flag, field) {
            (Some(flag), _) => Some(Location::parse(flag, Path::new(""))),
            (None, Some(field)) => Some(Location::parse(field, &directory)),
            (None, None) => None,
        };
        let default_cr = place(push.default_cr.as_ref(), config.default_cr.as_ref());
        let manifest = place(push.manifest.as_ref(), config.manifest.as_ref());
        let content = content(push, &config, manifest, &directory)?;
        Ok(Self { name, module, version, content, default_cr, config, directory })
    }

    /// Returns the module's own reconciler for the ModuleTemplate; reads its CRD from the file.
    pub(super) fn component(&self) -> Result<Option<TemplateComponent>, Error> {
        let Some(component) = &self.config.component else {
            return Ok(None);
        };
        let crd = match &component.crd {
            None => None,
            Some(Crd::Inline(crd)) => Some(crd.clone()),
            Some(Crd::File(file)) => {
                let path = self.directory.join(file);
                Some(single("component.crd", &sources::read(&path)?)?)
            }
        };
        Ok(Some(TemplateComponent {
            api_version: component.api_version.clone(),
            kind: component.kind.clone(),
            spec: component.spec.clone(),
            crd,
        }))
    }

    /// Returns the component version with modulectl's labels.
    pub(super) fn component_version(
        &self,
        manifest: Bytes,
        default_cr: Option<Bytes>,
        images: Vec<Image>,
    ) -> ComponentVersion {
        let config = &self.config;
        let flag = |value: Option<bool>| Value::from(value.unwrap_or(false).to_string());
        let mut labels = std::collections::BTreeMap::from([
            (labels::BETA.to_owned(), flag(config.beta)),
            (labels::INTERNAL.to_owned(), flag(config.internal)),
            ("operator.kyma-project.io/requiresDowntime".to_owned(), flag(config.requires_downtime)),
        ]);
        if let Some(team) = &config.team {
            let responsible = json!([{"teamname": team, "type": "githubTeam"}]);
            labels.insert("cloud.gardener.cnudie/responsibles".to_owned(), responsible);
        }
        ComponentVersion {
            name: self.name.clone(),
            version: self.version.clone(),
            manifest,
            default_cr,
            images,
            labels,
            ..ComponentVersion::default()
        }
    }
}

fn content(
    push: &Push,
    config: &ModuleConfig,
    manifest: Option<Location>,
    directory: &Path,
) -> Result<Content, Error> {
    if let Some(chart) = &push.chart {
        return Ok(Content::Chart(PathBuf::from(chart)));
    }
    let from_file = if push.manifest.is_some() { None } else { config.chart.as_ref() };
    match (from_file, manifest) {
        (Some(_), Some(_)) => Err(Error::input("module-config.yaml", "names both a manifest and a chart")),
        (Some(Chart::File(path)), None) => Ok(Content::Chart(directory.join(path))),
        (Some(Chart::Published(chart)), None) => Ok(Content::PublishedChart(chart.clone())),
        (None, Some(manifest)) => Ok(Content::Manifest(manifest)),
        (None, None) if config.component.is_some() => Ok(Content::OwnReconciler),
        (None, None) => Err(Error::input(
            "--manifest",
            "a module needs a manifest, a chart or a component; add --manifest or --chart, or one of the three to the \
             file of --config",
        )),
    }
}

fn component_name(given: Option<&String>) -> Result<String, Error> {
    let missing =
        || Error::input("--name", "the module has no name; add --name, or name to the file of --config");
    let given = given.ok_or_else(missing)?;
    Ok(if given.contains('/') { given.clone() } else { format!("{COMPONENT_PREFIX}{given}") })
}

/// Returns the last part of the component's name, as modulectl does.
fn module_name(component: &str) -> Result<&str, Error> {
    let module = component.rsplit('/').next().unwrap_or(component);
    if patterns::is_module_name(module) {
        return Ok(module);
    }
    Err(Error::input(
        "--name",
        format!("{module:?} is not a module name: words of three or more small letters, joined by -"),
    ))
}

fn version(given: Option<&String>) -> Result<&str, Error> {
    let missing = || {
        Error::input(
            "--version",
            "the module has no version; add --version, or version to the file of --config",
        )
    };
    let given = given.ok_or_else(missing)?;
    if patterns::is_version(given) {
        return Ok(given);
    }
    Err(Error::input(
        "--version",
        format!(
            "{given:?} is not a version for a module: semantic, as 1.2.3 or 1.2.3-rc01, at most 32 characters, with a \
             pre-release of one part"
        ),
    ))
}

/// Returns a remark about a pre-release with an unpadded number: pre-releases of one part are compared as text.
pub(super) fn numbering_remark(version: &str) -> Option<String> {
    let (release, pre) = version.split_once('-')?;
    let name = pre.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = &pre[name.len()..];
    if name.is_empty() || number.is_empty() || number.starts_with('0') {
        return None;
    }
    Some(format!(
        "{version}: pre-releases are compared as text, so {name}10 is lower than {name}9 and would not be installed \
         after it; number them with leading zeros, as {release}-{name}{number:0>2}"
    ))
}

fn parse_manager(text: &str) -> Result<Manager, Error> {
    let parts: Vec<&str> = text.split('/').collect();
    let (group, version, rest) = match parts[..] {
        [group, version, _, _] | [group, version, _, _, _] => (group, version, &parts[2..]),
        _ => ("apps", "v1", &parts[..]),
    };
    let (kind, namespace, name) = match *rest {
        [kind, name] => (kind, None, name),
        [kind, namespace, name] => (kind, Some(namespace.to_owned()), name),
        _ => {
            return Err(Error::input("--manager", "expected [GROUP/VERSION/]KIND/[NAMESPACE/]NAME"));
        }
    };
    Ok(Manager {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        name: name.into(),
        namespace,
    })
}

/// Parses the objects of a manifest as installation does: what is pushed can be installed.
pub(super) fn objects(yaml: &[u8]) -> Result<Vec<Value>, Error> {
    let invalid = |problem: String| Error::input("manifest", problem);
    let parsed = ObjectSet::parse_bytes(yaml, &Limits::default());
    let set = parsed.map_err(|error| invalid(error.to_string()))?;
    if set.is_empty() {
        return Err(invalid("it contains no object".to_owned()));
    }
    Ok(set.into_objects().into_iter().map(Object::into_value).collect())
}

/// Parses the default CR: one object with a name.
pub(super) fn default_cr(yaml: &[u8]) -> Result<FreeForm, Error> {
    single("default CR", yaml)
}

fn single(what: &str, yaml: &[u8]) -> Result<FreeForm, Error> {
    let mut objects = objects(yaml).map_err(|error| Error::input(what, error.to_string()))?;
    match (objects.pop(), objects.is_empty()) {
        (Some(Value::Object(object)), true) if object["metadata"]["name"].is_string() => Ok(object),
        (_, false) => Err(Error::input(what, "more than one object")),
        _ => Err(Error::input(what, "not an object with a name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_to_modules_as_modulectl_maps_them() {
        let name = |text: &str| component_name(Some(&text.to_owned()));
        assert_eq!(name("keda").unwrap(), "kyma-project.io/module/keda");
        assert_eq!(module_name(&name("example.io/x/our-module").unwrap()).unwrap(), "our-module");
        assert!(component_name(None).is_err());
        assert!(module_name("kyma-project.io/module/my-keda").is_err());
    }

    #[test]
    fn a_version_has_to_be_there_and_semantic() {
        for wrong in ["main", "1.0", "v1.0.0", "1.0.0+x", ""] {
            assert!(version(Some(&wrong.to_owned())).is_err(), "{wrong}");
        }
        assert!(version(None).is_err());
        assert_eq!(version(Some(&"1.2.3-rc1".to_owned())).unwrap(), "1.2.3-rc1");
    }

    #[test]
    fn pre_releases_without_leading_zeros_are_remarked() {
        for (version, proposed) in [
            ("1.2.0-rc1", Some("as 1.2.0-rc01")),
            ("1.2.0-rc10", Some("as 1.2.0-rc10")),
            ("1.2.0-beta-3", Some("beta-10 is lower than beta-9")),
            ("1.2.0-rc01", None),
            ("1.2.0-rc", None),
            ("1.2.0", None),
        ] {
            let remark = numbering_remark(version);
            assert_eq!(remark.is_some(), proposed.is_some(), "{version}");
            assert!(proposed.is_none_or(|words| remark.unwrap().contains(words)), "{version}");
        }
        assert!(semver::Version::parse("1.2.0-rc10").unwrap() < semver::Version::parse("1.2.0-rc9").unwrap());
        assert!(
            semver::Version::parse("1.2.0-rc10").unwrap() > semver::Version::parse("1.2.0-rc09").unwrap()
        );
    }

    #[test]
    fn a_manifest_that_installation_refuses_is_not_pushed() {
        let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        objects(object.as_bytes()).unwrap();
        for refused in [
            format!("%YAML 1.1\n---\n{object}"),
            format!("%TAG ! tag:example.org,2000:\n---\n{object}"),
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n".to_owned(),
        ] {
            assert!(objects(refused.as_bytes()).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_manifest_that_installation_takes_is_pushed() {
        let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        for (rest, text) in
            [("data:\n  text: \"one\ntwo\"\n", "one two"), ("data: {text: one}\ndata: {text: two}\n", "two")]
        {
            let found = objects(format!("{object}{rest}").as_bytes()).unwrap();
            assert_eq!(found[0]["data"]["text"], text);
        }
    }

    #[test]
    fn a_manager_is_read_with_and_without_group_and_namespace() {
        let manager = parse_manager("Deployment/kyma-system/keda").unwrap();
        assert_eq!((manager.group.as_str(), manager.namespace.as_deref()), ("apps", Some("kyma-system")));
        let manager = parse_manager("batch/v1/Job/ns/x").unwrap();
        assert_eq!(
            (manager.group.as_str(), manager.kind.as_str(), manager.name.as_str()),
            ("batch", "Job", "x")
        );
        assert_eq!(parse_manager("apps/v1/Deployment/x").unwrap().namespace, None);
        assert!(parse_manager("keda").is_err());
    }

    #[test]
    fn a_manifest_is_a_stream_of_objects() {
        let object = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n";
        assert_eq!(objects(format!("---\n---\n{object}---\n# nothing\n").as_bytes()).unwrap().len(), 1);
        assert!(objects(b"").is_err());
        assert!(objects(b"kind: A\n").unwrap_err().to_string().contains("document 1"));
        assert!(objects(b"a: [").is_err());
    }
}
