//! Token services at addresses to which a registry must not send clients: of a node, of a cloud, of a private
//! network.

use kyma_api::Reason;
use kyma_artifacts::{ArtifactError, Config, Credentials};

use crate::{
    Client,
    server::{ReceivedRequest, Reply, Server},
};

const REGISTRY: &str = "registry.example";
/// Loopback, link-local (with the metadata services of clouds), private and shared addresses, as numbers in every
/// notation and as names.
const INTERNAL: [&str; 23] = [
    "127.0.0.1",
    "127.0.0.1:10250",
    "127.1",
    "2130706433",
    "0x7f.0.0.1",
    "0.0.0.0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "localhost",
    "localhost.",
    "169.254.169.254",
    "[::ffff:169.254.169.254]",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "metadata.google.internal",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "kubernetes.default.svc",
    "registry.example:8443",
    "registry.example@169.254.169.254",
];

/// Starts a proxy for every request of the client; behind it is a registry that names this realm.
async fn behind_a_proxy(realm: String) -> Server {
    Server::start(move |request: &ReceivedRequest| {
        if request.path.contains("/token") {
            return Reply::ok(r#"{"token":"opensesame"}"#);
        }
        Reply::status(401).header("WWW-Authenticate", format!(r#"Bearer realm="{realm}",service="s""#))
    })
    .await
}

/// Returns a client that may use plain HTTP for all hosts here, so that a realm can be refused only for its host.
fn client(proxy: &Server, allowed: &[&str]) -> Client {
    Client::with(&[], |config: &mut Config| {
        config.proxy = Some(format!("http://{}", proxy.address()).parse().unwrap());
        config.insecure_hosts = INTERNAL.iter().chain(&[REGISTRY]).map(|host| written_out(host)).collect();
        config.allowed_hosts = allowed.iter().map(|host| (*host).to_owned()).collect();
    })
}

/// Returns the host as URLs normalize it, which unifies all notations of numbers.
fn written_out(host: &str) -> String {
    let url: url::Url = format!("http://{host}").parse().unwrap();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap())
}

/// Returns no credentials, a password, and a token that is exchanged by POST.
fn credentials() -> [Credentials; 3] {
    let json = format!(r#"{{"auths":{{"{REGISTRY}":{{"identitytoken":"idtoken"}}}}}}"#);
    [
        Credentials::anonymous(),
        Credentials::basic(REGISTRY, "alice", "hunter2"),
        Credentials::from_docker_config(json.as_bytes()).unwrap(),
    ]
}

#[tokio::test]
async fn a_token_service_at_an_internal_address_is_never_asked() {
    for host in INTERNAL {
        for realm in [format!("http://{host}/token"), format!("https://{host}/token")] {
            let proxy = behind_a_proxy(realm.clone()).await;
            let client = client(&proxy, &[]);
            for credentials in credentials() {
                let error = client.component_at(REGISTRY, &credentials).await.unwrap_err();
                assert!(matches!(error, ArtifactError::RealmNotAllowed { .. }), "{realm}: {error}");
                assert_eq!(error.reason(), Reason::SourceHostRefused);
            }
            all_for_the_registry(&proxy, &realm);
            assert!(proxy.requests().iter().all(|request| request.authorization.is_none()), "{realm}");
        }
    }
}

/// Shows that the proxy of the other tests would see a request.
#[tokio::test]
async fn one_that_the_operator_allows_is_asked() {
    let proxy = behind_a_proxy("http://169.254.169.254/token".to_owned()).await;
    let client = client(&proxy, &["169.254.169.254"]);
    client.component_at(REGISTRY, &Credentials::anonymous()).await.unwrap_err();
    assert_eq!(proxy.count("GET http://169.254.169.254/token"), 1, "{:?}", proxy.requests());
}

#[tokio::test]
async fn token_service_redirect_to_internal_address_is_not_followed() {
    for host in INTERNAL {
        let location = format!("http://{host}/latest");
        let proxy = Server::start(move |request| {
            if request.path.contains("/token") {
                return Reply::status(307).header("Location", location.clone());
            }
            let realm = format!(r#"Bearer realm="http://{REGISTRY}/token",service="s""#);
            Reply::status(401).header("WWW-Authenticate", realm)
        })
        .await;
        let client = client(&proxy, &[]);
        for credentials in credentials() {
            let error = client.component_at(REGISTRY, &credentials).await.unwrap_err();
            assert!(matches!(error, ArtifactError::RedirectNotAllowed { .. }), "{host}: {error}");
            assert_eq!(error.reason(), Reason::SourceHostRefused);
        }
        all_for_the_registry(&proxy, host);
    }
}

fn all_for_the_registry(proxy: &Server, realm: &str) {
    let requests = proxy.requests();
    let home = format!("http://{REGISTRY}/");
    assert!(
        !requests.is_empty() && requests.iter().all(|request| request.path.starts_with(&home)),
        "{realm}: {requests:?}"
    );
}

/// Without a proxy, to a port with a listener.
#[tokio::test]
async fn a_name_and_a_number_of_this_machine_lead_nowhere() {
    let thief = Server::start(|_| Reply::ok(r#"{"token":"x"}"#)).await;
    let port = thief.address().rsplit(':').next().unwrap().to_owned();
    for host in ["localhost", "127.0.0.1", "127.1", "2130706433", "0.0.0.0", "[::ffff:127.0.0.1]"] {
        let place = written_out(&format!("{host}:{port}"));
        let realm = format!(r#"Bearer realm="http://{host}:{port}/token",service="s""#);
        let server =
            Server::start(move |_| Reply::status(401).header("WWW-Authenticate", realm.clone())).await;
        let client = Client::with(&[&server], |config| config.insecure_hosts.push(place));
        for credentials in
            [Credentials::anonymous(), Credentials::basic(server.address(), "alice", "hunter2")]
        {
            let error = client.component(&server, &credentials).await.unwrap_err();
            assert_eq!(error.reason(), Reason::SourceHostRefused, "{host}: {error}");
        }
    }
    assert!(thief.requests().is_empty(), "{:?}", thief.requests());
}
