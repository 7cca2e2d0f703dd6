//! Counts the requests of an apply with a CRD.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};
use testbed::{Answer, RequestMatcher, ScriptedServer};

use crate::apply::{AdoptionPolicy, ApplyOptions, ApplyReport, ForeignObjectPolicy, NoObservations, apply};
use crate::cluster::Cluster;
use crate::inventory::Inventory;
use crate::managed_fields::ignored_fields::IgnoredFields;
use crate::object::{Gvk, Object};
use crate::ownership::{Ownership, Protection};
use crate::set::ObjectSet;

const CRDS_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn crd() -> Value {
    let version = json!({"name": "v1", "served": true, "storage": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.x.io"},
        "spec": {
            "group": "x.io", "names": {"kind": "Thing", "plural": "things"}, "scope": "Namespaced",
            "versions": [version],
        },
    })
}

/// Returns the list of CRDs with the established CRD.
fn established() -> Value {
    let mut crd = crd();
    crd["metadata"]["uid"] = "u".into();
    crd["status"] = json!({
        "acceptedNames": {"kind": "Thing", "plural": "things"},
        "conditions": [{"type": "Established", "status": "True"}],
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinitionList",
        "metadata": {"resourceVersion": "2"}, "items": [crd],
    })
}

/// Answers as an API server that serves CRDs, and custom resources of the CRD, and whose discovery shows only CRDs.
fn script(server: &ScriptedServer) {
    let sent = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": "sent", "uid": "u", "resourceVersion": "2"},
    });
    server.always(RequestMatcher::any().method("PATCH"), Answer::json(&sent));
    server.always(RequestMatcher::path(CRDS_PATH).query("fieldSelector"), Answer::json(&established()));
    server.always(RequestMatcher::path("/apis/"), Answer::failure(404, "NotFound", "not found"));
    let kind = json!({
        "resource": "customresourcedefinitions", "scope": "Cluster", "verbs": ["get", "list", "patch", "watch"],
        "responseKind": {"group": "", "version": "", "kind": "CustomResourceDefinition"},
    });
    let version = json!({"version": "v1", "freshness": "Current", "resources": [kind]});
    let group = json!({"metadata": {"name": "apiextensions.k8s.io"}, "versions": [version]});
    server.always(RequestMatcher::path("/apis"), Answer::json(&json!({"items": [group]})));
    server.always(RequestMatcher::path("/api"), Answer::json(&json!({"items": []})));
    let version = json!({
        "major": "1", "minor": "33", "gitVersion": "v1.33.0", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    });
    server.always(RequestMatcher::path("/version"), Answer::json(&version));
}

/// Applies objects for an owner without an inventory.
async fn applied(cluster: &Cluster, objects: Vec<Object>) -> Result<ApplyReport> {
    let set = ObjectSet::new(objects);
    let ownership = Ownership { manager: "m".into(), owner: "us".into(), version: "1.0.0".into() };
    let options = ApplyOptions {
        ownership: &ownership,
        adopt: AdoptionPolicy::Unowned,
        owner_is_live: &|_| true,
        strict: false,
        repair: false,
        namespace: "here",
        parallel: 8,
        protection: &Protection::of_kubernetes(),
        take_over: &[],
        foreign: ForeignObjectPolicy::Apply,
        ignored_fields: &IgnoredFields::default(),
        made_once: &BTreeSet::new(),
        recreate: &[],
        are_new: false,
        until: None,
    };
    Ok(apply(cluster, &set, &Inventory::new(), &NoObservations, &options).await?)
}

#[tokio::test]
async fn a_crd_and_its_object_need_one_discovery() -> Result<()> {
    let server = ScriptedServer::start().await?;
    script(&server);
    let cluster = Cluster::new(server.access().client()?);
    let thing = json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let applied = applied(&cluster, vec![Object::from_value(crd())?, Object::from_value(thing)?]).await?;
    assert!(applied.is_complete(), "{:?}", applied.outcomes);
    let kinds = cluster.discovery.kinds(&cluster.client).await?;
    assert!(kinds.get(&Gvk::new("x.io", "v1", "Thing")).is_some());
    let seen = server.requests();
    let discoveries = seen.iter().filter(|request| ["/api", "/apis", "/version"].contains(&&*request.path));
    assert_eq!(discoveries.count(), 3, "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_crd_that_a_read_missed_does_not_count_as_created() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let path = format!("{CRDS_PATH}/things.x.io");
    let modified = Answer::failure(409, "Conflict", "the object has been modified");
    server.next(1, RequestMatcher::path(&path).method("GET"), Answer::text(404, "404 page not found"));
    server.always(RequestMatcher::path(&path).method("GET"), Answer::json(&established()["items"][0]));
    server.next(1, RequestMatcher::path(&path).method("PATCH"), modified);
    script(&server);
    let cluster = Cluster::new(server.access().client()?);
    let object = Object::from_value(crd())?;
    let identity = object.identity();
    let applied = applied(&cluster, vec![object]).await?;
    assert!(applied.is_complete(), "{:?}", applied.outcomes);
    assert!(applied.inventory.get(&identity).is_some_and(|entry| !entry.created), "{:?}", applied.inventory);
    Ok(())
}
