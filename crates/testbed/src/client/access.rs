//! Access to a cluster for one user, as a client and as a kubeconfig.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::AuthInfo;
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::certificates::Certificate;

/// Credentials of a user.
#[derive(Clone)]
pub enum Credentials {
    /// A client certificate.
    Certificate(Certificate),
    /// A bearer token.
    Token(String),
}

/// Access of one user to one cluster.
#[derive(Clone)]
pub struct Access {
    /// URL of the apiserver, `https://127.0.0.1:PORT`.
    pub url: String,
    /// Certificate of the authority that signed the apiserver's certificate, PEM.
    pub ca: String,
    /// The cluster's name in the kubeconfig.
    pub cluster: String,
    /// The user's name in the kubeconfig.
    pub user: String,
    /// Credential that the user sends to the API server.
    pub credentials: Credentials,
}

impl fmt::Debug for Access {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Access({} at {} {})", self.user, self.cluster, self.url)
    }
}

impl Access {
    /// Returns a new client. Each test creates its own: a client works only in the tokio runtime that created it.
    ///
    /// # Errors
    /// The authority or the credentials are not valid for TLS.
    pub fn client(&self) -> Result<Client> {
        Client::try_from(self.config()?).context("cannot make a client")
    }

    /// Returns the configuration of [`Self::client`], for a client with other deadlines or another user agent.
    ///
    /// # Errors
    /// The URL or the authority cannot be parsed.
    pub fn config(&self) -> Result<Config> {
        let mut config = Config::new(self.url.parse().context("the URL of the apiserver")?);
        config.root_cert = Some(certificates(&self.ca)?);
        // Includes the TLS handshake, for which a loaded machine needs seconds.
        config.connect_timeout = Some(Duration::from_secs(30));
        // A test needs the server's response, not the one after five minutes of retries.
        config.default_retry = false;
        config.auth_info = self.auth_info();
        Ok(config)
    }

    fn auth_info(&self) -> AuthInfo {
        let mut info = AuthInfo::default();
        match &self.credentials {
            Credentials::Certificate(pair) => {
                info.client_certificate_data = Some(STANDARD.encode(&pair.certificate));
                info.client_key_data = Some(STANDARD.encode(&pair.key).into());
            }
            Credentials::Token(token) => info.token = Some(token.clone().into()),
        }
        info
    }

    /// Returns the kubeconfig as YAML, with everything inline.
    pub fn kubeconfig(&self) -> String {
        let Self { url, ca, cluster, user, credentials } = self;
        let credentials = match credentials {
            Credentials::Certificate(pair) => format!(
                "    client-certificate-data: {}\n    client-key-data: {}\n",
                STANDARD.encode(&pair.certificate),
                STANDARD.encode(&pair.key)
            ),
            Credentials::Token(token) => format!("    token: {token}\n"),
        };
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {cluster}\n\
             clusters:\n- name: {cluster}\n  cluster:\n    server: {url}\n    certificate-authority-data: {ca}\n\
             users:\n- name: {user}\n  user:\n{credentials}\
             contexts:\n- name: {cluster}\n  context:\n    cluster: {cluster}\n    user: {user}\n",
            ca = STANDARD.encode(ca),
        )
    }

    /// Returns the same user at another address, such as a [`crate::ScriptedServer`] in front of the cluster.
    pub fn at(&self, url: impl Into<String>, ca: impl Into<String>) -> Self {
        Self { url: url.into(), ca: ca.into(), ..self.clone() }
    }
}

/// Returns the certificates of a PEM text as DER.
pub(crate) fn certificates(pem: &str) -> Result<Vec<Vec<u8>>> {
    let parsed = CertificateDer::pem_slice_iter(pem.as_bytes()).map(|one| one.map(|der| der.to_vec()));
    parsed.collect::<Result<_, _>>().context("the authority's certificate")
}
