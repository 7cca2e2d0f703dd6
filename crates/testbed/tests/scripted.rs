//! Scripted faults, without and in front of a real cluster.

use std::error::Error as _;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use testbed::{
    Answer, Body as AnswerBody, Cluster, InterceptedRequest, Interceptor, RequestMatcher, ScriptedServer,
    SharedTestEnv, until,
};

static TEST_ENV: SharedTestEnv = SharedTestEnv::new();

const DEADLINE: Duration = Duration::from_secs(30);

const CONFIG_MAPS_PATH: &str = "/api/v1/namespaces/default/configmaps";

async fn hub() -> Result<Cluster> {
    TEST_ENV.cluster("hub", |cluster| cluster).await
}

fn maps(server: &ScriptedServer) -> Result<Api<ConfigMap>> {
    Ok(Api::namespaced(server.access().client()?, "default"))
}

fn code<T>(answer: Result<T, kube::Error>) -> Option<u16> {
    match answer {
        Err(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

async fn get(client: &Client, path: &str) -> Result<http::Response<Body>, kube::Error> {
    client.send(http::Request::get(path).body(Body::empty()).map_err(kube::Error::HttpError)?).await
}

#[tokio::test]
async fn a_request_without_a_rule_reaches_the_cluster() -> Result<()> {
    let hub = hub().await?;
    let server = ScriptedServer::in_front_of(&hub).await?;
    server.next(
        1,
        RequestMatcher::any().method("PATCH"),
        Answer::failure(503, "ServiceUnavailable", "later"),
    );
    let maps = maps(&server)?;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "through"}});
    let apply = async || maps.patch("through", &PatchParams::apply("test"), &Patch::Apply(&object)).await;
    assert_eq!(code(apply().await), Some(503));
    apply().await?;
    let direct: Api<ConfigMap> = Api::namespaced(hub.client()?, "default");
    direct.get("through").await?;
    assert_eq!(server.count(&RequestMatcher::path(CONFIG_MAPS_PATH).method("PATCH")), 2);
    Ok(())
}

#[tokio::test]
async fn tokens_keep_their_identity_when_passed_on() -> Result<()> {
    let hub = hub().await?;
    let server = ScriptedServer::in_front_of(&hub).await?;
    let robot = hub.service_account("default", "robot").await?;
    let maps: Api<ConfigMap> = Api::namespaced(server.access_of(&robot).client()?, "default");
    assert_eq!(code(maps.list(&ListParams::default()).await), Some(403));
    Ok(())
}

#[tokio::test]
async fn watches_pass_through() -> Result<()> {
    let server = ScriptedServer::in_front_of(&hub().await?).await?;
    let maps = maps(&server)?;
    let events = maps.watch(&WatchParams::default(), "0").await?;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen"}});
    maps.patch("seen", &PatchParams::apply("test"), &Patch::Apply(&object)).await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        if matches!(event, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("seen")) {
            return Ok(());
        }
    }
    anyhow::bail!("the watch ended")
}

#[tokio::test]
async fn too_many_requests_says_when_to_come_back() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), Answer::too_many_requests(7));
    let answer = get(&server.access().client()?, CONFIG_MAPS_PATH).await?;
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()[http::header::RETRY_AFTER], "7");
    Ok(())
}

#[tokio::test]
async fn resets_break_the_connection() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), Answer::reset());
    let Err(error) = get(&server.access().client()?, CONFIG_MAPS_PATH).await else {
        anyhow::bail!("it answered")
    };
    let mut cause = error.source();
    let mut kinds = Vec::new();
    while let Some(error) = cause {
        kinds.extend(error.downcast_ref::<std::io::Error>().map(std::io::Error::kind));
        cause = error.source();
    }
    assert!(kinds.contains(&std::io::ErrorKind::ConnectionReset), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn silence_and_deafness_last_until_the_client_gives_up() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), Answer::silence());
    let client = server.access().client()?;
    stays_unanswered(&client, server.wait_for(1, &RequestMatcher::any(), DEADLINE)).await?;
    assert_eq!((server.connections(), server.requests().len()), (1, 1));
    server.set_unresponsive(true);
    let client = server.access().client()?;
    let connected =
        until("another connection", DEADLINE, || async { Ok((server.connections() > 1).then_some(())) });
    stays_unanswered(&client, connected).await?;
    assert_eq!((server.connections(), server.requests().len()), (2, 1));
    Ok(())
}

/// Sends a request, and checks that it has no response for a while after `arrived` ends.
async fn stays_unanswered(client: &Client, arrived: impl Future<Output = Result<()>>) -> Result<()> {
    let mut response = pin!(get(client, CONFIG_MAPS_PATH));
    tokio::select! {
        _ = &mut response => anyhow::bail!("it answered"),
        arrived = arrived => arrived?,
    }
    assert!(tokio::time::timeout(Duration::from_millis(200), response).await.is_err());
    Ok(())
}

#[tokio::test]
async fn drips_come_byte_by_byte() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), Answer::slow_drip(&json!({"a": 1}), Duration::from_millis(10)));
    let start = Instant::now();
    let body =
        get(&server.access().client()?, CONFIG_MAPS_PATH).await?.into_body().collect().await?.to_bytes();
    assert_eq!(body.as_ref(), br#"{"a":1}"#);
    assert!(start.elapsed() >= Duration::from_millis(70), "seven bytes, 10 ms before each");
    Ok(())
}

#[tokio::test]
async fn endless_bodies_do_not_end() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), Answer::endless());
    let body = get(&server.access().client()?, CONFIG_MAPS_PATH).await?.into_body();
    let mut size = 0;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        size += chunk?.len();
        if size > 32 << 20 {
            return Ok(());
        }
    }
    anyhow::bail!("it ended after {size} bytes")
}

#[tokio::test]
async fn watches_expire_as_real_ones_do() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.next(1, RequestMatcher::watch(CONFIG_MAPS_PATH), Answer::watch_expired());
    server.next(1, RequestMatcher::watch(CONFIG_MAPS_PATH), Answer::expired());
    let maps = maps(&server)?;
    let mut events = std::pin::pin!(maps.watch(&WatchParams::default(), "1").await?);
    assert!(matches!(events.try_next().await?, Some(WatchEvent::Error(status)) if status.code == 410));
    assert_eq!(code(maps.watch(&WatchParams::default(), "1").await), Some(410));
    Ok(())
}

#[tokio::test]
async fn load_balancers_answer_in_html_and_redirects_point_elsewhere() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.next(1, RequestMatcher::any(), Answer::html(502, "Bad Gateway"));
    server.next(1, RequestMatcher::any(), Answer::redirect("https://example.org/"));
    let client = server.access().client()?;
    let page = get(&client, CONFIG_MAPS_PATH).await?;
    assert_eq!(
        (page.status().as_u16(), page.headers()["content-type"].as_bytes()),
        (502, b"text/html".as_slice())
    );
    let elsewhere = get(&client, CONFIG_MAPS_PATH).await?;
    assert_eq!(
        (elsewhere.status().as_u16(), elsewhere.headers()["location"].as_bytes()),
        (302, b"https://example.org/".as_slice())
    );
    assert_eq!(get(&client, CONFIG_MAPS_PATH).await?.status(), 404);
    Ok(())
}

/// Forwards writes and withholds the responses.
struct ResponseDropper;

impl Interceptor for ResponseDropper {
    fn pass(&self, passing: InterceptedRequest) -> BoxFuture<'_, io::Result<http::Response<AnswerBody>>> {
        let is_write = passing.received().method == "POST" && !passing.body().is_empty();
        async move {
            let answer = passing.onward().await?;
            if is_write { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(answer) }
        }
        .boxed()
    }
}

#[tokio::test]
async fn an_interceptor_runs_after_the_response_of_the_cluster() -> Result<()> {
    let hub = hub().await?;
    let server = ScriptedServer::with(Arc::new(ResponseDropper), &hub).await?;
    let maps = maps(&server)?;
    let object = serde_json::from_value(json!({"metadata": {"name": "response-dropped"}}))?;
    assert!(maps.create(&PostParams::default(), &object).await.is_err(), "the response is dropped");
    assert!(maps.get_opt("response-dropped").await?.is_some(), "and the write succeeded");
    Ok(())
}
