//! A running cluster.

use std::future::{Future, IntoFuture};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::builder::ClusterBuilder;
use crate::certificates::{Authority, Validity};
use crate::client::access::{Access, Credentials};
use crate::client::audit::Audit;
use crate::server::apiserver::{ApiServer, Files};
use crate::server::etcd::{Etcd, EtcdDump};
use crate::server::infrastructure::Infrastructure;
use crate::server::workloads::Workloads;
use crate::test_env::TestEnv;

/// Validity of `ServiceAccount` tokens, longer than every test and demo.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// A running control plane. Clones are handles to the same one; it ends with the last handle. If a test panics, the
/// dropped handle prints the end of each log.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<ClusterInner>,
}

impl IntoFuture for ClusterBuilder {
    type Output = Result<Cluster>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(Cluster::start(self))
    }
}

/// Fields are dropped in order: clients of the apiserver before it, and the apiserver before its etcd.
struct ClusterInner {
    _infrastructure: Option<Infrastructure>,
    workloads: Workloads,
    apiserver: ApiServer,
    own_etcd: Option<Etcd>,
    own_authority: Option<Authority>,
    audited: bool,
    namespaces: AtomicU32,
    logs_shown: AtomicBool,
    name: String,
    test_env: TestEnv,
}

impl Cluster {
    async fn start(builder: ClusterBuilder) -> Result<Self> {
        let test_env = builder.test_env.clone();
        claim(&test_env, &builder.name)?;
        let started = Self::start_claimed(&builder).await;
        if started.is_err() {
            test_env.inner.names.lock().remove(&builder.name);
        }
        started
    }

    async fn start_claimed(builder: &ClusterBuilder) -> Result<Self> {
        let test_env = builder.test_env.clone();
        let own_authority = builder.own_authority.then(|| Authority::new(&builder.name)).transpose()?;
        let authority = own_authority.as_ref().unwrap_or(&test_env.inner.authority);
        let files = Files::of(builder);
        files.clear()?;
        let own_etcd = if builder.own_etcd { Some(start_etcd(&builder.name, &files).await?) } else { None };
        if let (Some(etcd), Some(dump)) = (&own_etcd, &builder.etcd_dump) {
            dump.restore(etcd.url()).await.context("cannot restore the dump")?;
        }
        let apiserver = {
            let _turn = test_env.inner.starts.acquire().await?;
            let etcd = own_etcd.as_ref().unwrap_or(&test_env.inner.etcd);
            ApiServer::start(builder, authority, files, etcd).await?
        };
        let workloads = Workloads::start(builder, &apiserver).await?;
        let infrastructure =
            (builder.nodes > 0).then(|| Infrastructure::start(apiserver.admin.clone())).transpose()?;
        let inner = ClusterInner {
            _infrastructure: infrastructure,
            workloads,
            apiserver,
            own_etcd,
            own_authority,
            audited: builder.audit,
            namespaces: AtomicU32::new(0),
            logs_shown: AtomicBool::new(false),
            name: builder.name.clone(),
            test_env,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the name with which the cluster was started.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the URL of the apiserver, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.admin().url
    }

    /// Returns the certificate of the authority that signed the apiserver's, as PEM.
    pub fn ca(&self) -> &str {
        &self.admin().ca
    }

    /// Returns the test environment of the cluster.
    pub fn test_env(&self) -> &TestEnv {
        &self.inner.test_env
    }

    /// Returns the access of the administrator (group `system:masters`).
    pub fn admin(&self) -> &Access {
        &self.inner.apiserver.admin
    }

    /// Returns a new client of the administrator; see [`Access::client`].
    ///
    /// # Errors
    /// As for [`Access::client`].
    pub fn client(&self) -> Result<Client> {
        self.admin().client()
    }

    /// Returns the administrator's kubeconfig as YAML.
    pub fn kubeconfig(&self) -> String {
        self.admin().kubeconfig()
    }

    /// Returns access for a user with a client certificate, who has the RBAC rights of `name` and `group`.
    ///
    /// # Errors
    /// The certificate cannot be created.
    pub fn certificate_user(&self, name: &str, group: Option<&str>, validity: Validity) -> Result<Access> {
        let authority = self.inner.own_authority.as_ref().unwrap_or(&self.inner.test_env.inner.authority);
        let certificate = authority.user(name, group, validity)?;
        let credentials = Credentials::Certificate(certificate);
        Ok(Access { user: name.to_owned(), credentials, ..self.admin().clone() })
    }

    /// Returns access for a `ServiceAccount` with a token for 24 hours; creates namespace and account if they are
    /// missing.
    ///
    /// # Errors
    /// The apiserver refuses a request or does not respond.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Access> {
        self.service_account_for(namespace, name, TOKEN_SECONDS).await
    }

    /// Does the same as [`Self::service_account`], with a token for `seconds`, at least 600.
    ///
    /// # Errors
    /// As for [`Self::service_account`].
    pub async fn service_account_for(&self, namespace: &str, name: &str, seconds: i64) -> Result<Access> {
        let client = self.client()?;
        let meta = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let space = Namespace { metadata: meta(namespace), ..Namespace::default() };
        create_where_absent(&Api::all(client.clone()), &space).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        let account = ServiceAccount { metadata: meta(name), ..ServiceAccount::default() };
        create_where_absent(&accounts, &account).await?;
        let spec = TokenRequestSpec { expiration_seconds: Some(seconds), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        let token = answer.status.context("the apiserver gave no token")?.token;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        Ok(Access { user, credentials: Credentials::Token(token), ..self.admin().clone() })
    }

    /// Returns the kubeconfig of [`Self::service_account`].
    ///
    /// # Errors
    /// As for [`Self::service_account`].
    pub async fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> Result<String> {
        Ok(self.service_account(namespace, name).await?.kubeconfig())
    }

    /// Creates a namespace `<prefix>-<number>` that no other test of this process has.
    ///
    /// # Errors
    /// The apiserver refuses the request or does not respond.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let number = self.inner.namespaces.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("{prefix}-{number}");
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        Api::<Namespace>::all(self.client()?).create(&PostParams::default(), &namespace).await?;
        Ok(name)
    }

    /// Returns the audit log of a cluster that was started with [`ClusterBuilder::with_audit`].
    ///
    /// # Errors
    /// The cluster was started without an audit log.
    pub fn audit(&self) -> Result<Audit> {
        if !self.inner.audited {
            bail!("{} was started without `with_audit()`", self.name());
        }
        Ok(Audit::of(self.inner.apiserver.files.path("audit.log")))
    }

    /// Kills the apiserver: connections are refused until [`Self::start_again`].
    pub fn stop(&self) {
        self.inner.apiserver.stop();
    }

    /// Starts the apiserver again, at the same URL with the same data.
    ///
    /// # Errors
    /// The apiserver does not start.
    pub async fn start_again(&self) -> Result<()> {
        self.inner.apiserver.start_again().await
    }

    /// Saves the state of the cluster under a name, for a cluster started with [`ClusterBuilder::with_own_etcd`].
    ///
    /// # Errors
    /// The cluster was started without its own etcd, or the files cannot be written.
    pub fn save(&self, name: &str) -> Result<()> {
        self.own_etcd()?.save(&self.saved(name))
    }

    /// Restores the state that was saved under this name, as from a backup of its etcd, with its earlier
    /// resourceVersions. The apiserver is killed and started again at the same URL, and so are the controllers.
    ///
    /// # Errors
    /// There is no such state, or the cluster does not start.
    pub async fn restore(&self, name: &str) -> Result<()> {
        self.restore_from(&self.saved(name)).await
    }

    /// Restores the state that another cluster saved under this name: the same objects with the same uids and
    /// resourceVersions, at this cluster's URL and for this cluster's users.
    ///
    /// # Errors
    /// As for [`Self::restore`].
    pub async fn become_copy_of(&self, other: &Self, name: &str) -> Result<()> {
        self.restore_from(&other.saved(name)).await
    }

    /// Reads the keys of the cluster's etcd for which `keeps` holds, such as `/registry/configmaps/NAMESPACE/NAME`.
    ///
    /// # Errors
    /// The cluster was started without its own etcd, or etcd does not respond.
    pub async fn dump_etcd(&self, keeps: impl Fn(&str) -> bool) -> Result<EtcdDump> {
        EtcdDump::read(self.own_etcd()?.url(), keeps).await
    }

    async fn restore_from(&self, place: &Path) -> Result<()> {
        self.stop();
        self.own_etcd()?.restore(place).await?;
        self.start_again().await?;
        // Otherwise the nodes would wait until the restored leases expire.
        let leases: Api<Lease> = Api::namespaced(self.client()?, "kube-node-lease");
        leases.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        self.inner.workloads.start_again()
    }

    fn own_etcd(&self) -> Result<&Etcd> {
        let etcd = self.inner.own_etcd.as_ref();
        etcd.with_context(|| format!("{} was started without `with_own_etcd()`", self.name()))
    }

    fn saved(&self, name: &str) -> PathBuf {
        self.inner.apiserver.files.path(&format!("saved-{name}"))
    }

    /// Freezes the apiserver: it accepts connections and sends no responses until [`Self::thaw`].
    ///
    /// # Errors
    /// The apiserver is stopped.
    pub fn freeze(&self) -> Result<()> {
        self.inner.apiserver.freeze()
    }

    /// Continues the apiserver after [`Self::freeze`].
    ///
    /// # Errors
    /// The apiserver is stopped.
    pub fn thaw(&self) -> Result<()> {
        self.inner.apiserver.thaw()
    }

    /// Fails, with the end of its log, if a process of the cluster has ended by itself.
    ///
    /// # Errors
    /// A process has ended.
    pub fn check(&self) -> Result<()> {
        self.inner.apiserver.check()?;
        self.inner.workloads.check()
    }

    /// Returns the end of each log of the test environment, with the names of the files.
    pub fn log_ends(&self) -> String {
        log_ends(&self.inner.test_env)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.inner.logs_shown.swap(true, Ordering::Relaxed) {
            show(&self.log_ends());
        }
    }
}

async fn start_etcd(cluster: &str, files: &Files) -> Result<Etcd> {
    let name = format!("{cluster}-etcd");
    let log = files.logs.join(format!("{name}.log"));
    Etcd::start(&name, files.path("etcd"), log).await
}

async fn create_where_absent<K>(api: &Api<K>, object: &K) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(anyhow!(error)),
        Ok(_) => Ok(()),
    }
}

fn log_ends(test_env: &TestEnv) -> String {
    let mut text = String::new();
    let files = std::fs::read_dir(test_env.logs()).into_iter().flatten().flatten();
    let mut files: Vec<_> = files.map(|file| file.path()).collect();
    files.sort();
    for file in files {
        let lines = crate::server::process::log_end(&file, 15);
        text.push_str(&format!("--- {}\n{lines}\n", file.display()));
    }
    text
}

#[expect(clippy::print_stderr, reason = "the harness shows standard error of a failed test")]
fn show(text: &str) {
    eprintln!("{text}");
}

/// Reserves a name, which becomes a directory and a prefix in etcd: lower case letters, digits and dashes, used
/// once.
fn claim(test_env: &TestEnv, name: &str) -> Result<()> {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if name.is_empty() || !name.chars().all(plain) {
        bail!("{name:?} cannot name a cluster: lower case letters, digits and dashes only");
    }
    if !test_env.inner.names.lock().insert(name.to_owned()) {
        bail!("the test environment has or had a cluster {name}");
    }
    Ok(())
}
