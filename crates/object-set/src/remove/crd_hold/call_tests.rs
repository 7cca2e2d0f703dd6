//! Tests the creation of objects during the removal of their CRD, with an API server in memory and paused time.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use parking_lot::Mutex;

use super::*;

const MANAGER: &str = "operator";

/// The state of an API server with one CRD.
struct Stored {
    crd: Value,
    /// Numbers of objects in the next lists; later lists are empty.
    lists: VecDeque<usize>,
    /// Number of dry runs that are permitted before the schema requires the property.
    permitted: usize,
    /// The methods of the calls.
    calls: Vec<String>,
}

#[derive(Clone)]
struct Server(Arc<Mutex<Stored>>);

impl Server {
    fn new(lists: &[usize]) -> Self {
        let schema = json!({"openAPIV3Schema": {"type": "object", "required": ["spec"]}});
        let crd = json!({
            "metadata": {"name": "things.x.io", "uid": "u", "resourceVersion": "7"},
            "spec": {"group": "x.io", "names": {"kind": "Thing", "plural": "things"}, "scope": "Namespaced",
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
        });
        let calls = Vec::new();
        let stored = Stored { crd, lists: lists.iter().copied().collect(), permitted: 0, calls };
        Self(Arc::new(Mutex::new(stored)))
    }

    fn client(&self) -> Client {
        let server: Router = Router::new().fallback(answer).with_state(self.clone());
        Client::new(server, "default")
    }

    async fn block_creation(&self) -> CrdContents {
        let crd: DynamicObject = serde_json::from_value(self.0.lock().crd.clone()).unwrap();
        block_creation(&self.client(), &crd, MANAGER).await.unwrap()
    }

    fn has_marker(&self) -> bool {
        self.0.lock().crd.to_string().contains(REQUIRED_PROPERTY)
    }

    fn calls(&self) -> String {
        self.0.lock().calls.join(" ")
    }
}

async fn answer(State(server): State<Server>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let mut stored = server.0.lock();
    let method = parts.method.to_string();
    stored.calls.push(method.clone());
    match &*method {
        "GET" if parts.uri.path().ends_with("/things.x.io") => Json(stored.crd.clone()).into_response(),
        "GET" => {
            let count = stored.lists.pop_front().unwrap_or_default();
            let items: Vec<Value> =
                (0..count).map(|index| json!({"metadata": {"name": format!("object-{index}")}})).collect();
            let kind = "PartialObjectMetadataList";
            Json(json!({"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": {}, "items": items}))
                .into_response()
        }
        "PATCH" => {
            let patch: JsonPatch = serde_json::from_slice(&body).unwrap();
            json_patch::patch(&mut stored.crd, &patch).unwrap();
            let version: u64 = stored.crd["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            stored.crd["metadata"]["resourceVersion"] = (version + 1).to_string().into();
            Json(stored.crd.clone()).into_response()
        }
        "POST" if stored.permitted == 0 => {
            let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
                "reason": "Invalid", "message": format!("{REQUIRED_PROPERTY}: Required value"), "code": 422});
            (StatusCode::UNPROCESSABLE_ENTITY, Json(status)).into_response()
        }
        _ => {
            stored.permitted = stored.permitted.saturating_sub(1);
            Json(json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "creation-probe"}}))
                .into_response()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_crd_is_deleted_at_the_version_that_refuses_objects() {
    let server = Server::new(&[0, 0]);
    let expected = CrdContents::Empty { resource_version: "8".to_owned() };
    assert_eq!(server.block_creation().await, expected);
    assert!(server.has_marker());
    assert_eq!(server.calls(), "GET PATCH POST GET");
}

#[tokio::test(start_paused = true)]
async fn an_object_created_after_the_first_list_keeps_the_crd() {
    let server = Server::new(&[0, 1]);
    assert_eq!(server.block_creation().await, CrdContents::InUse);
    assert!(!server.has_marker());
    assert_eq!(server.calls(), "GET PATCH POST GET PATCH");
}

#[tokio::test(start_paused = true)]
async fn a_crd_with_objects_is_not_changed() {
    let server = Server::new(&[1]);
    assert_eq!(server.block_creation().await, CrdContents::InUse);
    assert_eq!(server.calls(), "GET");
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_still_accepts_objects_is_kept_as_it_was() {
    let server = Server::new(&[0]);
    server.0.lock().permitted = usize::MAX;
    assert_eq!(server.block_creation().await, CrdContents::Unknown);
    assert!(!server.has_marker());
}

#[tokio::test(start_paused = true)]
async fn a_schema_that_is_in_force_only_after_seconds_is_awaited() {
    let server = Server::new(&[0, 0]);
    server.0.lock().permitted = 50;
    assert!(matches!(server.block_creation().await, CrdContents::Empty { .. }));
    assert!(server.has_marker());
}

#[tokio::test(start_paused = true)]
async fn a_removal_after_an_interrupted_one_lists_objects_again() {
    let server = Server::new(&[0, 0, 0, 1]);
    assert!(matches!(server.block_creation().await, CrdContents::Empty { .. }));
    assert_eq!(server.block_creation().await, CrdContents::InUse);
    assert!(!server.has_marker());
}

#[tokio::test(start_paused = true)]
async fn a_crd_without_a_stored_version_is_kept() {
    let server = Server::new(&[0, 0]);
    server.0.lock().crd["spec"]["versions"][0]["storage"] = false.into();
    assert_eq!(server.block_creation().await, CrdContents::Unknown);
    assert_eq!(server.calls(), "");
}

#[tokio::test(start_paused = true)]
async fn crd_with_failed_delete_accepts_objects_unless_terminating() {
    for is_terminating in [false, true] {
        let server = Server::new(&[0, 0]);
        assert!(matches!(server.block_creation().await, CrdContents::Empty { .. }));
        if is_terminating {
            server.0.lock().crd["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        unblock_kept_crd(&server.client(), "things.x.io", MANAGER).await;
        assert_eq!(server.has_marker(), is_terminating);
    }
}
