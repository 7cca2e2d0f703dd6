//! Rate of requests to a target, and pauses.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, WatchParams};
use kyma_api::Reason;
use kyma_targets::{Limits, TargetError, TargetEvent, WatchPace};
use serde_json::json;
use testbed::{Answer, RequestMatcher, ScriptedServer};

use crate::{
    LONG_TIMEOUT, config_map, fails, get, limits, loopback, secret, target, targets, targets_within,
};

#[tokio::test]
async fn three_failures_suspend_calls_and_recovery_is_announced() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), Answer::reset());
    let targets = targets(loopback());
    let mut events = targets.events();
    let target = target(&targets, server.access())?;
    for _ in 0..3 {
        let error = fails(&target).await?;
        let TargetError::Connection { cause, .. } = &error else { panic!("{error:?}") };
        assert!(matches!(**cause, TargetError::Connect(_)), "{error:?}");
    }
    let place = target.key().context("a remote target has a key")?.clone();
    assert_eq!(events.recv().await?, TargetEvent::Suspended(place.clone()));
    assert!(!target.calls_pass());
    let before = server.count(&RequestMatcher::path("/api"));
    assert!(matches!(fails(&target).await?, TargetError::Suspended { .. }));
    assert_eq!(server.count(&RequestMatcher::path("/api")), before, "the call was tried");

    server.wait_for(2, &RequestMatcher::path("/readyz"), LONG_TIMEOUT).await?;
    server.clear();
    server.always(RequestMatcher::any(), config_map());
    tokio::time::timeout(LONG_TIMEOUT, target.healthy_again()).await?;
    assert_eq!(events.recv().await?, TargetEvent::Recovered(place));
    get(&target).await?;
    Ok(())
}

#[tokio::test]
async fn errors_of_one_api_do_not_suspend_target_with_good_readyz() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::path("/readyz"), Answer::raw("ok"));
    server
        .always(RequestMatcher::any(), Answer::failure(503, "ServiceUnavailable", "aggregated API is down"));
    let target = target(&targets(loopback()), server.access())?;
    for _ in 0..3 {
        assert!(matches!(fails(&target).await?, TargetError::Server { code: 503, .. }));
    }
    server.wait_for(1, &RequestMatcher::path("/readyz"), LONG_TIMEOUT).await?;
    for _ in 0..2 {
        assert!(matches!(fails(&target).await?, TargetError::Server { code: 503, .. }));
    }
    assert!(target.calls_pass());
    Ok(())
}

#[tokio::test]
async fn refused_credentials_suspend_calls_until_they_are_accepted() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), Answer::failure(401, "Unauthorized", "who is that?"));
    let targets = targets(loopback());
    let target = target(&targets, server.access())?;
    for _ in 0..3 {
        assert_eq!(fails(&target).await?, TargetError::Unauthorized);
    }
    let held = fails(&target).await?;
    assert!(matches!(held, TargetError::Suspended { .. }), "{held:?}");
    assert_eq!(held.reason(), Reason::TargetUnauthorized);
    assert_eq!(server.count(&RequestMatcher::path("/api")), 3, "the call was tried");
    // Each probe sends the credentials too, and is refused as well.
    server.wait_for(2, &RequestMatcher::path("/readyz"), LONG_TIMEOUT).await?;
    assert_eq!(fails(&target).await?.reason(), Reason::TargetUnauthorized);
    server.clear();
    server.always(RequestMatcher::any(), config_map());
    tokio::time::timeout(LONG_TIMEOUT, target.healthy_again()).await?;
    get(&target).await?;
    Ok(())
}

#[tokio::test]
async fn rotated_secret_is_used_at_once_after_refused_credentials() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.next(3, RequestMatcher::any(), Answer::failure(401, "Unauthorized", "who is that?"));
    server.always(RequestMatcher::path("/readyz"), Answer::failure(401, "Unauthorized", "who is that?"));
    server.always(RequestMatcher::any(), config_map());
    let targets = targets(loopback());
    let old = target(&targets, server.access())?;
    for _ in 0..3 {
        fails(&old).await?;
    }
    assert!(matches!(fails(&old).await?, TargetError::Suspended { .. }));
    let rotated = targets.from_secret(&secret(server.access().kubeconfig(), "2"), "config")?;
    get(&rotated).await?;
    Ok(())
}

#[tokio::test]
async fn a_429_holds_later_calls_back_instead_of_sending_them() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), Answer::too_many_requests(60));
    // A call waits for the end of a pause that is shorter than its deadline.
    let call = Duration::from_secs(20);
    let target = target(&targets_within(Limits { call, ..limits() }, loopback()), server.access())?;
    assert_eq!(fails(&target).await?, TargetError::Throttled(Duration::from_mins(1)));
    let later = fails(&target).await?;
    assert!(matches!(later, TargetError::Throttled(pause) if pause > call), "{later:?}");
    assert_eq!(server.requests().len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_kind_whose_cache_is_being_filled_holds_no_other_call_back() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let filling = "storage is (re)initializing";
    let of_kind = RequestMatcher::path("/api/v1/namespaces/default");
    server.always(
        of_kind.clone(),
        Answer::failure(429, "TooManyRequests", filling).header("retry-after", "30"),
    );
    server.always(RequestMatcher::any(), config_map());
    let target = target(&targets_within(Limits::default(), loopback()), server.access())?;
    // The error is returned to the caller, who decides when to retry.
    for _ in 0..2 {
        assert_eq!(fails(&target).await?, TargetError::Initializing);
    }
    assert_eq!(server.count(&of_kind), 2, "each was sent");
    Api::<ConfigMap>::namespaced(target.client(), "other").get("any").await?;
    Ok(())
}

#[tokio::test]
async fn calls_at_once_are_bounded() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let ours = RequestMatcher::path("/api/v1/namespaces/default");
    server.always(ours.clone(), Answer::silence());
    server.always(RequestMatcher::any(), config_map());
    let target = target(&targets(loopback()), server.access())?;
    let mut calls: FuturesUnordered<_> = (0..20).map(|_| fails(&target)).collect();
    let others = async {
        server.wait_for(Limits::default().calls, &ours, LONG_TIMEOUT / 2).await?;
        // During as many calls of others, each with a new connection, the waiting calls would be sent too.
        for _ in 0..20 {
            let other = crate::target(&targets(loopback()), server.access())?;
            Api::<ConfigMap>::namespaced(other.client(), "other").get("any").await?;
        }
        anyhow::Ok(server.count(&ours))
    };
    let seen = tokio::select! {
        ended = calls.next() => bail!("a call ended: {ended:?}"),
        seen = others => seen?,
    };
    assert_eq!(seen, Limits::default().calls);
    Ok(())
}

#[tokio::test]
async fn calls_queued_behind_slow_ones_do_not_suspend_the_target() -> Result<()> {
    let server = ScriptedServer::start().await?;
    // Each response takes two seconds, a quarter of the call timeout.
    let slow = Answer::slow_drip(&json!({"metadata": {}}), Duration::from_millis(133));
    server.always(RequestMatcher::any(), slow);
    let limits = Limits { call: Duration::from_secs(8), ..limits() };
    let target = target(&targets_within(limits, loopback()), server.access())?;
    let calls: Vec<_> = futures::future::join_all((0..40).map(|_| get(&target))).await;
    let failed: Vec<_> = calls.iter().filter_map(|call| call.as_ref().err()).collect();
    // Calls that would have waited too long were not sent.
    assert!(failed.iter().all(|error| matches!(error, TargetError::Throttled(_))), "{failed:?}");
    assert_eq!(calls.len() - failed.len(), server.count(&RequestMatcher::path("/api")));
    assert!(failed.len() < 40 - Limits::default().calls, "{failed:?}");
    assert!(target.calls_pass());
    Ok(())
}

#[tokio::test]
async fn calls_that_waited_while_a_target_was_found_dead_are_not_sent() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), Answer::reset());
    let one_by_one = Limits { calls: 1, ..limits() };
    let target = target(&targets_within(one_by_one, loopback()), server.access())?;
    let failed = futures::future::try_join_all((0..6).map(|_| fails(&target))).await?;
    let suspended = failed.iter().filter(|error| matches!(error, TargetError::Suspended { .. }));
    assert_eq!(suspended.count(), 3, "{failed:?}");
    assert_eq!(server.count(&RequestMatcher::path("/api")), 3);
    Ok(())
}

#[tokio::test]
async fn large_answers_behind_a_stalled_one_do_not_suspend_the_target() -> Result<()> {
    const SIZE: usize = 2 * 1024 * 1024;
    let server = ScriptedServer::start().await?;
    server.always(
        RequestMatcher::any(),
        Answer::stalled(&format!("{{\"data\":{{\"k\":\"{}", "x".repeat(SIZE))),
    );
    let call = Duration::from_secs(10);
    let limits = Limits { call, body: 2 * SIZE, body_weight: 16 * SIZE, ..limits() };
    let target = target(&targets_within(limits, loopback()), server.access())?;
    let calls = (0..Limits::default().calls).map(|_| fails(&target));
    let failed: Vec<TargetError> = futures::future::try_join_all(calls).await?;
    let (stalled, held_up): (Vec<_>, Vec<_>) =
        failed.iter().partition(|error| matches!(error, TargetError::Connection { .. }));
    assert_eq!(stalled.len(), 1, "{failed:?}");
    assert!(held_up.iter().all(|error| matches!(error, TargetError::Throttled(_))), "{failed:?}");
    assert!(target.calls_pass());
    Ok(())
}

/// Returns an endless watch of ConfigMaps with this many bytes.
fn flood(size: usize) -> Answer {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "x".repeat(size)}});
    let line = format!("{}\n", json!({"type": "ADDED", "object": map}));
    Answer::made(move |_| Some(line.clone().into()))
}

#[tokio::test]
async fn event_flood_is_read_at_allowed_rate_for_any_stream_count() -> Result<()> {
    const SIZE: usize = 512 * 1024;
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), flood(SIZE));
    let pace = WatchPace { burst: 2 * SIZE, per_second: 2 * SIZE, per_write: 0 };
    let limits = Limits { line: 2 * SIZE, line_weight: 2 * SIZE, watch_pace: pace, ..limits() };
    let target = target(&targets_within(limits, loopback()), server.access())?;
    let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
    let params = WatchParams::default();
    let (one, other) = tokio::try_join!(maps.watch(&params, "0"), maps.watch(&params, "0"))?;
    let started = Instant::now();
    let events: Vec<_> = futures::stream::select(one.boxed(), other.boxed()).take(8).collect().await;
    assert!(events.iter().all(Result::is_ok), "{events:?}");
    // Two of eight are the burst; events that each stream has already received may arrive at once, too.
    assert!(started.elapsed() > Duration::from_secs(1), "{:?}", started.elapsed());
    Ok(())
}

#[tokio::test]
async fn events_of_own_writes_are_not_throttled_except_dry_runs() -> Result<()> {
    const SIZE: usize = 64 * 1024;
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any().method("PATCH"), config_map());
    server.always(RequestMatcher::any(), flood(SIZE));
    // Without writes, nothing is read after the burst.
    let pace = WatchPace { burst: 8 * SIZE, per_second: 1, per_write: 8 * SIZE };
    let limits = Limits { watch_pace: pace, ..limits() };
    let target = target(&targets_within(limits, loopback()), server.access())?;
    let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
    let apply = PatchParams::apply("tester");
    let change = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap"}));
    let mut events = maps.watch(&WatchParams::default(), "0").await?.boxed();
    for _ in 0..32 {
        maps.patch("m", &apply, &change).await?;
        tokio::time::timeout(LONG_TIMEOUT, events.next()).await?.context("the stream goes on")??;
    }
    let dry_run = apply.dry_run();
    for _ in 0..32 {
        maps.patch("m", &dry_run, &change).await?;
        if tokio::time::timeout(Duration::from_secs(1), events.next()).await.is_err() {
            return Ok(());
        }
    }
    bail!("dry runs let events pass")
}
