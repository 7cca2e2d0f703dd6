//! Two servers behind one address, as after a change of DNS, of a load balancer or of a virtual address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kyma_targets::{
    Claim, Fence, KymaId, Limits, STAMP_NAME, Stamp, Target, TargetError, TargetRecord, Targets, Verdict,
    classify,
};
use serde_json::json;
use testbed::{Access, Answer, RequestMatcher, ScriptedServer};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::{config_map, loopback, secret};

const CALL: Duration = Duration::from_secs(5);

/// An address that leads to one of two servers.
struct SwitchableAddress {
    address: SocketAddr,
    chosen: Arc<AtomicUsize>,
    breaks: watch::Sender<()>,
}

impl SwitchableAddress {
    /// Opens the address. Each connection goes to the server with the number that `choose` returns for the chosen
    /// server and the number of the connection.
    async fn open(servers: [&ScriptedServer; 2], choose: fn(usize, usize) -> usize) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut backends = vec![];
        for server in servers {
            backends.push(server.access().url.trim_start_matches("https://").parse::<SocketAddr>()?);
        }
        let (chosen, breaks) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(()));
        let (current, broken) = (Arc::clone(&chosen), breaks.subscribe());
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let backend = backends[choose(current.load(Ordering::Relaxed), connection) % 2];
                let mut broken = broken.clone();
                broken.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(backend).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut stream, &mut server) => {}
                        _ = broken.changed() => {}
                    }
                });
            }
        });
        Ok(Self { address, chosen, breaks })
    }

    /// Sends new connections to the second server; open ones are closed if `breaks`.
    fn switch(&self, breaks: bool) {
        self.chosen.store(1, Ordering::Relaxed);
        if breaks {
            self.breaks.send_replace(());
        }
    }

    /// Returns access for a user who trusts both servers.
    fn access(&self, servers: [&ScriptedServer; 2]) -> Access {
        let authorities = servers.map(|server| server.access().ca.clone()).concat();
        servers[0].access().at(format!("https://{}", self.address), &authorities)
    }
}

async fn server(uid: &str) -> Result<ScriptedServer> {
    server_with(uid, config_map()).await
}

/// Starts a server that gives this answer for every ConfigMap.
async fn server_with(uid: &str, map: Answer) -> Result<ScriptedServer> {
    let server = ScriptedServer::start().await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": uid}});
    server.always(RequestMatcher::path("/api/v1/namespaces/kube-system"), Answer::json(&namespace));
    for method in ["POST", "PATCH"] {
        server.always(RequestMatcher::path("/api/v1/namespaces/").method(method), map.clone());
    }
    server.always(RequestMatcher::path("/api/v1/namespaces/default/configmaps").method("GET"), map);
    Ok(server)
}

fn target(access: &Access) -> Result<Target> {
    let limits = Limits { connect: CALL, call: CALL, ..Limits::default() };
    let targets = Targets::new(loopback(), limits, "tester/1.2.3", "replica-0", 8);
    Ok(targets.from_secret(&secret(access.kubeconfig(), "1"), "config")?)
}

fn claim() -> Claim {
    Claim {
        hub_uid: "hub".to_owned(),
        kyma: Some(KymaId { namespace: "n".to_owned(), name: "k".to_owned(), uid: "u".to_owned() }),
        operator: "tester".to_owned(),
        version: "1.2.3".to_owned(),
    }
}

fn fence() -> Fence {
    let recorded = TargetRecord { target_uid: Some("first".to_owned()), epoch: 1, fencing_generation: None };
    Fence { claim: claim(), recorded, ledger: None }
}

/// Makes a create and an apply, and returns their errors.
async fn write(client: kube::Client) -> Vec<TargetError> {
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("any".to_owned());
    let created = maps.create(&PostParams::default(), &map).await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "any"}});
    let applied = maps.patch("any", &PatchParams::apply("tester"), &Patch::Apply(&body)).await;
    [created, applied].into_iter().filter_map(Result::err).map(|error| classify(&error)).collect()
}

fn writes(server: &ScriptedServer) -> usize {
    server.requests().iter().filter(|request| !["GET", "HEAD"].contains(&request.method.as_str())).count()
}

async fn nothing_is_written_after_a_switch(breaks: bool) -> Result<()> {
    let (first, second) = (server("first").await?, server("second").await?);
    let servers = [&first, &second];
    let proxy = SwitchableAddress::open(servers, |chosen, _| chosen).await?;
    let target = target(&proxy.access(servers))?;
    let found = target.identify().await?;
    ensure!(found.target_uid == "first");
    let fenced = target.fenced(fence());
    let errors = write(fenced.client()).await;
    ensure!(errors.is_empty() && writes(&first) == 2, "{errors:?}");

    proxy.switch(breaks);
    let clients = (0..8).flat_map(|_| [fenced.client(), target.client()]).map(write);
    join_all(clients).await;
    let stamp = Stamp { hub_uid: "hub".to_owned(), ..Stamp::default() };
    target.put_stamp(&stamp, &found).await.ok();
    assert_eq!(writes(&second), 0, "{:?}", second.requests());
    if breaks {
        let refused = write(fenced.client()).await;
        let changed = |error: &TargetError| matches!(error, TargetError::Refused(verdict) if matches!(**verdict, Verdict::TargetChanged { .. }));
        ensure!(refused.len() == 2 && refused.iter().all(changed), "{refused:?}");
        assert_eq!(writes(&second), 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_write_goes_to_no_server_whose_identity_was_not_verified() -> Result<()> {
    nothing_is_written_after_a_switch(true).await
}

#[tokio::test]
async fn a_write_on_a_new_connection_goes_to_no_other_server() -> Result<()> {
    nothing_is_written_after_a_switch(false).await
}

#[tokio::test]
async fn bursts_of_calls_keep_their_connections() -> Result<()> {
    let server = server("first").await?;
    let target = target(server.access())?;
    let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
    for _ in 0..20 {
        let reads = join_all((0..8).map(|_| maps.get("any"))).await;
        ensure!(reads.iter().all(Result::is_ok));
    }
    let connections = server.connections();
    assert!(connections <= 16, "{connections} connections for 20 bursts of 8 calls");
    Ok(())
}

#[tokio::test]
async fn servers_with_own_certificates_cause_bounded_identifications() -> Result<()> {
    let closing = || config_map().header("connection", "close");
    let (first, second) = (server_with("first", closing()).await?, server_with("first", closing()).await?);
    let servers = [&first, &second];
    let proxy = SwitchableAddress::open(servers, |_, connection| connection).await?;
    let target = target(&proxy.access(servers))?;
    let fenced = target.fenced(fence());
    let started = Instant::now();
    for _ in 0..20 {
        let maps = Api::<ConfigMap>::namespaced(target.client(), "default");
        let reads = join_all((0..8).map(|_| maps.get("any"))).await;
        ensure!(reads.iter().all(Result::is_ok));
        target.identify().await?;
        ensure!(write(fenced.client()).await.is_empty());
    }
    let stamp = RequestMatcher::path("/api/v1/namespaces/kyma-system/configmaps/").method("GET");
    let looks: usize = servers.iter().map(|server| server.count(&stamp)).sum();
    let connections: usize = servers.iter().map(|server| server.connections()).sum();
    assert!(connections > 40, "{connections} connections do not show much");
    assert!(servers.iter().all(|server| server.connections() > 10), "both servers are used");
    // Reads happen at the first contact, at the second certificate, and for writes whose last read is 2 s old.
    let allowed = 6 + usize::try_from(started.elapsed().as_secs())? / 2;
    assert!(looks <= allowed, "{looks} looks over {connections} connections, {STAMP_NAME}");
    Ok(())
}
