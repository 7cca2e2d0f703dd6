//! Sources in networks that are not public: no connection is opened unless a flag names the host.

use kyma_api::{ErrorClass, Reason};
use kyma_artifacts::{
    ArtifactError, ChartSource, ChartVersions, Config, Credentials, ManifestsSource, RegistryBase,
};
use tokio::net::TcpListener;

use crate::{
    Client,
    server::{Reply, Server},
};

/// Counts connections to a port of this machine.
struct Listener {
    port: u16,
    opened: tokio::sync::mpsc::UnboundedReceiver<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Listener {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, opened) = tokio::sync::mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                let _ = sender.send(());
            }
        });
        Self { port, opened, task }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads all kinds of sources at a host, and returns the errors.
async fn read_all(client: &Client, host: &str) -> Vec<ArtifactError> {
    let (artifacts, anonymous) = (&client.artifacts, Credentials::anonymous());
    let url = |path: &str| format!("https://{host}/{path}").parse().unwrap();
    let mut errors = Vec::new();
    let document = ManifestsSource::Http { url: url("a.yaml"), digest: None };
    errors.extend(artifacts.manifests(&document, &anonymous).await.err());
    let repository = ChartSource::Repository {
        url: url("charts"),
        name: "demo".to_owned(),
        version: "1.0.0".to_owned(),
        digest: None,
    };
    errors.extend(artifacts.chart(&repository, &anonymous).await.err());
    let archive = ChartSource::Archive { url: url("demo.tgz"), digest: None };
    errors.extend(artifacts.chart(&archive, &anonymous).await.err());
    let versions = ChartVersions::Repository { url: url("charts"), name: "demo".to_owned() };
    errors.extend(artifacts.resolve(&versions, &"1.x".parse().unwrap(), &anonymous).await.err());
    let Ok(base) = host.parse::<RegistryBase>() else { return errors };
    errors.extend(artifacts.component(&base, "example.io/a", "1.0.0", &anonymous).await.err());
    let reference = format!("{host}/charts/demo:1.0.0").parse().unwrap();
    errors.extend(artifacts.chart(&ChartSource::Oci(reference), &anonymous).await.err());
    errors
}

#[tokio::test]
async fn no_source_at_an_internal_address_is_connected_to() {
    let mut listener = Listener::start().await;
    let port = listener.port;
    let hosts = [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("localhost.:{port}"),
        format!("127.1:{port}"),
        format!("2130706433:{port}"),
        format!("[::1]:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("0.0.0.0:{port}"),
        "169.254.169.254".to_owned(),
        "10.0.0.1:6443".to_owned(),
        "192.168.0.1".to_owned(),
        "[fd00:ec2::254]".to_owned(),
        "[fe80::1]".to_owned(),
    ];
    // The host with another port, and a host with a similar name.
    let client = Client::with(&[], |config: &mut Config| {
        config.private_hosts = vec!["127.0.0.1:1".to_owned(), "localhost:1".to_owned(), "*.1".to_owned()];
    });
    for host in hosts {
        let errors = read_all(&client, &host).await;
        assert!(errors.len() >= 4, "{host}");
        for error in errors {
            assert!(matches!(error, ArtifactError::AddressNotAllowed { .. }), "{host}: {error}");
            assert_eq!((error.reason(), error.class()), (Reason::SourceHostRefused, ErrorClass::Transient));
            assert!(error.to_string().contains("--oci-private-hosts"), "{error}");
        }
    }
    assert!(listener.opened.try_recv().is_err(), "a connection was opened");
}

#[tokio::test]
async fn a_named_host_may_be_on_this_machine() {
    let mut listener = Listener::start().await;
    let host = format!("localhost:{}", listener.port);
    let client = Client::with(&[], |config: &mut Config| {
        config.private_hosts = vec![host.clone()];
        config.deadlines.request = std::time::Duration::from_millis(300);
    });
    for error in read_all(&client, &host).await {
        assert!(matches!(error, ArtifactError::Unreachable { .. }), "{error}");
    }
    assert!(listener.opened.try_recv().is_ok());
}

#[tokio::test]
async fn redirect_or_index_entry_to_internal_address_is_not_followed() {
    let mut listener = Listener::start().await;
    let place = format!("https://localhost:{}/demo.tgz", listener.port);
    let (location, entry) = (place.clone(), place.clone());
    let server = Server::start(move |request| match request.path.as_str() {
        "/charts/index.yaml" => {
            Reply::ok(format!("entries: {{demo: [{{version: 1.0.0, urls: ['{entry}']}}]}}"))
        }
        _ => Reply::status(302).header("Location", location.clone()),
    })
    .await;
    // The host is allowed, but not as a private one.
    let client = Client::with(&[&server], |config| {
        config.allowed_hosts = vec![format!("localhost:{}", listener.port)];
    });
    let url = |path: &str| format!("http://{}/{path}", server.address()).parse().unwrap();
    let sources = [
        ChartSource::Archive { url: url("demo.tgz"), digest: None },
        ChartSource::Repository {
            url: url("charts"),
            name: "demo".to_owned(),
            version: "1.0.0".to_owned(),
            digest: None,
        },
    ];
    for source in sources {
        let error = client.artifacts.chart(&source, &Credentials::anonymous()).await.unwrap_err();
        assert!(matches!(error, ArtifactError::AddressNotAllowed { .. }), "{error}");
    }
    assert!(listener.opened.try_recv().is_err(), "a connection was opened");
}
