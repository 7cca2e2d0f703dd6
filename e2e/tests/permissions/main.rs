//! Checks that each operator uses every right of its roles and needs no other.
//!
//! One scenario exercises all rights, with each operator running under exactly its roles. Afterwards each single right
//! (one verb on one resource, of one name if the rule has names) must be the only one that allowed some request. So
//! without any one of them a step of the scenario would be refused. On the hub a missing right shows as a 403; on
//! targets, where one access Secret serves all operators, each request is compared with the role of the operator in
//! its User-Agent.
//!
//! Then the test uses the token of each operator as a thief would: with each right it tries what SECURITY.md says
//! is out of reach.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod late;
mod roles;
mod scenario;
mod stolen;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::landscape::{ACCESS_USER, HUB_NAMESPACE, Landscape, Options};
use e2e::permissions::{Exception, Right, Use, findings, powers, uses};
use futures::FutureExt;
use kyma_api::crds;
use testbed::{AuditEvent, AuditMark};

use scenario::Scenario;

/// The right that the brake of an operator needs.
const BRAKE: &str = "create pauses.operator.kyma-project.io";
const OPERATORS: [&str; 4] = ["kyma-operator", "helm-component", "release-meta-syncer", "greeting-component"];

/// User-Agents that reach targets through the operators' access without being an operator: the probe of an
/// unresponsive target, which requests no resource, and kymactl.
const OTHERS: [&str; 2] = ["kyma-targets/", "kymactl/"];

/// Rights that the apiserver checks itself when a role or a binding is written, so no audit log shows their use;
/// [`Scenario::needs_what_no_log_shows`] removes each of them and expects a module to be refused.
const EXCEPTIONS: [Exception; 4] = [
    unseen("helm-component-target: escalate roles.rbac.authorization.k8s.io"),
    unseen("helm-component-target: escalate clusterroles.rbac.authorization.k8s.io"),
    unseen("helm-component-target: bind roles.rbac.authorization.k8s.io"),
    unseen("helm-component-target: bind clusterroles.rbac.authorization.k8s.io"),
];

const fn unseen(right: &'static str) -> Exception {
    Exception { right, why: "asked for within a write of a role or a binding" }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_right_is_needed_and_no_right_is_missing() -> Result<()> {
    // With these flags each operator's brake acts as soon as something is deleted on a second target.
    let flags = ["--brake-targets=1", "--brake-percent=0"].map(str::to_owned).to_vec();
    let environment = [("SKR_IMAGE_PULL_SECRET", scenario::PULL_SECRET), ("MANIFEST_MIRROR", "true")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let options = Options { targets: 2, audit: true, flags, environment, ..Options::default() };
    let mut landscape = Landscape::start(options).await?;
    let late = [
        ("helm-component", crds::helm_component()),
        ("helm-component", crds::pause()),
        ("release-meta-syncer", crds::module_release_meta()),
    ];
    for (operator, crd) in late {
        late::crd_comes_late(&mut landscape, operator, crd).await.context(operator)?;
    }
    no_operator_has_undeclared_rights(&landscape).await?;
    Scenario::new(&landscape)?.run().boxed().await?;
    late::crd_comes_late(&mut landscape, "greeting-component", crds::pause()).await?;
    landscape.until_at_rest().await?;
    let mut found = Vec::new();
    for operator in OPERATORS {
        for (side, rights, uses) in
            [("hub", hub_rights(&landscape, operator).await?, hub_uses(&landscape, operator)?), {
                let rights = target_rights(&landscape, operator).await?;
                ("target", rights, target_uses(&landscape, operator)?)
            }]
        {
            ensure!(
                !rights.is_empty() && !uses.is_empty(),
                "{operator} has no rights or no work on the {side}"
            );
            let role = format!("{operator}-target");
            let exceptions: Vec<Exception> = EXCEPTIONS
                .into_iter()
                .filter(|exception| side == "target" && exception.right.starts_with(&role))
                .collect();
            let lines = findings(&rights, &uses, &exceptions);
            // Any operator's brake may act first, and the confirmation of its Pause serves the others, which then
            // create none.
            let lines = lines.into_iter().filter(|line| !line.contains("idle") || !line.contains(BRAKE));
            found.extend(lines.map(|line| format!("{operator} on the {side}: {line}")));
        }
    }
    for operator in OPERATORS {
        found.extend(unnamed(&landscape, operator)?);
    }
    found.extend(strangers(&landscape)?);
    found.extend(stolen::tokens_reach_nothing_more(&landscape).await?);
    ensure!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
    landscape.stop().await
}

/// Checks that no role bound to the operators lets them gain more rights, except helm-component's role on targets.
async fn no_operator_has_undeclared_rights(landscape: &Landscape) -> Result<()> {
    let mut found = Vec::new();
    for operator in OPERATORS {
        found.extend(powers(&hub_rights(landscape, operator).await?));
    }
    for target in landscape.targets() {
        let bound = roles::bound_to(target, ACCESS_USER).await?;
        ensure!(OPERATORS.iter().all(|operator| bound.iter().any(|right| is_of(right, operator))));
        let others: Vec<Right> = bound.into_iter().filter(|right| !is_of(right, "helm-component")).collect();
        found.extend(powers(&others).into_iter().map(|line| format!("{}: {line}", target.name())));
    }
    ensure!(found.is_empty(), "too much:\n{}", found.join("\n"));
    Ok(())
}

fn is_of(right: &Right, operator: &str) -> bool {
    right.role == format!("{operator}-target")
}

async fn hub_rights(landscape: &Landscape, operator: &str) -> Result<Vec<Right>> {
    roles::bound_to(landscape.hub(), &hub_user(operator)).await
}

async fn target_rights(landscape: &Landscape, operator: &str) -> Result<Vec<Right>> {
    let target = landscape.targets().first().context("there are targets")?;
    let mut bound = roles::bound_to(target, ACCESS_USER).await?;
    bound.retain(|right| is_of(right, operator));
    Ok(bound)
}

fn hub_uses(landscape: &Landscape, operator: &str) -> Result<BTreeSet<Use>> {
    let user = hub_user(operator);
    let events = landscape.hub().audit()?.since(AuditMark::default())?;
    Ok(events.iter().filter(|event| event.user == user).flat_map(uses).collect())
}

fn target_uses(landscape: &Landscape, operator: &str) -> Result<BTreeSet<Use>> {
    let agent = format!("{operator}/");
    let events = target_events(landscape)?;
    Ok(events.iter().filter(|event| event.user_agent.starts_with(&agent)).flat_map(uses).collect())
}

/// Returns requests to the hub under an operator's account whose User-Agent names another program.
fn unnamed(landscape: &Landscape, operator: &str) -> Result<Vec<String>> {
    let (user, agent) = (hub_user(operator), format!("{operator}/"));
    let events = landscape.hub().audit()?.since(AuditMark::default())?.into_iter();
    let unnamed = events.filter(|event| event.user == user && !event.user_agent.starts_with(&agent));
    let line =
        |event: AuditEvent| format!("{operator} as {:?}: {} {}", event.user_agent, event.verb, event.uri);
    Ok(unnamed.map(line).collect())
}

/// Returns requests to targets through the operators' access that no known program sent.
fn strangers(landscape: &Landscape) -> Result<Vec<String>> {
    let known: Vec<String> =
        OPERATORS.iter().map(|operator| format!("{operator}/")).chain(OTHERS.map(str::to_owned)).collect();
    let events = target_events(landscape)?.into_iter();
    let events = events.filter(|event| !known.iter().any(|agent| event.user_agent.starts_with(agent)));
    Ok(events
        .map(|event| format!("whose is it? {:?} {} {}", event.user_agent, event.verb, event.uri))
        .collect())
}

fn target_events(landscape: &Landscape) -> Result<Vec<AuditEvent>> {
    let mut all = Vec::new();
    for target in landscape.targets() {
        let events = target.audit()?.since(AuditMark::default())?.into_iter();
        all.extend(events.filter(|event| event.user == ACCESS_USER));
    }
    Ok(all)
}

fn hub_user(operator: &str) -> String {
    format!("system:serviceaccount:{HUB_NAMESPACE}:{operator}")
}
