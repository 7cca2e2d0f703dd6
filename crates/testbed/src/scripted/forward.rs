//! Passes requests on to the cluster behind the server.

use std::io;
use std::sync::Arc;

use anyhow::{Context, Result};
use http::header::{AUTHORIZATION, HOST};
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::answer::Body;
use crate::client::access::{Access, Credentials, certificates};

type Http = Client<HttpsConnector<HttpConnector>, Body>;

/// The cluster behind a scripted server. Requests with a token keep it; all others are made as the administrator,
/// since a client certificate cannot be passed on through TLS.
pub(crate) struct Upstream {
    url: String,
    administrator: Http,
    anonymous: Http,
}

impl Upstream {
    pub(crate) fn new(administrator: &Access) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&administrator.ca)? {
            roots.add(certificate.into())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots);
        let anonymous = config.clone().with_no_client_auth();
        let known = match &administrator.credentials {
            Credentials::Token(_) => anonymous.clone(),
            Credentials::Certificate(pair) => {
                let chain = certificates(&pair.certificate)?.into_iter().map(Into::into).collect();
                let key =
                    PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).context("the administrator's key")?;
                config.with_client_auth_cert(chain, key)?
            }
        };
        let url = administrator.url.clone();
        Ok(Self { url, administrator: client(known), anonymous: client(anonymous) })
    }

    pub(super) async fn forward(&self, mut request: Request<Body>) -> io::Result<Response<Body>> {
        let place = request.uri().path_and_query().map_or("/", |place| place.as_str());
        *request.uri_mut() = format!("{}{place}", self.url).parse::<Uri>().map_err(io::Error::other)?;
        request.headers_mut().remove(HOST);
        let has_token = request.headers().contains_key(AUTHORIZATION);
        let client = if has_token { &self.anonymous } else { &self.administrator };
        let response = client.request(request).await.map_err(io::Error::other)?;
        Ok(response.map(|body| body.map_err(io::Error::other).boxed_unsync()))
    }
}

fn client(config: ClientConfig) -> Http {
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
    Client::builder(TokioExecutor::new()).build(connector)
}
