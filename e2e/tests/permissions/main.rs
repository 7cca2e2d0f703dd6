//! No rule of an operator's role is idle, and none is missing.
//!
//! One story makes the operators use all that their roles grant; each runs with exactly those roles. Afterwards every
//! single right (one verb on one resource, of one name where the rule has names) must be the only one that allowed
//! something which was done. So without any one of them a step of the story is refused: on the hub with 403, and on
//! the targets, where one access Secret serves all operators, by the comparison with the role of the operator whose
//! User-Agent it was.
//!
//! Then the token of each operator is used by a thief, who tries with each right what SECURITY.md says is out of reach.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod late;
mod roles;
mod stolen;
mod story;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::landscape::{ACCESS_USER, HUB_NAMESPACE, Landscape, Options};
use e2e::permissions::{Exception, Right, Use, findings, powers, uses};
use futures::FutureExt;
use kyma_api::crds;
use testbed::{AuditEvent, AuditMark};

use story::Story;

/// What the brake of an operator needs.
const BRAKE: &str = "create pauses.operator.kyma-project.io";
const OPERATORS: [&str; 4] = ["kyma-operator", "helm-component", "release-meta-syncer", "greeting-component"];

/// Programs that reach targets through an operator's access without being one: the probe of a silent target, which
/// asks for no resource, and what people run.
const OTHERS: [&str; 2] = ["kyma-targets/", "kymactl/"];

/// The apiserver asks for these itself while it takes a role or a binding, so no log shows them;
/// [`Story::needs_what_no_log_shows`] takes each away and sees a module refused.
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
    // The second target on which something is deleted makes the brake of each operator act.
    let flags = ["--brake-targets=1", "--brake-percent=0"].map(str::to_owned).to_vec();
    let environment = [("SKR_IMAGE_PULL_SECRET", story::PULL_SECRET), ("MANIFEST_MIRROR", "true")];
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
    nobody_has_more_than_declared(&landscape).await?;
    Story::new(&landscape)?.tell().boxed().await?;
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
            // Which brake acts first is chance, and its confirmation serves the others.
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

/// Apart from helm-component's role on targets, nothing that is bound to us leads to more rights.
async fn nobody_has_more_than_declared(landscape: &Landscape) -> Result<()> {
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

/// Requests to the hub in an operator's name that do not say so in their User-Agent.
fn unnamed(landscape: &Landscape, operator: &str) -> Result<Vec<String>> {
    let (user, agent) = (hub_user(operator), format!("{operator}/"));
    let events = landscape.hub().audit()?.since(AuditMark::default())?.into_iter();
    let unnamed = events.filter(|event| event.user == user && !event.user_agent.starts_with(&agent));
    let line =
        |event: AuditEvent| format!("{operator} as {:?}: {} {}", event.user_agent, event.verb, event.uri);
    Ok(unnamed.map(line).collect())
}

/// Requests through the access of the operators that none of them sent.
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
