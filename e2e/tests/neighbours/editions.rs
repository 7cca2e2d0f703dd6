//! Two modules that ship the same objects, each in two versions that lie between those of the other.

use anyhow::Result;
use e2e::catalogue;
use e2e::landscape::Landscape;
use serde_json::{Value, json};

/// Names of the modules.
pub(crate) const MODULES: [&str; 2] = ["alder", "birch"];
/// Group of the CRD that both ship.
pub(crate) const GROUP: &str = "trees.example.org";
/// The CRD that both ship.
pub(crate) const CRD: &str = "leaves.trees.example.org";
/// Namespace that both modules ship and that holds only objects of modules.
pub(crate) const SHARED_NAMESPACE: &str = "grove";
/// Namespace that both modules ship and in which users keep objects.
pub(crate) const USER_NAMESPACE: &str = "garden";
/// ClusterRole that only one of the modules can own.
pub(crate) const CLUSTER_ROLE: &str = "grove-keeper";
/// Fields of the CRD's kind; each edition has one more than the one below.
const LEAF_FIELDS: [&str; 4] = ["colour", "shape", "scent", "veins"];

/// One version of one module.
#[derive(Debug)]
pub(crate) struct Edition {
    pub(crate) module: &'static str,
    pub(crate) version: &'static str,
    /// API versions of its CRD; objects are stored in the first one.
    api_versions: &'static [&'static str],
    /// Number of `LEAF_FIELDS` in its schema.
    fields: usize,
    /// Whether it ships the ClusterRole that only one module can own, and a ConfigMap that an upgrade prunes.
    pub(crate) has_role: bool,
}

/// All editions, from the lowest version to the highest.
pub(crate) const EDITIONS: [Edition; 4] = [
    Edition { module: "alder", version: "1.0.0", api_versions: &["v1alpha1"], fields: 1, has_role: true },
    Edition {
        module: "birch",
        version: "2.0.0",
        api_versions: &["v1beta1", "v1alpha1"],
        fields: 2,
        has_role: true,
    },
    Edition {
        module: "alder",
        version: "3.0.0",
        api_versions: &["v1", "v1beta1", "v1alpha1"],
        fields: 3,
        has_role: false,
    },
    Edition {
        module: "birch",
        version: "4.0.0",
        api_versions: &["v1", "v1beta1", "v1alpha1"],
        fields: 4,
        has_role: false,
    },
];

impl Edition {
    /// Returns a Leaf with all fields of this edition, as its users write it.
    pub(crate) fn leaf(&self) -> Value {
        let spec: serde_json::Map<String, Value> = LEAF_FIELDS[..self.fields]
            .iter()
            .map(|field| ((*field).to_owned(), json!(self.version)))
            .collect();
        json!({
            "apiVersion": format!("{GROUP}/{}", self.api_version()),
            "kind": "Leaf",
            "metadata": {"name": format!("of-{}-{}", self.module, self.version), "namespace": USER_NAMESPACE},
            "spec": spec,
        })
    }

    /// Returns the API version in which this edition stores leaves.
    pub(crate) fn api_version(&self) -> &'static str {
        self.api_versions[0]
    }

    fn manifest(&self) -> String {
        let mut objects = vec![namespace(SHARED_NAMESPACE), namespace(USER_NAMESPACE), self.crd()];
        objects.push(config_map(self.module, self.version));
        if self.has_role {
            objects.push(config_map(&format!("{}-old", self.module), self.version));
            objects.push(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": CLUSTER_ROLE},
                "rules": [{"apiGroups": [GROUP], "resources": ["leaves"], "verbs": ["get"]}],
            }));
        }
        let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
        documents.join("\n---\n")
    }

    fn crd(&self) -> Value {
        let fields: serde_json::Map<String, Value> = LEAF_FIELDS[..self.fields]
            .iter()
            .map(|field| ((*field).to_owned(), json!({"type": "string"})))
            .collect();
        let schema =
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
        let versions = self.api_versions.iter().map(|version| {
            json!({
                "name": version, "served": true, "storage": *version == self.api_version(),
                "schema": {"openAPIV3Schema": schema},
            })
        });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": CRD},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {"kind": "Leaf", "listKind": "LeafList", "plural": "leaves", "singular": "leaf"},
                "versions": versions.collect::<Vec<_>>(),
            },
        })
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn config_map(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": SHARED_NAMESPACE, "labels": {"app": name}},
        "data": {"version": version},
    })
}

/// Pushes every edition and offers its version, which a Kyma can then pin.
pub(crate) async fn publish(landscape: &Landscape) -> Result<()> {
    for edition in &EDITIONS {
        let config = json!({"version": edition.version, "manifest": "manifest.yaml"});
        let files = [("manifest.yaml", edition.manifest())];
        catalogue::push_files(landscape, edition.module, &config, &files).await?;
    }
    for module in MODULES {
        let versions = EDITIONS.iter().filter(|edition| edition.module == module);
        let versions: Vec<Value> = versions.map(|edition| json!({"version": edition.version})).collect();
        catalogue::offer(landscape.hub().client()?, module, &json!({"versions": versions})).await?;
    }
    Ok(())
}
