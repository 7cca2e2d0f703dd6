//! HTTP clients that are rebuilt when the CA file changes.

use std::{path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use reqwest::{Client, Url};
use tokio::time::Instant;

use super::addresses::{NetworkScope, Resolver};
use super::certificates;
use super::failure::{cause, settings};
use super::hosts::{authority, covers, normalized};
use crate::config::Config;
use crate::error::ArtifactError;

/// Minimum time between two reads of the CA file.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// HTTP clients that trust the authorities in the CA file.
pub(super) struct Clients {
    config: Config,
    current: Mutex<CachedClients>,
}

struct CachedClients {
    pair: ClientPair,
    /// Content of the file at its last read, valid or not.
    read: Option<Vec<u8>>,
    checked: Instant,
}

/// One client for hosts in public networks and one for hosts that a flag names.
#[derive(Clone)]
pub(super) struct ClientPair {
    public: Client,
    private: Client,
}

impl ClientPair {
    fn new(config: &Config, ca_pem: Option<&[u8]>) -> Result<Self, ArtifactError> {
        let client = |scope| build(config, ca_pem, scope);
        Ok(Self { public: client(NetworkScope::Public)?, private: client(NetworkScope::Private)? })
    }

    /// Returns the client for hosts of a scope.
    pub(super) fn client_for(&self, scope: NetworkScope) -> &Client {
        match scope {
            NetworkScope::Public => &self.public,
            NetworkScope::Private => &self.private,
        }
    }
}

impl Clients {
    pub(super) fn new(config: &Config) -> Result<Self, ArtifactError> {
        let pair = ClientPair::new(config, config.ca_pem.as_deref())?;
        let current = CachedClients { pair, read: config.ca_pem.clone(), checked: Instant::now() };
        Ok(Self { config: config.clone(), current: Mutex::new(current) })
    }

    /// Returns the current clients. Reads the CA file again after [`FILE_CHECK_INTERVAL`].
    pub(super) async fn get(&self) -> ClientPair {
        if let Some(file) = self.file_to_check() {
            let content = tokio::task::spawn_blocking(move || std::fs::read(file)).await;
            if let Ok(Ok(content)) = content {
                self.reload(content);
            } else {
                tracing::warn!(
                    "cannot read the file with certificates; the previous certificates stay in use"
                );
            }
        }
        self.current.lock().pair.clone()
    }

    fn file_to_check(&self) -> Option<PathBuf> {
        let file = self.config.ca_file.as_ref()?;
        let mut current = self.current.lock();
        let is_due = current.checked.elapsed() >= FILE_CHECK_INTERVAL;
        if is_due {
            current.checked = Instant::now();
        }
        is_due.then(|| file.clone())
    }

    /// Keeps the previous clients if the content is invalid: the file may be partially written.
    fn reload(&self, content: Vec<u8>) {
        if self.current.lock().read.as_ref() == Some(&content) {
            return;
        }
        let made = ClientPair::new(&self.config, Some(&content));
        let mut current = self.current.lock();
        current.read = Some(content);
        match made {
            Ok(pair) => {
                tracing::info!("the file with certificates has changed and is in use");
                current.pair = pair;
            }
            Err(error) => tracing::warn!(%error, "the file with certificates has changed and cannot be used"),
        }
    }
}

fn build(config: &Config, ca_pem: Option<&[u8]>, scope: NetworkScope) -> Result<Client, ArtifactError> {
    let proxy = config.proxy.as_ref();
    let resolver = Resolver { scope, proxy: proxy.and_then(|proxy| proxy.host_str().map(str::to_owned)) };
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .user_agent(&config.user_agent)
        .dns_resolver(Arc::new(resolver))
        .connect_timeout(config.deadlines.connect)
        .timeout(config.deadlines.request)
        .pool_max_idle_per_host(8)
        .tls_backend_preconfigured(certificates::client_config(ca_pem)?);
    if let Some(proxy) = proxy {
        builder = builder.proxy(proxied(proxy, &config.proxy_except)?);
    }
    builder.build().map_err(|error| settings("client", &cause(&error)))
}

/// Returns the proxy for all hosts that `no_proxy` does not cover.
fn proxied(proxy: &Url, except: &[String]) -> Result<reqwest::Proxy, ArtifactError> {
    let plain = proxy.username().is_empty() && proxy.password().is_none() && proxy.path() == "/";
    if !matches!(proxy.scheme(), "http" | "https") || proxy.host_str().is_none() || !plain {
        return Err(settings(
            "proxy",
            "http://host:port or https://host:port is expected, without credentials",
        ));
    }
    let (proxy, except) = (proxy.clone(), normalized(except));
    Ok(reqwest::Proxy::custom(move |to| {
        let target = authority(to);
        (!except.iter().any(|pattern| covers(pattern, &target))).then(|| proxy.clone())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority_pem() -> String {
        let params = rcgen::CertificateParams::new(vec!["registry.example".to_owned()]).unwrap();
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_used_and_an_unusable_one_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut config = Config::new("unused");
        let first = authority_pem();
        config.ca_pem = Some(first.clone().into_bytes());
        config.ca_file = Some(file.path().to_owned());
        std::fs::write(file.path(), &first).unwrap();
        let clients = Clients::new(&config).unwrap();
        let read = || clients.current.lock().read.clone().unwrap();
        let second = authority_pem();
        std::fs::write(file.path(), &second).unwrap();
        clients.get().await;
        assert_eq!(read(), first.as_bytes(), "it was read a moment ago");
        tokio::time::advance(FILE_CHECK_INTERVAL).await;
        clients.get().await;
        assert_eq!(read(), second.as_bytes());
        std::fs::write(file.path(), "-----BEGIN CERTIFICATE-----\nxx").unwrap();
        tokio::time::advance(FILE_CHECK_INTERVAL).await;
        clients.get().await;
        std::fs::remove_file(file.path()).unwrap();
        tokio::time::advance(FILE_CHECK_INTERVAL).await;
        clients.get().await;
    }
}
