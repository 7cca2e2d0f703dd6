//! `kymactl target test`.

use std::collections::BTreeSet;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use helm_component::HelmComponentProgram;
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};
use kyma_operator::KymaOperator;
use kyma_sdk::targets::{Target, Verdict, classify, compare};
use kyma_sdk::{Failure, Program as _, Rule, refusal};
use release_meta_syncer::ReleaseMetaSyncer;

use super::way::Way;
use crate::{error::Error, output};

/// Questions to the target at a time.
const PARALLEL: usize = 8;

/// Flags of `kymactl target test`.
#[derive(Args)]
pub(crate) struct Test {
    /// The Kyma.
    kyma: String,
    #[command(flatten)]
    way: Way,
}

/// One action on a target, as RBAC names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    name: &'static str,
    path: &'static str,
}

impl Test {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let start = self.way.hub().await?.start(&self.kyma).await?;
        let secret = step("access Secret", start.secret().await)?;
        done("access Secret", &secret.name)?;
        let target = step("kubeconfig", start.target(&secret).await)?;
        done("kubeconfig", &format!("key {}", secret.key))?;
        let found = step("connection", target.identify().await.map_err(Failure::from))?;
        done("connection", "the apiserver answers")?;
        let (claim, recorded) = start.read_again().await?.sides();
        match compare(&claim, &recorded, &found) {
            Verdict::Match { .. } => done("identity", "the cluster on record")?,
            Verdict::FirstContact { .. } => done("identity", "nobody's yet")?,
            refused => return step("identity", Err(refusal(&refused))),
        }
        let missing = missing(&target).await;
        let missing = step("rights", missing)?;
        if missing.is_empty() {
            return done("rights", "all that the operators need");
        }
        for right in &missing {
            output::result(&format!("  missing: {}", right.words()))?;
        }
        let words = format!(
            "{} are missing: bind the roles that `<operator> rbac --side target` prints",
            missing.len()
        );
        step("rights", Err(Failure::new(kyma_api::Reason::TargetForbidden, words)))
    }
}

/// Ends the check where a step failed.
fn step<T>(what: &str, outcome: Result<T, Failure>) -> Result<T, Error> {
    if outcome.is_err() {
        output::result(&format!("{what:<15}FAILED"))?;
    }
    outcome.map_err(Error::from)
}

fn done(what: &str, found: &str) -> Result<(), Error> {
    Ok(output::result(&format!("{what:<15}ok      {found}"))?)
}

/// What the operators need on a target and the user of the access Secret may not.
async fn missing(target: &Target) -> Result<Vec<Right>, Failure> {
    let tables = [KymaOperator::rbac(), HelmComponentProgram::rbac(), ReleaseMetaSyncer::rbac()];
    let needed: BTreeSet<Right> = tables.iter().flat_map(|table| &table.target).flat_map(rights).collect();
    let asked = futures::stream::iter(needed).map(|right| async move {
        let allowed = right.is_allowed(target).await?;
        Ok::<_, Failure>((!allowed).then_some(right))
    });
    let answers: Vec<Option<Right>> = asked.buffered(PARALLEL).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

/// The single actions of a rule.
fn rights(rule: &Rule) -> Vec<Right> {
    let names = if rule.names.is_empty() { &[""] } else { rule.names };
    let mut rights = Vec::new();
    for verb in rule.verbs.iter().copied() {
        rights.extend(rule.paths.iter().map(|path| Right { verb, path, ..Right::default() }));
        for (group, resource) in
            rule.groups.iter().flat_map(|group| rule.resources.iter().map(move |resource| (group, resource)))
        {
            rights.extend(names.iter().map(|name| Right { verb, group, resource, name, path: "" }));
        }
    }
    rights
}

impl Right {
    async fn is_allowed(&self, target: &Target) -> Result<bool, Failure> {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(target.client());
        let review = SelfSubjectAccessReview { spec: self.question(), ..SelfSubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| Failure::from(classify(&error)))?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    fn question(&self) -> SelfSubjectAccessReviewSpec {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        if !self.path.is_empty() {
            let path = NonResourceAttributes { path: text(self.path), verb: text(self.verb) };
            return SelfSubjectAccessReviewSpec { non_resource_attributes: Some(path), ..Default::default() };
        }
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let attributes = ResourceAttributes {
            verb: text(self.verb),
            group: text(self.group),
            resource: text(resource),
            subresource: text(subresource),
            name: text(self.name),
            ..ResourceAttributes::default()
        };
        SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() }
    }

    fn words(&self) -> String {
        if !self.path.is_empty() {
            return format!("{} {}", self.verb, self.path);
        }
        let dot = if self.group.is_empty() { "" } else { "." };
        let name = if self.name.is_empty() { String::new() } else { format!(" {}", self.name) };
        format!("{} {}{dot}{}{name}", self.verb, self.resource, self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_asked_for_action_by_action() {
        const RULE: Rule = Rule::new(&["", "apps"], &["pods/log"], &["get"], "").named(&["a"]);
        let words: Vec<String> = rights(&RULE).iter().map(Right::words).collect();
        assert_eq!(words, ["get pods/log a", "get pods/log.apps a"]);
        let paths: Vec<String> =
            rights(&Rule::paths(&["/readyz"], &["get"], "")).iter().map(Right::words).collect();
        assert_eq!(paths, ["get /readyz"]);
        let question = rights(&RULE)[1].question().resource_attributes.unwrap();
        assert_eq!(question.subresource.as_deref(), Some("log"));
        assert_eq!(question.resource.as_deref(), Some("pods"));
    }
}
