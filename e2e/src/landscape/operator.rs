//! Runs operators as processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use testbed::{Cluster, Process, Program, TestEnv, free_address, until, until_access};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::proxies::Proxies;
use super::{HUB_NAMESPACE, state};

/// Deadline for an operator to be ready, longer than the one of a test that brings its CRD meanwhile.
const READY_DEADLINE: Duration = Duration::from_mins(2);

/// An operator and its own flags.
pub(super) struct Operator {
    pub(super) name: &'static str,
    /// Whether its CRD is installed before it starts. Otherwise a module brings the CRD, and the operator is ready
    /// after that.
    crd_first: bool,
    flags: fn(&FlagInputs<'_>) -> Vec<String>,
}

/// Options of the operators.
pub(super) struct OperatorOptions {
    /// Host and port of the registry of module content.
    pub(super) registry: String,
    /// Additional hosts (`HOST:PORT`) from which module content may be pulled without TLS.
    pub(super) plain_http: Vec<String>,
    /// Additional flags of each operator.
    pub(super) flags: Vec<String>,
    /// Additional environment variables of each operator.
    pub(super) environment: Vec<(String, String)>,
    /// Suffix of file names if several operators have one name.
    pub(super) label: &'static str,
    /// Proxies between operators and clusters.
    pub(super) proxies: Proxies,
}

/// Inputs of the flags.
pub(super) struct FlagInputs<'a> {
    registry: &'a str,
    plain_http: String,
    directory: &'a Path,
    helm: &'a Path,
    operator_options: &'a OperatorOptions,
}

/// All operators of the landscape; the last one represents another team's.
pub(super) const OPERATORS: [Operator; 4] = [
    Operator {
        name: "kyma-operator",
        crd_first: true,
        flags: |_| vec!["--component-groups=demo.kyma-project.io".into()],
    },
    Operator { name: "helm-component", crd_first: true, flags: helm_component },
    Operator { name: "release-meta-syncer", crd_first: true, flags: |_| Vec::new() },
    Operator { name: "greeting-component", crd_first: false, flags: |_| Vec::new() },
];

fn helm_component(inputs: &FlagInputs<'_>) -> Vec<String> {
    vec![
        format!("--oci-registry={}", inputs.registry),
        format!("--oci-insecure-hosts={}", inputs.plain_http),
        format!("--artifact-cache-dir={}", inputs.directory.join("cache").display()),
        format!("--helm={}", inputs.helm.display()),
        // The benchmark of reactions edits one object a thousand times.
        "--drift-repairs=100000".to_owned(),
    ]
}

/// A running operator.
pub(super) struct RunningOperator {
    pub(super) process: Process,
    admin: SocketAddr,
    /// Whether a module brings its CRD.
    waits_for_crd: bool,
}

impl RunningOperator {
    /// Waits until it is ready, unless a module brings its CRD.
    pub(super) async fn until_ready(&self) -> Result<()> {
        until(&format!("{} is ready", self.process.name()), READY_DEADLINE, || async {
            self.process.check()?;
            let is_ready = |answer: String| answer.starts_with("HTTP/1.1 200");
            let ready = self.waits_for_crd || self.answer("/readyz").await.is_ok_and(is_ready);
            Ok(ready.then_some(()))
        })
        .await
    }

    /// Returns head and body of its admin server's answer.
    pub(super) async fn answer(&self, path: &str) -> Result<String> {
        answer(self.admin, path).await
    }
}

/// Starts all operators once the hub applies their roles, and waits until they are ready.
pub(super) async fn start_all(
    test_env: &TestEnv,
    hub: &Cluster,
    operator_options: &OperatorOptions,
) -> Result<Vec<RunningOperator>> {
    // Boxed, since the compiler's proof that a deep future is `Send` has a limit.
    until_roles_count(hub).boxed().await?;
    let helm = Program::Helm.path()?;
    let inputs = FlagInputs::new(test_env, operator_options, &helm);
    let start = |operator: &'static Operator| {
        let inputs = &inputs;
        async move { start(operator, &bin(operator.name), test_env, hub, inputs).await }
    };
    let started = try_join_all(OPERATORS.iter().map(start)).await?;
    try_join_all(started.iter().map(RunningOperator::until_ready)).await?;
    Ok(started)
}

/// Waits until the apiserver applies the stored roles, which it learns of through watches. An operator that may not
/// read the hub's identity ends. The administrator asks, since tests attribute each request of an operator's account to
/// it.
async fn until_roles_count(hub: &Cluster) -> Result<()> {
    let client = hub.client()?;
    for operator in &OPERATORS {
        let user = format!("system:serviceaccount:{HUB_NAMESPACE}:{}", operator.name);
        let identity = ResourceAttributes {
            resource: Some("namespaces".to_owned()),
            name: Some("kube-system".to_owned()),
            verb: Some("get".to_owned()),
            ..ResourceAttributes::default()
        };
        until_access(&client, &user, identity, true).await?;
    }
    Ok(())
}

/// Starts an operator again with this program, without waiting.
pub(super) async fn start_one(
    name: &str,
    program: &Path,
    test_env: &TestEnv,
    hub: &Cluster,
    operator_options: &OperatorOptions,
) -> Result<RunningOperator> {
    let operator = OPERATORS.iter().find(|operator| operator.name == name);
    let operator = operator.with_context(|| format!("no operator {name}"))?;
    let helm = Program::Helm.path()?;
    start(operator, program, test_env, hub, &FlagInputs::new(test_env, operator_options, &helm)).await
}

impl<'a> FlagInputs<'a> {
    fn new(test_env: &'a TestEnv, operator_options: &'a OperatorOptions, helm: &'a Path) -> Self {
        let hosts = std::iter::once(&operator_options.registry)
            .chain(&operator_options.plain_http)
            .map(String::as_str);
        let plain_http = hosts.collect::<Vec<_>>().join(",");
        Self {
            registry: &operator_options.registry,
            plain_http,
            directory: test_env.directory(),
            helm,
            operator_options,
        }
    }
}

async fn start(
    operator: &Operator,
    program: &Path,
    test_env: &TestEnv,
    hub: &Cluster,
    inputs: &FlagInputs<'_>,
) -> Result<RunningOperator> {
    let name = operator.name;
    let files = format!("{name}{}", inputs.operator_options.label);
    let kubeconfig = test_env.directory().join(format!("{files}.kubeconfig"));
    let access = hub.service_account(HUB_NAMESPACE, name).await?;
    let access = inputs.operator_options.proxies.to_hub(name, access);
    state::private(&kubeconfig, &access.kubeconfig())?;
    let admin = free_address()?;
    let mut arguments = vec![
        "run".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--admin-address={admin}"),
        "--log-format=text".to_owned(),
        "--allow-loopback-targets".to_owned(),
    ];
    arguments.extend((operator.flags)(inputs));
    arguments.extend_from_slice(&inputs.operator_options.flags);
    let log = test_env.logs().join(format!("{files}.log"));
    // A killed operator leaves its files here; they are removed with the test environment.
    let scratch = test_env.directory().join("tmp");
    std::fs::create_dir_all(&scratch)?;
    let environment = [("TMPDIR".to_owned(), scratch.display().to_string())];
    let environment = environment.into_iter().chain(inputs.operator_options.environment.iter().cloned());
    let process = Process::start(name, program, arguments, environment, log)?;
    Ok(RunningOperator { process, admin, waits_for_crd: !operator.crd_first })
}

/// Returns a binary of the workspace: beside this one, or one directory up for tests.
pub fn bin(name: &str) -> PathBuf {
    let running = std::env::current_exe().unwrap_or_default();
    let mut places = running.ancestors().skip(1).take(2).map(|place| place.join(name));
    places.find(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name))
}

async fn answer(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
