//! A target that misbehaves costs a bounded time, says why, and is found again when it works.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kyma_api::{ErrorClass, Reason};
use kyma_targets::{
    AccessPolicy, AddressRefusal, BreakerLimits, KubeconfigError, Limits, SecretKey, Target, TargetError,
    TargetEvent, Targets, TlsFault, WatchPace, classify,
};
use serde_json::json;
use testbed::{Access, Answer, Matching, Scripted};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

const CALL: Duration = Duration::from_millis(400);
const PLANTED: &str = "planted-by-the-target";

fn limits() -> Limits {
    Limits {
        connect: Duration::from_millis(400),
        call: CALL,
        watch_idle: Duration::from_millis(400),
        body: 64 * 1024,
        body_weight: 1024 * 1024,
        line: 64 * 1024,
        line_weight: 256 * 1024,
        breaker: BreakerLimits {
            failures: 3,
            probe_first: Duration::from_millis(50),
            probe_longest: Duration::from_millis(100),
        },
        ..Limits::default()
    }
}

fn loopback() -> AccessPolicy {
    AccessPolicy { allow_loopback: true, ..AccessPolicy::default() }
}

fn targets(policy: AccessPolicy) -> Targets {
    Targets::new(policy, limits(), "tester/1.2.3", "replica-0", 8)
}

fn secret(kubeconfig: String, version: &str) -> Secret {
    let mut secret = Secret {
        data: Some([("config".to_owned(), ByteString(kubeconfig.into_bytes()))].into()),
        ..Secret::default()
    };
    secret.metadata.namespace = Some("kcp-system".into());
    secret.metadata.name = Some("access".into());
    secret.metadata.uid = Some("uid".into());
    secret.metadata.resource_version = Some(version.into());
    secret
}

fn target(targets: &Targets, access: &Access) -> Result<Target> {
    Ok(targets.from_secret(&secret(access.kubeconfig(), "1"), "config")?)
}

async fn get(target: &Target) -> Result<ConfigMap, TargetError> {
    let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
    maps.get("any").await.map_err(|error| classify(&error))
}

async fn fails(target: &Target) -> Result<TargetError> {
    get(target).await.err().context("an error was expected")
}

fn config_map() -> Answer {
    Answer::json(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "any"}}))
}

#[tokio::test]
async fn every_fault_is_bounded_and_told_by_reason_without_foreign_text() -> Result<()> {
    let server = Scripted::start().await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": PLANTED.repeat(100)}});
    let rows = [
        (Answer::silence(), Reason::TargetTimeout),
        (Answer::stalled("{\"kind\":"), Reason::TargetTimeout),
        (Answer::slow_drip(&map, Duration::from_millis(20)), Reason::TargetTimeout),
        (Answer::endless(), Reason::TargetAnswerInvalid),
        (Answer::raw(vec![b'['; 65 * 1024]), Reason::TargetAnswerInvalid),
        // Small as it comes, large in memory.
        (Answer::raw(format!("{{\"items\":[{}{{}}]}}", "{},".repeat(5000))), Reason::TargetAnswerInvalid),
        (Answer::reset(), Reason::TargetUnreachable),
        (Answer::html(503, PLANTED), Reason::TargetServerError),
        (Answer::html(200, PLANTED), Reason::TargetAnswerInvalid),
        (Answer::html(404, PLANTED), Reason::ApplyRefused),
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
        server.always(Matching::path("/api/v1"), answer.clone());
        // A cache of its own each time, so that no breaker is open already.
        let target = target(&targets(loopback()), server.access())?;
        let started = Instant::now();
        let error = fails(&target).await?;
        assert_eq!(error.reason(), reason, "{answer:?} gave {error:?}");
        assert!(started.elapsed() < CALL * 3, "{answer:?} took {:?}", started.elapsed());
        assert!(!format!("{error} {error:?}").contains("planted"), "{error:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_our_token_goes_nowhere_else() -> Result<()> {
    let (server, thief) = (Scripted::start().await?, Scripted::start().await?);
    server.always(Matching::any(), Answer::redirect(&format!("{}/stolen", thief.access().url)));
    let error = fails(&target(&targets(loopback()), server.access())?).await?;
    assert_eq!(error, TargetError::Redirected(302));
    assert_eq!(thief.connections(), 0);
    Ok(())
}

#[tokio::test]
async fn refused_addresses_get_no_connection_at_all() -> Result<()> {
    let server = Scripted::start().await?;
    let by_name =
        server.access().at(server.access().url.replace("127.0.0.1", "localhost"), &server.access().ca);
    for access in [server.access(), &by_name] {
        let error = fails(&target(&targets(AccessPolicy::default()), access)?).await?;
        assert_eq!(error, TargetError::AddressRefused(AddressRefusal::Loopback));
        assert_eq!(error.class(), ErrorClass::Invalid);
    }
    let hub = server.access().url.trim_start_matches("https://").parse()?;
    let policy = AccessPolicy { hub_addresses: vec![hub], ..loopback() };
    let error = fails(&target(&targets(policy), server.access())?).await?;
    assert_eq!(error.reason(), Reason::TargetIsHub);
    assert_eq!(server.connections(), 0);
    Ok(())
}

#[tokio::test]
async fn reasons_stay_the_same_however_often_one_asks() -> Result<()> {
    let silent = Scripted::start().await?;
    silent.always(Matching::any(), Answer::silence());
    let broken = Scripted::start().await?;
    broken.always(Matching::any(), Answer::html(502, PLANTED));
    let rows = [
        (AccessPolicy::default(), silent.access(), Reason::AccessRefused),
        (loopback(), silent.access(), Reason::TargetTimeout),
        (loopback(), broken.access(), Reason::TargetServerError),
    ];
    for (policy, access, reason) in rows {
        let target = target(&targets(policy), access)?;
        for attempt in 0..5 {
            let error = fails(&target).await?;
            assert_eq!(error.reason(), reason, "attempt {attempt}: {error:?}");
            assert!(!error.to_string().contains("planted"), "{error}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() -> Result<()> {
    let (server, other) = (Scripted::start().await?, Scripted::start().await?);
    let access = server.access().at(&server.access().url, &other.access().ca);
    let error = fails(&target(&targets(loopback()), &access)?).await?;
    assert_eq!(error, TargetError::Tls(TlsFault::UnknownAuthority));
    assert!(server.seen().is_empty(), "a request was sent to an untrusted server");
    Ok(())
}

#[tokio::test]
async fn a_server_that_only_accepts_connections_is_given_up_in_time() -> Result<()> {
    let server = Scripted::start().await?;
    server.set_deaf(true);
    let started = Instant::now();
    let error = fails(&target(&targets(loopback()), server.access())?).await?;
    assert_eq!(error.class(), ErrorClass::Unreachable);
    assert!(started.elapsed() < CALL * 3);
    Ok(())
}

#[tokio::test]
async fn after_three_failures_calls_cost_nothing_and_recovery_is_announced() -> Result<()> {
    let server = Scripted::start().await?;
    server.always(Matching::any(), Answer::reset());
    let targets = targets(loopback());
    let mut events = targets.events();
    let target = target(&targets, server.access())?;
    for _ in 0..3 {
        assert!(matches!(fails(&target).await?, TargetError::Connect(_)));
    }
    let place = target.key().context("a remote target has a key")?.clone();
    assert_eq!(events.recv().await?, TargetEvent::Suspended(place.clone()));
    assert!(!target.calls_pass());
    let before = server.count(&Matching::path("/api"));
    assert!(matches!(fails(&target).await?, TargetError::Suspended { .. }));
    assert_eq!(server.count(&Matching::path("/api")), before, "the call was tried");

    server.wait_for(2, &Matching::path("/readyz"), Duration::from_secs(5)).await?;
    server.clear();
    server.always(Matching::any(), config_map());
    tokio::time::timeout(Duration::from_secs(5), target.healthy_again()).await?;
    assert_eq!(events.recv().await?, TargetEvent::Recovered(place));
    get(&target).await?;
    Ok(())
}

#[tokio::test]
async fn server_errors_of_one_api_do_not_suspend_a_target_whose_readyz_is_good() -> Result<()> {
    let server = Scripted::start().await?;
    server.always(Matching::path("/readyz"), Answer::raw("ok"));
    server.always(Matching::any(), Answer::failure(503, "ServiceUnavailable", "aggregated API is down"));
    let target = target(&targets(loopback()), server.access())?;
    for _ in 0..3 {
        assert!(matches!(fails(&target).await?, TargetError::Server { code: 503, .. }));
    }
    server.wait_for(1, &Matching::path("/readyz"), Duration::from_secs(5)).await?;
    for _ in 0..2 {
        assert!(matches!(fails(&target).await?, TargetError::Server { code: 503, .. }));
    }
    assert!(target.calls_pass());
    Ok(())
}

#[tokio::test]
async fn a_429_holds_later_calls_back_instead_of_sending_them() -> Result<()> {
    let server = Scripted::start().await?;
    server.always(Matching::any(), Answer::too_many_requests(9));
    let target = target(&targets(loopback()), server.access())?;
    assert_eq!(fails(&target).await?, TargetError::Throttled(Duration::from_secs(9)));
    let later = fails(&target).await?;
    assert!(matches!(later, TargetError::Throttled(pause) if pause > Duration::from_secs(7)), "{later:?}");
    assert_eq!(server.seen().len(), 1);
    Ok(())
}

#[tokio::test]
async fn the_user_agent_names_operator_replica_and_component() -> Result<()> {
    let server = Scripted::start().await?;
    server.always(Matching::any(), config_map());
    let target = target(&targets(loopback()), server.access())?;
    get(&target).await?;
    get(&target.acting_for("component-uid")).await?;
    let agents: Vec<_> = server.seen().into_iter().map(|request| request.user_agent).collect();
    assert_eq!(agents, ["tester/1.2.3 (replica-0)", "tester/1.2.3 (replica-0; component-uid)"]);
    Ok(())
}

#[tokio::test]
async fn calls_at_once_are_bounded() -> Result<()> {
    let server = Scripted::start().await?;
    server.always(Matching::any(), Answer::silence());
    let target = target(&targets(loopback()), server.access())?;
    let calls = (0..20).map(|_| fails(&target));
    let mut calls = futures::stream::iter(calls).buffer_unordered(20);
    let first = calls.next().await.context("a first call that ends")??;
    assert_eq!(first, TargetError::Deadline(CALL));
    assert_eq!(server.seen().len(), Limits::default().calls);
    Ok(())
}

#[tokio::test]
async fn a_silent_watch_ends_and_one_endless_event_too() -> Result<()> {
    let server = Scripted::start().await?;
    let bookmark = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"resourceVersion": "7"}}});
    server.next(1, Matching::any(), Answer::watch(&[bookmark]));
    server.next(1, Matching::any(), Answer::endless());
    let target = target(&targets(loopback()), server.access())?;
    let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
    let mut reasons = Vec::new();
    for _ in 0..2 {
        let stream = maps.watch(&WatchParams::default(), "0").await?;
        let events: Vec<_> = tokio::time::timeout(CALL * 5, stream.collect()).await?;
        let error = events.into_iter().find_map(Result::err).context("the stream should fail")?;
        reasons.push(classify(&error).reason());
    }
    assert_eq!(reasons, [Reason::TargetTimeout, Reason::TargetAnswerInvalid]);
    Ok(())
}

#[tokio::test]
async fn a_flood_of_events_is_read_no_faster_than_allowed_whatever_the_number_of_streams() -> Result<()> {
    const SIZE: usize = 512 * 1024;
    let server = Scripted::start().await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "x".repeat(SIZE)}});
    let line = format!("{}\n", json!({"type": "ADDED", "object": map}));
    server.always(Matching::any(), Answer::made(move |_| Some(line.clone().into())));
    let pace = WatchPace { burst: 2 * SIZE, per_second: 2 * SIZE };
    let limits = Limits { line: 2 * SIZE, line_weight: 2 * SIZE, watch_pace: pace, ..limits() };
    let targets = Targets::new(loopback(), limits, "tester/1.2.3", "replica-0", 8);
    let target = target(&targets, server.access())?;
    let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
    let params = WatchParams::default();
    let (one, other) = tokio::try_join!(maps.watch(&params, "0"), maps.watch(&params, "0"))?;
    let started = Instant::now();
    let events: Vec<_> = futures::stream::select(one.boxed(), other.boxed()).take(8).collect().await;
    assert!(events.iter().all(Result::is_ok), "{events:?}");
    // Of eight, two are the burst; what was on its way of each stream may come at once, too.
    assert!(started.elapsed() > Duration::from_secs(1), "{:?}", started.elapsed());
    Ok(())
}

#[tokio::test]
async fn the_cache_is_keyed_by_version_and_bounded() -> Result<()> {
    let server = Scripted::start().await?;
    server.always(Matching::any(), config_map());
    let targets = targets(loopback());
    let kubeconfig = server.access().kubeconfig();
    for _ in 0..3 {
        get(&targets.from_secret(&secret(kubeconfig.clone(), "1"), "config")?).await?;
    }
    assert_eq!(server.connections(), 1, "the same Secret shares its connection");
    let second = secret(kubeconfig.clone(), "2");
    get(&targets.from_secret(&second, "config")?).await?;
    assert_eq!(server.connections(), 2, "a changed Secret connects afresh");
    let uid = second.metadata.uid.clone().unwrap_or_default();
    let place = SecretKey {
        namespace: second.metadata.namespace.clone().unwrap_or_default(),
        name: second.metadata.name.clone().unwrap_or_default(),
        key: "config".to_owned(),
    };
    assert!(targets.held(&place, &uid, "2").is_some());
    assert!(targets.held(&place, &uid, "1").is_none(), "an older state of the Secret");
    assert!(targets.held(&place, "another", "2").is_none(), "another Secret of that name");
    assert_eq!(targets.len(), 1);
    for number in 0..20 {
        let mut other = secret(kubeconfig.clone(), "1");
        other.metadata.name = Some(format!("access-{number}"));
        targets.from_secret(&other, "config")?;
    }
    assert_eq!(targets.len(), 8);
    Ok(())
}

#[tokio::test]
async fn a_secret_that_became_useless_is_not_served_from_the_cache() -> Result<()> {
    let server = Scripted::start().await?;
    let targets = targets(loopback());
    targets.from_secret(&secret(server.access().kubeconfig(), "1"), "config")?;
    let broken = targets.from_secret(&secret("no kubeconfig".into(), "2"), "config").map(drop);
    assert!(matches!(broken, Err(TargetError::Kubeconfig(KubeconfigError::Syntax { .. }))));
    assert!(targets.is_empty());
    let missing = targets.from_secret(&secret(String::new(), "3"), "other").map(drop);
    assert!(matches!(missing, Err(TargetError::KeyMissing { .. })));
    Ok(())
}

#[tokio::test]
async fn certificates_and_keys_that_are_none_are_told_by_field() -> Result<()> {
    let server = Scripted::start().await?;
    let with = |key: &str, value: &str| {
        let line = |line: &str| match line.trim_start().split_once(": ") {
            Some((name, _)) if name == key => format!("    {key}: {value}"),
            _ => line.to_owned(),
        };
        server.access().kubeconfig().lines().map(line).collect::<Vec<_>>().join("\n")
    };
    let targets = targets(loopback());
    let no_authority = with("certificate-authority-data", "bm8gcGVt");
    let pair = "x\n    client-certificate-data: bm8gcGVt\n    client-key-data: bm8gcGVt";
    let no_certificate = with("token", pair);
    let rows = [
        (no_authority, "clusters[].cluster.certificate-authority-data"),
        (no_certificate, "users[].user.client-certificate-data"),
    ];
    for (kubeconfig, field) in rows {
        let error = targets.from_secret(&secret(kubeconfig, "1"), "config").map(drop).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
    Ok(())
}

/// Accepts one CONNECT, tunnels it, and returns its first line.
async fn proxy_once(listener: TcpListener) -> Result<String> {
    let (mut client, _) = listener.accept().await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let line = String::from_utf8(head)?.lines().next().unwrap_or_default().to_owned();
    let place = line.split(' ').nth(1).context("a place in the request")?;
    let mut server = TcpStream::connect(place).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    // Ends with the client's connection.
    copy_bidirectional(&mut client, &mut server).await.ok();
    Ok(line)
}

#[tokio::test]
async fn an_allowed_proxy_is_tunneled_through_and_judged_like_a_target() -> Result<()> {
    let server = Scripted::start().await?;
    server.always(Matching::any(), config_map());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let proxied = format!("    proxy-url: http://{address}\n    certificate-authority-data:");
    let kubeconfig = server.access().kubeconfig().replace("    certificate-authority-data:", &proxied);

    let guarded = AccessPolicy { allow_proxy: true, ..AccessPolicy::default() };
    let refused = targets(guarded).from_secret(&secret(kubeconfig.clone(), "1"), "config")?;
    let error = fails(&refused).await?;
    assert_eq!(error, TargetError::AddressRefused(AddressRefusal::Loopback));

    let proxy = tokio::spawn(proxy_once(listener));
    let allowed = targets(AccessPolicy { allow_proxy: true, ..loopback() });
    let target = allowed.from_secret(&secret(kubeconfig, "1"), "config")?;
    get(&target).await?;
    allowed.forget(target.key().context("a key")?);
    drop((target, allowed));
    let line = tokio::time::timeout(Duration::from_secs(5), proxy).await???;
    let place = server.access().url.replace("https://", "");
    assert_eq!(line, format!("CONNECT {place} HTTP/1.1"));
    Ok(())
}

#[tokio::test]
async fn a_list_page_within_the_limit_arrives_whole() -> Result<()> {
    let server = Scripted::start().await?;
    let items: Vec<_> = (0..300).map(|n| json!({"metadata": {"name": format!("m-{n}")}})).collect();
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": items});
    server.always(Matching::any(), Answer::json(&list));
    let target = target(&targets(loopback()), server.access())?;
    let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
    assert_eq!(maps.list(&ListParams::default()).await?.items.len(), 300);
    Ok(())
}
