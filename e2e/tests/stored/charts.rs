//! Charts of the recorded components, and the repository that serves them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use e2e::net::FileServer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use testbed::Program;
use tokio::process::Command;

/// Host and port of the repository. Recorded specs and digests contain it, so it is the same in each run. The port is
/// below those that the kernel assigns.
pub(crate) const HOST: &str = "127.0.0.1:18473";
/// Path of the repository.
const PATH: &str = "charts";
/// A chart version that is published after the recording: a recorded range must not move to it by itself.
const LATER: (&str, &str) = ("ranged", "1.1.0");

/// A packed chart. The recording contains it, since another packer would create another digest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Archive {
    name: String,
    version: String,
    /// The archive in base64.
    content: String,
}

struct Chart {
    name: &'static str,
    version: &'static str,
    files: Vec<(&'static str, String)>,
}

/// Returns the address of the repository.
pub(crate) fn url() -> String {
    format!("http://{HOST}/{PATH}")
}

/// Starts the server of the repository.
pub(crate) async fn serve() -> Result<FileServer> {
    let address: SocketAddr = HOST.parse()?;
    FileServer::start_at(address).await.with_context(|| format!("no server at {HOST}"))
}

/// Publishes the archives; the version that came after the recording only if `with_later`.
pub(crate) fn publish(file_server: &FileServer, archives: &[Archive], with_later: bool) -> Result<()> {
    let mut entries = Map::new();
    for archive in archives {
        let (name, version) = (archive.name.as_str(), archive.version.as_str());
        if (name, version) == LATER && !with_later {
            continue;
        }
        let file = file_name(name, version);
        let content = STANDARD.decode(&archive.content)?;
        let digest = hex::encode(Sha256::digest(&content));
        let entry = json!({"name": name, "version": version, "urls": [file.as_str()], "digest": digest});
        let of_chart = entries.entry(name).or_insert_with(|| json!([]));
        of_chart.as_array_mut().context("a list")?.push(entry);
        file_server.put_bytes(&format!("{PATH}/{file}"), content);
    }
    let index = json!({"apiVersion": "v1", "entries": Value::Object(entries)});
    file_server.put(&format!("{PATH}/index.yaml"), index.to_string());
    Ok(())
}

/// Packs all charts in this directory with `helm package`.
pub(crate) async fn package_all(directory: &Path) -> Result<Vec<Archive>> {
    let mut archives = Vec::new();
    for chart in all() {
        let source = directory.join(chart.version).join(chart.name);
        std::fs::create_dir_all(source.join("templates"))?;
        let (name, version) = (chart.name, chart.version);
        let metadata = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
        std::fs::write(source.join("Chart.yaml"), metadata)?;
        std::fs::write(source.join("values.yaml"), "level: low\n")?;
        for (file, text) in &chart.files {
            std::fs::write(source.join("templates").join(file), text)?;
        }
        let mut helm = Command::new(Program::Helm.path()?);
        let output = helm.arg("package").arg(&source).arg("--destination").arg(directory).output().await?;
        ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let content = STANDARD.encode(std::fs::read(archive_path(directory, name, version))?);
        archives.push(Archive { name: name.to_owned(), version: version.to_owned(), content });
    }
    Ok(archives)
}

/// Returns the path of a chart that [`package_all`] packed in this directory.
pub(crate) fn archive_path(directory: &Path, name: &str, version: &str) -> PathBuf {
    directory.join(file_name(name, version))
}

fn file_name(name: &str, version: &str) -> String {
    format!("{name}-{version}.tgz")
}

fn all() -> Vec<Chart> {
    let main = || ("main.yaml", config("main"));
    let web = |outcome: &str| vec![main(), ("web.yaml", deployment("web", outcome))];
    let chart = |name, version, files| Chart { name, version, files };
    vec![
        chart("web", "1.0.0", web("ready")),
        chart("web", "1.1.0", web("unready")),
        chart("web", "1.2.0", web("ready")),
        chart("gradual", "1.0.0", vec![main(), ("leaving.yaml", config("leaving"))]),
        chart(
            "gradual",
            "1.1.0",
            vec![main(), ("added.yaml", config("added")), ("route.yaml", ROUTE.to_owned())],
        ),
        chart("random", "1.0.0", vec![("password.yaml", PASSWORD.to_owned())]),
        chart(
            "deletion",
            "1.0.0",
            vec![
                main(),
                ("before.yaml", hook("before", "pre-delete", "ready")),
                ("after.yaml", hook("after", "post-delete", "ready")),
            ],
        ),
        chart("migration", "1.0.0", vec![main(), ("job.yaml", hook("migrate", "pre-upgrade", "unready"))]),
        chart("tested", "1.0.0", vec![main(), ("job.yaml", hook("probe", "test", "unready"))]),
        chart("plain", "1.0.0", vec![main()]),
        chart("ranged", "1.0.0", vec![main()]),
        chart("ranged", "1.1.0", vec![main()]),
    ]
}

/// A password, and a reader that must change with it.
const PASSWORD: &str = r#"{{- $password := randAlphaNum 24 }}
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: "{{ $password }}"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: main}
data: {checksum: "{{ sha256sum $password }}", level: "{{ .Values.level }}"}
"#;

/// An object of a kind that the target does not serve before [`ROUTE_CRD`] is applied.
const ROUTE: &str =
    "apiVersion: routing.example.org/v1\nkind: Route\nmetadata: {name: main}\nspec: {to: x}\n";

/// The CRD of [`ROUTE`].
pub(crate) const ROUTE_CRD: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: routes.routing.example.org}
spec:
  group: routing.example.org
  names: {kind: Route, plural: routes}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

fn config(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{level: \"{{{{ .Values.level }}}}\"}}\n"
    )
}

/// Returns a Deployment whose Pods never become ready if `outcome` is `unready`.
fn deployment(name: &str, outcome: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  selector: {{matchLabels: {{app: \
         {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}, testbed/outcome: {outcome}}}}}\n    spec: \
         {{containers: [{{name: main, image: example.org/main:1}}]}}\n"
    )
}

/// Returns a Job that runs as a hook, until a test ends it if `outcome` is `unready`.
fn hook(name: &str, event: &str, outcome: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\n  annotations: {{helm.sh/hook: {event}}}\nspec:\n  \
         backoffLimit: 0\n  template:\n    metadata: {{labels: {{testbed/outcome: {outcome}}}}}\n    spec:\n      \
         restartPolicy: Never\n      containers: [{{name: main, image: example.org/main:1}}]\n"
    )
}
