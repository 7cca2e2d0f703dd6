//! `kymactl module push` with a real registry and real modules.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use kyma_artifacts::{Artifacts, ChartSource, Config, Credentials, ModuleContent};
use serde_json::Value;
use testbed::SharedTestEnv;

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

/// Directory of the module, name, version.
const MODULES: [(&str, &str, &str); 14] = [
    ("keda-manager", "keda", "1.12.1"),
    ("keda-manager/previous", "keda", "1.11.0"),
    ("template-operator", "template-operator", "1.0.6"),
    ("template-operator/previous", "template-operator", "1.0.4"),
    ("telemetry-manager", "telemetry", "1.69.0"),
    ("telemetry-manager/previous", "telemetry", "1.68.0"),
    ("serverless", "serverless", "1.13.0"),
    ("serverless/previous", "serverless", "1.12.0"),
    ("istio", "istio", "1.30.0"),
    ("btp-manager", "btp-operator", "1.3.20"),
    ("nats-manager", "nats", "1.6.4"),
    ("nats-manager/previous", "nats", "1.6.0"),
    ("docker-registry", "docker-registry", "0.15.0"),
    ("registry-proxy", "registry-proxy", "0.15.0"),
];

#[tokio::test]
async fn every_real_module_is_published_and_read_back() {
    let Some(inputs) = testbed::inputs("pushes of real modules").unwrap() else { return };
    let registry = TEST_ENV.registry().await.unwrap().address();
    for (directory, name, version) in MODULES {
        let directory = inputs.join("modules").join(directory);
        let manifest = directory.join("raw-manifest.yaml");
        let default_cr = directory.join("default-cr.yaml");
        let config = directory.join("module-config.yaml");
        let mut flags = vec!["--version", version, "--registry", registry, "--insecure"];
        flags.extend(["--manifest", text(&manifest), "--default-cr", text(&default_cr)]);
        if config.is_file() {
            flags.extend(["--config", text(&config)]);
        } else {
            flags.extend(["--name", name]);
        }
        let template = yaml(&push(&flags));
        assert_eq!(template["metadata"]["name"], format!("{name}-{version}"));
        let wanted: Value = serde_saphyr::from_slice(&fs::read(&default_cr).unwrap()).unwrap();
        assert_eq!(template["spec"]["data"], wanted, "{name}");
        let found = read(registry, &format!("kyma-project.io/module/{name}"), version).await;
        assert!(found.manifest == fs::read(&manifest).unwrap(), "{name} {version}");
        assert!(!found.images.is_empty(), "{name} {version}");
    }
}

#[tokio::test]
async fn module_templates_equal_modulectls() {
    let Some(inputs) = testbed::inputs("ModuleTemplates beside modulectl's").unwrap() else { return };
    let registry = TEST_ENV.registry().await.unwrap().address();
    let cases = [
        ("keda-1.12.1", "keda-manager"),
        ("keda-1.11.0", "keda-manager/previous"),
        ("template-operator-1.0.6", "template-operator"),
        ("template-operator-1.0.4", "template-operator/previous"),
    ];
    for (made, directory) in cases {
        let config = inputs.join(format!("ocm/{made}.module-config.yaml"));
        let directory = inputs.join("modules").join(directory);
        let (manifest, default_cr) = (directory.join("raw-manifest.yaml"), directory.join("default-cr.yaml"));
        let mut flags = vec!["--config", text(&config), "--registry", registry, "--insecure"];
        flags.extend(["--manifest", text(&manifest), "--default-cr", text(&default_cr)]);
        let ours = yaml(&push(&flags));
        let theirs = fs::read(inputs.join(format!("ocm/{made}.moduletemplate.yaml"))).unwrap();
        let mut theirs: Value = serde_saphyr::from_slice(&theirs).unwrap();
        // modulectl writes an empty namespace, which has no effect.
        assert_eq!(theirs["metadata"].as_object_mut().unwrap().remove("namespace"), Some(Value::from("")));
        assert_eq!(ours, theirs);
    }
}

#[tokio::test]
async fn pushing_twice_gives_the_same_digest() {
    let registry = TEST_ENV.registry().await.unwrap().address();
    let module = own_module("lantern/1.0.0");
    let config = module.join("module-config.yaml");
    let flags = ["--config", text(&config), "--registry", registry, "--insecure", "--output", "json"];
    let (first, again) = (push(&flags), push(&flags));
    let published: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(first.stdout, again.stdout);
    let found = read(registry, "kyma-project.io/module/lantern", "1.0.0").await;
    assert_eq!(published["published"][0]["digest"], found.digest.to_string());
    assert_eq!(found.default_cr.unwrap(), fs::read(module.join("default-cr.yaml")).unwrap());
}

#[tokio::test]
async fn a_chart_is_published_and_named_by_digest() {
    let registry = TEST_ENV.registry().await.unwrap().address();
    let config = own_module("harbour").join("module-config.yaml");
    let template = yaml(&push(&["--config", text(&config), "--registry", registry, "--insecure"]));
    let chart = &template["spec"]["chart"];
    let url = chart["url"].as_str().unwrap().strip_prefix("oci://").unwrap();
    let reference = format!("{url}@{}", chart["digest"].as_str().unwrap()).parse().unwrap();
    let (artifacts, _cache) = client(registry);
    let found = artifacts.chart(&ChartSource::Oci(reference), &Credentials::anonymous()).await.unwrap();
    assert_eq!(chart["version"], found.metadata.version);
    assert_eq!(template["spec"]["version"], "2.0.0");
}

#[test]
fn missing_or_wrong_input_is_reported_before_a_push() {
    let Some(inputs) = testbed::inputs("real module-config files with mistakes").unwrap() else { return };
    let modules = inputs.join("modules");
    let (empty, main) = (
        modules.join("docker-registry/module-config.yaml"),
        modules.join("registry-proxy/module-config.yaml"),
    );
    // No server listens there: a connection would be another error.
    let registry = ["--registry", "127.0.0.1:1", "--insecure"];
    let cases: [(&[&str], &str); 5] = [
        (&["--config", text(&empty)], "the module has no version"),
        (&["--config", text(&main)], "\"main\" is not a version"),
        (&["--name", "abc", "--version", "1.0"], "\"1.0\" is not a version"),
        (&["--name", "abc", "--version", "1.0.0"], "needs a manifest"),
        (&["--version", "1.0.0"], "has no name"),
    ];
    for (flags, message) in cases {
        let output = kymactl(&[flags, &registry].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(message), "{error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn an_incomplete_module_names_the_flag_and_the_file() {
    let registry = ["--registry", "127.0.0.1:1", "--insecure"];
    let cases: [(&[&str], &str); 3] = [
        (&["--version", "1.0.0"], "add --name, or name to the file of --config"),
        (&["--name", "abc"], "add --version, or version to the file of --config"),
        (
            &["--name", "abc", "--version", "1.0.0"],
            "add --manifest or --chart, or one of the three to the file",
        ),
    ];
    for (flags, message) in cases {
        let error = String::from_utf8(kymactl(&[flags, &registry].concat()).stderr).unwrap();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_registry_that_does_not_answer_is_named() {
    let config = own_module("lantern/1.0.0").join("module-config.yaml");
    let output = kymactl(&["--config", text(&config), "--registry", "127.0.0.1:1", "--insecure"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("127.0.0.1:1/component-descriptors"));
}

fn kymactl(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kymactl")).args(["module", "push"]).args(flags).output().unwrap()
}

fn push(flags: &[&str]) -> Output {
    let output = kymactl(flags);
    assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn yaml(output: &Output) -> Value {
    serde_saphyr::from_slice(&output.stdout).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

async fn read(registry: &str, component: &str, version: &str) -> ModuleContent {
    let (artifacts, _cache) = client(registry);
    let base = registry.parse().unwrap();
    artifacts.component(&base, component, version, &Credentials::anonymous()).await.unwrap()
}

fn client(registry: &str) -> (Artifacts, tempfile::TempDir) {
    let cache = tempfile::tempdir().unwrap();
    let mut config = Config::new(cache.path());
    config.insecure_hosts = vec![registry.to_owned()];
    (Artifacts::open(&config).unwrap(), cache)
}

/// Returns the path of a demo module.
fn own_module(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/modules").join(path)
}
