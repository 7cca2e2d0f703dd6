//! Lists of tags that are paged, lead to other hosts, or do not end.

use futures::future::join_all;
use kyma_api::Reason;
use kyma_artifacts::{ArtifactError, ChartVersion, ChartVersions, Credentials};
use serde_json::json;

use crate::{
    Client,
    server::{ReceivedRequest, Reply, Server},
};

const LIST: &str = "/v2/charts/demo/tags/list";

async fn resolve(client: &Client, server: &Server, range: &str) -> Result<ChartVersion, ArtifactError> {
    let versions = ChartVersions::Oci(format!("{}/charts/demo", server.address()).parse().unwrap());
    client.artifacts.resolve(&versions, &range.parse().unwrap(), &Credentials::anonymous()).await
}

fn page(tags: &[&str], next: Option<String>) -> Reply {
    let reply = Reply::ok(json!({"name": "charts/demo", "tags": tags}).to_string());
    match next {
        Some(next) => reply.header("Link", format!("<{next}>; rel=\"next\"")),
        None => reply,
    }
}

/// Serves three pages of tags, and a manifest under each tag.
fn paged(request: &ReceivedRequest) -> Reply {
    match request.path.split_once("last=").map(|(_, last)| last) {
        _ if request.path.contains("/manifests/") => {
            Reply::ok(json!({"schemaVersion": 2, "annotations": {"path": request.path}}).to_string())
        }
        // A comma in the address does not end the link.
        None => page(&["1.0.0", "latest"], Some(format!("{LIST}?n=1000,&last=a"))),
        Some("a") => page(&["1.3.0"], Some(format!("{LIST}?n=1000&last=b"))),
        Some(_) => page(&["1.2.0"], None),
    }
}

#[tokio::test]
async fn all_pages_count() {
    let server = Server::start(paged).await;
    let found = resolve(&Client::new(&[&server]), &server, "1.x").await.unwrap();
    assert_eq!(found.version, "1.3.0");
    assert_eq!(server.count(&format!("GET {LIST}")), 3);
}

#[tokio::test]
async fn concurrent_resolutions_share_a_list_and_later_ones_do_not() {
    let server = Server::start(paged).await;
    let client = Client::new(&[&server]);
    let all = join_all((0..20).map(|_| resolve(&client, &server, "~1.2"))).await;
    assert!(all.into_iter().all(|found| found.unwrap().version == "1.2.0"));
    assert_eq!(server.count(&format!("GET {LIST}")), 3);
    resolve(&client, &server, "~1.2").await.unwrap();
    assert_eq!(server.count(&format!("GET {LIST}")), 6);
}

#[tokio::test]
async fn page_size_is_omitted_if_the_registry_allows_a_lower_maximum() {
    let server = Server::start(|request| match request.path.as_str() {
        LIST => page(&["1.0.0"], Some(format!("{LIST}?last=1.0.0"))),
        path if path.contains("n=1000") => Reply::status(400),
        path if path.contains("last=") => page(&["1.1.0"], None),
        _ => paged(request),
    })
    .await;
    let found = resolve(&Client::new(&[&server]), &server, "1.x").await.unwrap();
    assert_eq!(found.version, "1.1.0");
}

#[tokio::test]
async fn invalid_tags_are_left_out_of_the_list() {
    let long = format!("4.0.0_{}", "a".repeat(128));
    let server = Server::start(move |request| {
        if request.path.starts_with(LIST) {
            return page(&["1.0.0", "2.0.0+b", &long], None);
        }
        paged(request)
    })
    .await;
    let found = resolve(&Client::new(&[&server]), &server, ">=1.0.0").await.unwrap();
    assert_eq!(found.version, "1.0.0");
}

#[tokio::test]
async fn a_page_on_another_host_is_not_fetched() {
    let elsewhere = Server::start(|_| page(&["9.9.9"], None)).await;
    let next = format!("http://{}{LIST}", elsewhere.address());
    let server = Server::start(move |_| page(&["1.0.0"], Some(next.clone()))).await;
    let error = resolve(&Client::new(&[&server, &elsewhere]), &server, "*").await.unwrap_err();
    assert_eq!(error.reason(), Reason::SourceHostRefused, "{error}");
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn tag_page_linked_by_a_redirect_target_gets_no_credentials() {
    let elsewhere = Server::start(|request| {
        if request.path.contains("last=") {
            page(&["9.9.9"], None)
        } else {
            page(&["1.0.0"], Some(format!("http://{}{LIST}?last=a", request.host)))
        }
    })
    .await;
    let address = elsewhere.address().to_owned();
    let server = Server::start(move |request| match request.authorization {
        None => Reply::status(401).header("WWW-Authenticate", "Basic"),
        Some(_) => Reply::status(307).header("Location", format!("http://{address}{}", request.path)),
    })
    .await;
    let client = Client::with(&[&server, &elsewhere], |config| {
        config.allowed_hosts = vec![elsewhere.address().to_owned()];
    });
    let credentials = Credentials::basic(server.address(), "alice", "hunter2");
    let versions = ChartVersions::Oci(format!("{}/charts/demo", server.address()).parse().unwrap());
    let resolved = client.artifacts.resolve(&versions, &"*".parse().unwrap(), &credentials).await;
    assert_eq!(resolved.unwrap_err().reason(), Reason::SourceHostRefused);
    assert_eq!(elsewhere.requests().len(), 1, "the redirect is followed, the next page is not");
    assert!(elsewhere.requests().iter().all(|request| request.authorization.is_none()));
}

#[tokio::test]
async fn a_list_without_end_is_an_error_and_no_part_of_it_counts() {
    let server = Server::start(|_| page(&["1.0.0"], Some(LIST.to_owned()))).await;
    let error = resolve(&Client::new(&[&server]), &server, "1.x").await.unwrap_err();
    assert_eq!(error.reason(), Reason::SourceInvalid, "{error}");
    assert!(server.count("GET") < 300);
}

#[tokio::test]
async fn a_registry_without_tags_or_with_refusals_says_so() {
    for (reply, reason) in [
        (200, Reason::SourceNotFound),
        (404, Reason::SourceNotFound),
        (403, Reason::SourceUnauthorized),
        (503, Reason::SourceUnreachable),
    ] {
        let server = Server::start(move |_| match reply {
            200 => Reply::ok(r#"{"name":"charts/demo","tags":null}"#),
            status => Reply::status(status),
        })
        .await;
        let error = resolve(&Client::new(&[&server]), &server, "1.x").await.unwrap_err();
        assert_eq!(error.reason(), reason, "{reply}: {error}");
    }
}
