//! Certificates that are trusted.

use kyma_artifacts::{ArtifactError, Config, Credentials, ManifestsSource};
use testbed::{Answer, RequestMatcher, ScriptedServer};

use crate::{Client, component::MANIFEST};

#[tokio::test]
async fn a_private_authority_is_trusted_when_it_is_given() {
    let server = ScriptedServer::start().await.unwrap();
    server.always(RequestMatcher::any(), Answer::raw(MANIFEST));
    let source = ManifestsSource::Http {
        url: format!("{}/manifest.yaml", server.access().url).parse().unwrap(),
        digest: None,
    };
    let url: url::Url = server.access().url.parse().unwrap();
    let host = format!("127.0.0.1:{}", url.port().unwrap());
    let trusting = Client::with(&[], |config: &mut Config| {
        config.ca_pem = Some(server.access().ca.clone().into_bytes());
        config.private_hosts = vec![host.clone()];
    });
    let found = trusting.artifacts.manifests(&source, &Credentials::anonymous()).await.unwrap();
    assert_eq!(found.yaml, MANIFEST);
    let other = Client::with(&[], |config: &mut Config| config.private_hosts = vec![host]);
    let error = other.artifacts.manifests(&source, &Credentials::anonymous()).await.unwrap_err();
    assert!(
        matches!(&error, ArtifactError::Unreachable { cause, .. } if cause.contains("UnknownIssuer")),
        "{error}"
    );
}
