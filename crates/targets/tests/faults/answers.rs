//! Responses that no apiserver sends.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kyma_api::{ErrorClass, Reason};
use kyma_targets::{AccessPolicy, Limits, STAMP_NAME, STAMP_NAMESPACE, TargetError, classify};
use serde_json::json;
use testbed::{Answer, RequestMatcher, ScriptedServer};

use crate::{CALL, PLANTED, fails, limits, loopback, short_calls, target, targets, targets_within};

/// Time after which a call counts as unbounded. It is less than the deadlines in `limits`, so another bound ends it.
const UNBOUNDED: Duration = Duration::from_secs(30);

#[tokio::test]
async fn every_fault_is_bounded_and_reported_without_foreign_text() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": PLANTED.repeat(100)}});
    let rows = [
        (Answer::silence(), Reason::TargetTimeout),
        (Answer::stalled("{\"kind\":"), Reason::TargetTimeout),
        (Answer::slow_drip(&map, Duration::from_millis(20)), Reason::TargetTimeout),
        (Answer::endless(), Reason::TargetAnswerInvalid),
        (Answer::raw(vec![b'['; 65 * 1024]), Reason::TargetAnswerInvalid),
        // Small when it arrives, large in memory.
        (Answer::raw(format!("{{\"items\":[{}{{}}]}}", "{},".repeat(5000))), Reason::TargetAnswerInvalid),
        (Answer::reset(), Reason::TargetUnreachable),
        (Answer::html(503, PLANTED), Reason::TargetServerError),
        (Answer::html(200, PLANTED), Reason::TargetAnswerInvalid),
        (Answer::html(404, PLANTED), Reason::TargetUnreachable),
        (Answer::failure(503, PLANTED, PLANTED), Reason::TargetServerError),
        (Answer::failure(401, "Unauthorized", PLANTED), Reason::TargetUnauthorized),
        (Answer::failure(403, "Forbidden", PLANTED), Reason::TargetForbidden),
        (Answer::failure(422, "Invalid", PLANTED), Reason::ApplyRefused),
        (Answer::raw(format!("{{\"{PLANTED}")), Reason::TargetAnswerInvalid),
        (Answer::redirect("https://127.0.0.1:1/stolen"), Reason::TargetAnswerInvalid),
        (Answer::too_many_requests(9), Reason::TargetThrottled),
    ];
    for (answer, reason) in rows {
        server.clear();
        server.always(RequestMatcher::path("/api/v1"), answer.clone());
        // Uses a new cache each time, so that no breaker is open already.
        let limits = if reason == Reason::TargetTimeout { short_calls() } else { limits() };
        let target = target(&targets_within(limits, loopback()), server.access())?;
        let started = Instant::now();
        let error = fails(&target).await?;
        assert_eq!(error.reason(), reason, "{answer:?} gave {error:?}");
        assert!(started.elapsed() < UNBOUNDED, "{answer:?} took {:?}", started.elapsed());
        assert!(!format!("{error} {error:?}").contains("planted"), "{error:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_404_that_does_not_name_the_stamp_hides_none() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "kube-system", "uid": "u"}});
    server.always(RequestMatcher::path("/api/v1/namespaces/kube-system"), Answer::json(&namespace));
    let stamp =
        RequestMatcher::path(&format!("/api/v1/namespaces/{STAMP_NAMESPACE}/configmaps/{STAMP_NAME}"));
    server.next(1, stamp.clone(), Answer::failure(404, "NotFound", "no such cluster"));
    server.always(stamp, Answer::not_found("", "configmaps", STAMP_NAME));
    let target = target(&targets(loopback()), server.access())?;
    let failed = target.identify().await;
    assert!(matches!(failed, Err(TargetError::Api { code: 404, .. })), "{failed:?}");
    assert!(target.identify().await?.stamp.is_none());
    Ok(())
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_our_token_goes_nowhere_else() -> Result<()> {
    let (server, thief) = (ScriptedServer::start().await?, ScriptedServer::start().await?);
    server.always(RequestMatcher::any(), Answer::redirect(&format!("{}/stolen", thief.access().url)));
    let error = fails(&target(&targets(loopback()), server.access())?).await?;
    assert_eq!(error, TargetError::Redirected(302));
    assert_eq!(thief.connections(), 0);
    Ok(())
}

#[tokio::test]
async fn reasons_stay_the_same_however_often_one_asks() -> Result<()> {
    let silent = ScriptedServer::start().await?;
    silent.always(RequestMatcher::any(), Answer::silence());
    let broken = ScriptedServer::start().await?;
    broken.always(RequestMatcher::any(), Answer::html(502, PLANTED));
    let rows = [
        (limits(), AccessPolicy::default(), silent.access(), Reason::AccessRefused),
        (short_calls(), loopback(), silent.access(), Reason::TargetTimeout),
        (limits(), loopback(), broken.access(), Reason::TargetServerError),
    ];
    for (limits, policy, access, reason) in rows {
        let target = target(&targets_within(limits, policy), access)?;
        for attempt in 0..5 {
            let error = fails(&target).await?;
            assert_eq!(error.reason(), reason, "attempt {attempt}: {error:?}");
            assert!(!error.to_string().contains("planted"), "{error}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_a_proxy_does_not_find_is_unreachable() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), Answer::not_found("management.example.org", "clusters", "c-1"));
    let target = target(&targets(loopback()), server.access())?;
    let error = target.identify().await.err().context("an error was expected")?;
    assert_eq!(error, TargetError::NotApiServer(404));
    assert_eq!(error.reason(), Reason::TargetUnreachable);
    Ok(())
}

#[tokio::test]
async fn denials_with_any_code_neither_suspend_nor_slow_a_target() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let policy = "x is forbidden: ValidatingAdmissionPolicy 'labels' with binding 'b' denied request: no";
    let webhook = "admission webhook \"w.example.org\" denied the request: no";
    for (code, reason, message) in [
        (401, "Unauthorized", policy),
        (413, "RequestEntityTooLarge", policy),
        (429, "TooManyRequests", webhook),
        (503, "ServiceUnavailable", webhook),
    ] {
        server.clear();
        server.always(RequestMatcher::path("/api/v1"), Answer::failure(code, reason, message));
        let target = target(&targets(loopback()), server.access())?;
        for attempt in 0..5 {
            let error = fails(&target).await?;
            assert_eq!(error.reason(), Reason::WebhookDenied, "{code}, attempt {attempt}: {error:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_only_accepts_connections_is_given_up_in_time() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.set_unresponsive(true);
    let limits = Limits { connect: CALL, ..limits() };
    let started = Instant::now();
    let error = fails(&target(&targets_within(limits, loopback()), server.access())?).await?;
    assert_eq!(error.class(), ErrorClass::Unreachable);
    assert!(started.elapsed() < UNBOUNDED);
    Ok(())
}

#[tokio::test]
async fn a_silent_watch_ends_and_one_endless_event_too() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let bookmark = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"resourceVersion": "7"}}});
    server.next(1, RequestMatcher::any(), Answer::watch(&[bookmark]));
    server.next(1, RequestMatcher::any(), Answer::endless());
    let rows = [
        (Limits { watch_idle: CALL, ..limits() }, Reason::TargetTimeout),
        (limits(), Reason::TargetAnswerInvalid),
    ];
    for (limits, reason) in rows {
        let target = target(&targets_within(limits, loopback()), server.access())?;
        let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
        let stream = maps.watch(&WatchParams::default(), "0").await?;
        let events: Vec<_> = tokio::time::timeout(UNBOUNDED, stream.collect()).await?;
        let error = events.into_iter().find_map(Result::err).context("the stream should fail")?;
        assert_eq!(classify(&error).reason(), reason);
    }
    Ok(())
}

#[tokio::test]
async fn a_list_page_within_the_limit_arrives_whole() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let items: Vec<_> = (0..300).map(|n| json!({"metadata": {"name": format!("m-{n}")}})).collect();
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": items});
    server.always(RequestMatcher::any(), Answer::json(&list));
    let target = target(&targets(loopback()), server.access())?;
    let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
    assert_eq!(maps.list(&ListParams::default()).await?.items.len(), 300);
    Ok(())
}
