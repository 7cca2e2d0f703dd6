//! Connections to sources: TLS with a private authority, and a proxy.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::routing::get;
use kyma_artifacts::{ArtifactError, Artifacts, ChartSource, Config, Credentials};
use parking_lot::Mutex;
use testbed::TlsProxy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::Setup;
use crate::charts::{helm, packaged};

/// A proxy that opens tunnels and records their destinations.
struct Proxy {
    address: String,
    opened: Arc<Mutex<Vec<String>>>,
    server: JoinHandle<()>,
}

impl Proxy {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let opened = Arc::new(Mutex::new(vec![]));
        let seen = Arc::clone(&opened);
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                tokio::spawn(async move { tunnel(client, &seen).await.ok() });
            }
        });
        Ok(Self { address, opened, server })
    }

    fn opened(&self) -> Vec<String> {
        self.opened.lock().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn tunnel(mut client: TcpStream, seen: &Mutex<Vec<String>>) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let place = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).context("a CONNECT")?;
    seen.lock().push(place.to_owned());
    let mut server = TcpStream::connect(place).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// Returns a client with an empty cache that trusts these authorities and uses the proxy, except for `except`.
fn client(proxies: &[&TlsProxy], proxy: Option<&Proxy>, except: &[&str]) -> (Artifacts, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::new(directory.path());
    let authorities: String = proxies.iter().map(|proxy| proxy.authority()).collect();
    config.private_hosts = vec!["*".to_owned()];
    config.ca_pem = (!authorities.is_empty()).then(|| authorities.into_bytes());
    config.proxy = proxy.map(|proxy| format!("http://{}", proxy.address).parse().unwrap());
    config.proxy_except = except.iter().map(|host| (*host).to_owned()).collect();
    (Artifacts::open(&config).unwrap(), directory)
}

#[tokio::test]
async fn registry_and_repository_with_private_ca_work_through_a_proxy() -> Result<()> {
    let setup = Setup::new().await;
    let directory = setup.directory.path();
    let archive = packaged(directory, "1.0.0");
    let remote = format!("oci://{}/charts", setup.registry.address());
    helm(directory, &["push", archive.to_str().context("a path")?, &remote, "--plain-http"]);
    helm(directory, &["repo", "index", "."]);
    let (index, content) = (std::fs::read(directory.join("index.yaml"))?, std::fs::read(&archive)?);
    let files = Router::new()
        .route("/index.yaml", get(move || async move { index }))
        .route("/demo-1.0.0.tgz", get(move || async move { content }));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let file_server = TlsProxy::start(&listener.local_addr()?.to_string()).await?;
    let server = tokio::spawn(async move { axum::serve(listener, files).await });
    let registry = setup.registry.behind_tls().await?;
    let proxy = Proxy::start().await?;

    let oci = ChartSource::Oci(format!("{}/charts/demo:1.0.0", registry.address()).parse()?);
    let http = ChartSource::Repository {
        url: format!("https://{}", file_server.address()).parse()?,
        name: "demo".to_owned(),
        version: "1.0.0".to_owned(),
        digest: None,
    };
    let anonymous = Credentials::anonymous();
    let (artifacts, _cache) = client(&[&registry, &file_server], Some(&proxy), &[]);
    for (source, place) in [(&oci, registry.address()), (&http, file_server.address())] {
        let chart = artifacts.chart(source, &anonymous).await?;
        assert_eq!(chart.metadata.name, "demo");
        assert!(proxy.opened().iter().any(|opened| opened == place), "{place}: {:?}", proxy.opened());
    }
    assert!(
        proxy
            .opened()
            .iter()
            .all(|opened| [registry.address(), file_server.address()].contains(&opened.as_str()))
    );

    let before = proxy.opened().len();
    let (artifacts, _cache) = client(&[&registry, &file_server], Some(&proxy), &[registry.address()]);
    artifacts.chart(&oci, &anonymous).await?;
    assert_eq!(proxy.opened().len(), before, "an excepted host is reached directly");
    artifacts.chart(&http, &anonymous).await?;
    assert!(proxy.opened().len() > before, "and no other one");

    let (artifacts, _cache) = client(&[&file_server], Some(&proxy), &[]);
    let error = artifacts.chart(&oci, &anonymous).await.unwrap_err();
    // The authorities share one name, so only the signature distinguishes them.
    let untrusted = matches!(&error, ArtifactError::Unreachable { cause, .. }
        if cause.contains("UnknownIssuer") || cause.contains("BadSignature"));
    assert!(untrusted, "{error}");
    server.abort();
    Ok(())
}

#[test]
fn unsupported_proxy_url_is_refused_without_showing_credentials() {
    for proxy in [
        "http://me:hunter2@proxy.example.org:3128",
        "socks5://proxy.example.org",
        "http://proxy.example.org/a",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::new(directory.path());
        config.proxy = Some(proxy.parse().unwrap());
        let error = Artifacts::open(&config).unwrap_err().to_string();
        assert!(error.contains("proxy") && !error.contains("hunter2"), "{error}");
    }
}
