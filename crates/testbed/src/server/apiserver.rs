//! A kube-apiserver: its files, command line and start.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use parking_lot::Mutex;
use rcgen::KeyPair;

use crate::builder::ClusterBuilder;
use crate::certificates::{Authority, Validity};
use crate::client::access::{Access, Credentials};
use crate::server::etcd::Etcd;
use crate::server::port::{self, free_address};
use crate::server::process::{Process, ProgramStart};
use crate::tools::binaries::Program;
use crate::wait::until;

/// Deadline of a start. It is long, since two test suites may compete for two cores.
const READY_DEADLINE: Duration = Duration::from_mins(2);

const AUDIT_POLICY: &str = include_str!("audit-policy.yaml");

/// The apiserver of a cluster. It can be stopped and started again at the same port.
pub(crate) struct ApiServer {
    start: ProgramStart,
    process: Mutex<Option<Process>>,
    pub(crate) files: Files,
    pub(crate) admin: Access,
}

/// The files of one cluster.
pub(crate) struct Files {
    pub(crate) directory: PathBuf,
    pub(crate) logs: PathBuf,
}

impl Files {
    pub(crate) fn of(builder: &ClusterBuilder) -> Self {
        let test_env = &builder.test_env;
        Self { directory: test_env.directory().join("clusters").join(&builder.name), logs: test_env.logs() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Creates an empty directory. Deletes files of an earlier test environment in a directory that is kept.
    pub(crate) fn clear(&self) -> Result<()> {
        if self.directory.exists() {
            fs::remove_dir_all(&self.directory)?;
        }
        Ok(fs::create_dir_all(&self.directory)?)
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        Ok(fs::write(self.path(name), content)?)
    }
}

impl ApiServer {
    /// Starts the apiserver at a free port, and waits until `/readyz` succeeds and the namespaces of every cluster
    /// exist.
    pub(crate) async fn start(
        builder: &ClusterBuilder,
        authority: &Authority,
        files: Files,
        etcd: &Etcd,
    ) -> Result<Self> {
        write_files(&files, authority)?;
        for _ in 0..port::MAX_START_ATTEMPTS {
            let address = free_address()?;
            let url = format!("https://{address}");
            let start = ProgramStart {
                name: format!("{}-kube-apiserver", builder.name),
                program: Program::ApiServer.path()?,
                arguments: flags(builder, &files, etcd, (&url, address.port())),
                environment: Vec::new(),
                log: files.logs.join(format!("{}-kube-apiserver.log", builder.name)),
            };
            let admin = administrator(&builder.name, url, authority)?;
            let process = Process::spawn(&start)?;
            match ready(&process, &admin.client()?).await {
                Ok(()) => {
                    return Ok(Self { start, process: Mutex::new(Some(process)), files, admin });
                }
                Err(_) if port::has_lost_port(&process) => {}
                Err(error) => return Err(error),
            }
        }
        bail!("{} found no free port in {} attempts", builder.name, port::MAX_START_ATTEMPTS)
    }

    /// Kills the apiserver; connections are refused from now on.
    pub(crate) fn stop(&self) {
        drop(self.process.lock().take());
    }

    /// Starts the apiserver again, at the same port with the same data.
    pub(crate) async fn start_again(&self) -> Result<()> {
        self.stop();
        let process = Process::spawn(&self.start)?;
        ready(&process, &self.admin.client()?).await?;
        *self.process.lock() = Some(process);
        Ok(())
    }

    pub(crate) fn freeze(&self) -> Result<()> {
        self.process.lock().as_ref().ok_or_else(|| anyhow!("the apiserver is stopped"))?.freeze()
    }

    pub(crate) fn thaw(&self) -> Result<()> {
        self.process.lock().as_ref().ok_or_else(|| anyhow!("the apiserver is stopped"))?.thaw()
    }

    /// Fails if the apiserver ended by itself, not if it was stopped.
    pub(crate) fn check(&self) -> Result<()> {
        self.process.lock().as_ref().map_or(Ok(()), Process::check)
    }
}

fn administrator(cluster: &str, url: String, authority: &Authority) -> Result<Access> {
    let certificate = authority.user("admin", Some("system:masters"), Validity::Long)?;
    Ok(Access {
        url,
        ca: authority.pem(),
        cluster: cluster.to_owned(),
        user: "admin".to_owned(),
        credentials: Credentials::Certificate(certificate),
    })
}

fn write_files(files: &Files, authority: &Authority) -> Result<()> {
    let server = authority.server()?;
    files.write("ca.crt", &authority.pem())?;
    files.write("server.crt", &server.certificate)?;
    files.write("server.key", &server.key)?;
    let tokens = KeyPair::generate()?;
    files.write("tokens.key", &tokens.serialize_pem())?;
    files.write("tokens.pub", &tokens.public_key_pem())?;
    files.write("audit-policy.yaml", AUDIT_POLICY)
}

fn flags(builder: &ClusterBuilder, files: &Files, etcd: &Etcd, (url, port): (&str, u16)) -> Vec<OsString> {
    // The data of a cluster's own etcd can become another cluster's, so the prefix is the same for all.
    let prefix = if builder.own_etcd { "registry" } else { &builder.name };
    let mut flags = vec![
        format!("--etcd-servers={}", etcd.url()),
        format!("--etcd-prefix=/{prefix}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--service-account-issuer={url}/"),
        "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        // Pods do not run really, so no tokens are mounted; and the creation of Pods must not wait for controllers.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--profiling=false".to_owned(),
    ];
    let mut file = |flag: &str, path: &Path| flags.push(format!("--{flag}={}", path.display()));
    file("cert-dir", &files.directory);
    file("tls-cert-file", &files.path("server.crt"));
    file("tls-private-key-file", &files.path("server.key"));
    file("client-ca-file", &files.path("ca.crt"));
    file("service-account-key-file", &files.path("tokens.pub"));
    file("service-account-signing-key-file", &files.path("tokens.key"));
    if builder.audit {
        file("audit-policy-file", &files.path("audit-policy.yaml"));
        file("audit-log-path", &files.path("audit.log"));
        // The record is written before the response, so a client with the response finds it. There is no rotation,
        // since readers keep positions.
        flags.extend(["--audit-log-mode=blocking".to_owned(), "--audit-log-maxsize=100000".to_owned()]);
    }
    flags.extend(builder.flags.iter().cloned());
    flags.into_iter().map(OsString::from).collect()
}

async fn ready(process: &Process, client: &Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    until(&format!("{} is ready", process.name()), READY_DEADLINE, || async {
        process.check()?;
        let readyz = http::Request::get("/readyz").body(Vec::new())?;
        if client.request_text(readyz).await.is_err() {
            return Ok(None);
        }
        // These namespaces are created shortly after the server reports that it is ready.
        let there =
            futures::future::join_all(["default", "kube-system"].map(|name| namespaces.get_opt(name))).await;
        Ok(there.iter().all(|found| matches!(found, Ok(Some(_)))).then_some(()))
    })
    .await
}
