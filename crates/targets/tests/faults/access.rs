//! Servers to which kubeconfigs lead, and certificates that they trust.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use kyma_api::{ErrorClass, Reason};
use kyma_targets::{AccessPolicy, AddressRefusal, ServiceAccount, Streams, TargetError, TlsFault, classify};
use testbed::{RequestMatcher, ScriptedServer, free_address};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::{LONG_TIMEOUT, config_map, fails, get, loopback, secret, target, targets};

#[tokio::test]
async fn refused_addresses_get_no_connection_at_all() -> Result<()> {
    let server = ScriptedServer::start().await?;
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
async fn a_certificate_of_another_authority_is_refused() -> Result<()> {
    let (server, other) = (ScriptedServer::start().await?, ScriptedServer::start().await?);
    let access = server.access().at(&server.access().url, &other.access().ca);
    let error = fails(&target(&targets(loopback()), &access)?).await?;
    let address = access.url.trim_start_matches("https://").to_owned();
    let cause = Box::new(TargetError::Tls(TlsFault::UnknownAuthority));
    assert_eq!(error, TargetError::Connection { address, cause });
    assert!(server.requests().is_empty(), "a request was sent to an untrusted server");
    Ok(())
}

#[tokio::test]
async fn places_where_nobody_answers_are_told_apart() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let closed = free_address()?;
    let at = |url: &str| server.access().at(url, &server.access().ca);
    let rows = [
        (at(&format!("https://{closed}")), TargetError::Connect("connection refused")),
        // RFC 6761 reserves this name, so it never exists.
        (at("https://absent.invalid:6443"), TargetError::NameNotFound),
    ];
    for (access, cause) in rows {
        let address = access.url.trim_start_matches("https://").to_owned();
        let message = format!("{cause} (server {address})");
        let expected = TargetError::Connection { address, cause: Box::new(cause) };
        let target = target(&targets(loopback()), &access)?;
        for _ in 0..3 {
            let error = fails(&target).await?;
            assert_eq!((&error, error.reason()), (&expected, Reason::TargetUnreachable));
            assert_eq!(error.to_string(), message);
        }
        let held = fails(&target).await?;
        assert!(matches!(held, TargetError::Suspended { .. }), "{held:?}");
        assert!(held.to_string().starts_with(&format!("{message};")), "{held}");
    }
    Ok(())
}

#[tokio::test]
async fn certificates_and_keys_that_are_none_are_told_by_field() -> Result<()> {
    let server = ScriptedServer::start().await?;
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

#[tokio::test]
async fn the_user_agent_names_operator_replica_and_component() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), config_map());
    let target = target(&targets(loopback()), server.access())?;
    get(&target).await?;
    read(target.acting_for("component-uid", None).client()).await?;
    let agents: Vec<_> = server.requests().into_iter().map(|request| request.user_agent).collect();
    assert_eq!(agents, ["tester/1.2.3 (replica-0)", "tester/1.2.3 (replica-0; component-uid)"]);
    Ok(())
}

async fn read(client: kube::Client) -> Result<()> {
    Api::<ConfigMap>::namespaced(client, "default").get("any").await?;
    Ok(())
}

#[tokio::test]
async fn component_calls_impersonate_and_shared_streams_only_read() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), config_map());
    let target = target(&targets(loopback()), server.access())?;
    let account = ServiceAccount::new("kyma-system", "installer").context("an account")?;
    let acting = target.acting_for("uid", Some(account));
    read(acting.client()).await?;
    let written = |client| async move {
        let maps = Api::<ConfigMap>::namespaced(client, "default");
        maps.delete("any", &DeleteParams::default()).await.map_err(|error| classify(&error))
    };
    written(acting.client()).await?;
    let streams = Streams::from(&acting);
    read(streams.client()).await?;
    assert_eq!(written(streams.client()).await.err(), Some(TargetError::Request));
    get(&target).await?;
    let users: Vec<_> =
        server.requests().into_iter().map(|request| (request.method, request.impersonated)).collect();
    let account = "system:serviceaccount:kyma-system:installer";
    let expected = [("GET", account), ("DELETE", account), ("GET", ""), ("GET", "")];
    assert_eq!(users, expected.map(|(method, user)| (method.to_owned(), user.to_owned())));
    assert_eq!(server.connections(), 1, "all of it through one connection");
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
async fn allowed_proxy_is_tunneled_through_and_checked_like_a_target() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), config_map());
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
    let line = tokio::time::timeout(LONG_TIMEOUT, proxy).await???;
    let place = server.access().url.replace("https://", "");
    assert_eq!(line, format!("CONNECT {place} HTTP/1.1"));
    Ok(())
}
