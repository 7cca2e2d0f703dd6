//! Component versions of modulectl and the OCM tools, compared with kymactl's.

use std::{collections::BTreeSet, fs, path::Path};

use axum::body::Bytes;
use kyma_artifacts::{ComponentVersion, Credentials, Digest, ModuleContent, OciReference};
use reqwest::{Client, header::CONTENT_TYPE};
use serde_json::Value;

use crate::Setup;

/// Name, version, and directory of the module from which it was made.
const LAYOUTS: [(&str, &str, &str); 4] = [
    ("keda", "1.12.1", "keda-manager"),
    ("keda", "1.11.0", "keda-manager/previous"),
    ("template-operator", "1.0.6", "template-operator"),
    ("template-operator", "1.0.4", "template-operator/previous"),
];

#[tokio::test]
async fn component_versions_of_the_real_tools_are_read_byte_for_byte() {
    let Some(inputs) = testbed::inputs("component versions of modulectl").unwrap() else { return };
    let setup = Setup::new().await;
    for (name, version, source) in LAYOUTS {
        let component = format!("kyma-project.io/module/{name}");
        push_layout(&setup, &inputs.join(format!("ocm/{name}-{version}")), &component, version).await;
        let found = setup
            .artifacts
            .component(&setup.base(), &component, version, &Credentials::anonymous())
            .await
            .unwrap();
        let source = inputs.join("modules").join(source);
        assert!(found.manifest == fs::read(source.join("raw-manifest.yaml")).unwrap(), "{name} {version}");
        let default_cr = fs::read(source.join("default-cr.yaml")).unwrap();
        assert!(found.default_cr.is_some_and(|found| found == default_cr), "{name} {version}");
        assert!(found.images.iter().any(|image| image.reference.ends_with(&format!(":{version}"))));
    }
}

#[tokio::test]
async fn pushed_component_is_read_back_and_repush_changes_nothing() {
    let Some(inputs) = testbed::inputs("a push of a real module").unwrap() else { return };
    let setup = Setup::new().await;
    let component = keda(&inputs);
    let push = async || setup.artifacts.push_component(&base(&setup), &component, &ANONYMOUS, &()).await;
    let first = push().await.unwrap();
    let again = push().await.unwrap();
    assert_eq!(first, again);
    let (fresh, _cache) = setup.fresh();
    let found =
        fresh.component(&base(&setup), &component.name, &component.version, &ANONYMOUS).await.unwrap();
    let expected = ModuleContent {
        component: component.name.clone(),
        version: component.version.clone(),
        digest: first.digest,
        manifest: component.manifest.clone(),
        manifest_digest: found.manifest_digest,
        default_cr: component.default_cr.clone(),
        images: component.images.clone(),
    };
    assert_eq!(found, expected);
}

#[tokio::test]
async fn our_component_versions_have_the_shape_of_modulectls() {
    let Some(inputs) = testbed::inputs("our component versions beside modulectl's").unwrap() else { return };
    let setup = Setup::new().await;
    let component = keda(&inputs);
    let pushed =
        setup.artifacts.push_component(&setup.base(), &component, &ANONYMOUS, &()).await.unwrap().reference;
    let theirs = inputs.join("ocm/keda-1.12.1");
    push_layout(&setup, &theirs, "theirs.io/keda", "1.12.1").await;
    let theirs: OciReference =
        format!("{}/component-descriptors/theirs.io/keda:1.12.1", setup.registry.address()).parse().unwrap();
    let (ours, theirs) =
        (RawComponent::read(&setup, &pushed).await, RawComponent::read(&setup, &theirs).await);
    assert_eq!(keys(&ours.manifest), keys(&theirs.manifest));
    assert_eq!(ours.media_types(), theirs.media_types());
    assert_eq!(keys(&ours.config), keys(&theirs.config));
    let without_time: BTreeSet<String> =
        keys(&theirs.descriptor).into_iter().filter(|key| key != ".component.creationTime").collect();
    // kymactl writes every field that the other tool does, except the creation time, which would change the digest
    // each time.
    assert_eq!(keys(&ours.descriptor), without_time);
    assert_eq!(
        ours.descriptor["component"]["provider"].as_str().map(|_| "text"),
        theirs.descriptor["component"]["provider"].as_str().map(|_| "text"),
    );
}

#[tokio::test]
async fn a_component_that_is_not_there_is_not_found() {
    let setup = Setup::new().await;
    let error = setup.artifacts.component(&setup.base(), "a.io/b", "1.0.0", &ANONYMOUS).await.unwrap_err();
    assert_eq!(error.reason(), kyma_api::Reason::SourceNotFound);
}

static ANONYMOUS: std::sync::LazyLock<Credentials> = std::sync::LazyLock::new(Credentials::anonymous);

fn base(setup: &Setup) -> kyma_artifacts::RegistryBase {
    format!("{}/sub/path", setup.registry.address()).parse().unwrap()
}

fn keda(inputs: &Path) -> ComponentVersion {
    let module = inputs.join("modules/keda-manager");
    let image = kyma_artifacts::Image {
        name: "keda-manager".to_owned(),
        version: "1.12.1".to_owned(),
        reference: "registry.example/keda-manager:1.12.1".to_owned(),
    };
    let responsible = serde_json::json!([{"github_hostname": "h", "teamname": "t", "type": "githubTeam"}]);
    ComponentVersion {
        name: "kyma-project.io/module/keda".to_owned(),
        version: "1.12.1".to_owned(),
        manifest: fs::read(module.join("raw-manifest.yaml")).unwrap().into(),
        default_cr: Some(fs::read(module.join("default-cr.yaml")).unwrap().into()),
        module_template: Some(Bytes::from("kind: ModuleTemplate\n")),
        images: vec![image],
        labels: [("cloud.gardener.cnudie/responsibles".to_owned(), responsible)].into(),
        source: Some(("https://github.com/example/keda".to_owned(), "0".repeat(40))),
    }
}

/// Pushes an OCI image layout unchanged.
async fn push_layout(setup: &Setup, layout: &Path, component: &str, version: &str) {
    let repository = format!("http://{}/v2/component-descriptors/{component}", setup.registry.address());
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let manifest = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
    let http = http();
    for entry in fs::read_dir(layout.join("blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        let digest = format!("sha256:{}", path.file_name().unwrap().to_str().unwrap());
        let content = fs::read(&path).unwrap();
        assert_eq!(Digest::of(&content).to_string(), digest);
        if digest == manifest {
            continue;
        }
        let upload = format!("{repository}/blobs/uploads/?digest={digest}");
        http.post(upload).body(content).send().await.unwrap().error_for_status().unwrap();
    }
    let content =
        fs::read(layout.join("blobs/sha256").join(manifest.strip_prefix("sha256:").unwrap())).unwrap();
    http.put(format!("{repository}/manifests/{version}"))
        .header(CONTENT_TYPE, "application/vnd.oci.image.manifest.v1+json")
        .body(content)
        .send()
        .await
        .unwrap()
        .error_for_status()
        .unwrap();
}

pub(crate) fn http() -> Client {
    // reqwest needs a crypto provider even for plain HTTP; the first test installs it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

/// A component version as the registry stores it.
struct RawComponent {
    manifest: Value,
    config: Value,
    descriptor: Value,
}

impl RawComponent {
    async fn read(setup: &Setup, reference: &OciReference) -> Self {
        let base = format!("http://{}/v2/{}", setup.registry.address(), reference.repository().path());
        let get = async |path: String| {
            http().get(format!("{base}/{path}")).send().await.unwrap().bytes().await.unwrap().to_vec()
        };
        let manifest: Value =
            serde_json::from_slice(&get(format!("manifests/{}", reference.tag().unwrap())).await).unwrap();
        let blob = |descriptor: &Value| format!("blobs/{}", descriptor["digest"].as_str().unwrap());
        let config = serde_json::from_slice(&get(blob(&manifest["config"])).await).unwrap();
        let layer = get(blob(&manifest["layers"][0])).await;
        let mut archive = tar::Archive::new(layer.as_slice());
        let mut file = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(file.path().unwrap().to_str(), Some("component-descriptor.yaml"));
        let mut text = String::new();
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        Self { manifest, config, descriptor: serde_saphyr::from_str(&text).unwrap() }
    }

    fn media_types(&self) -> Vec<&str> {
        let layers = self.manifest["layers"].as_array().unwrap();
        [&self.manifest, &self.manifest["config"]]
            .into_iter()
            .chain(layers)
            .map(|part| part["mediaType"].as_str().unwrap())
            .collect()
    }
}

/// Returns the paths of all keys; elements of a list share one path.
fn keys(value: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let path = format!("{path}.{key}");
                    walk(value, &path, found);
                    found.insert(path);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, &format!("{path}[]"), found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    walk(value, "", &mut found);
    found
}
