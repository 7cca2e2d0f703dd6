//! `kymactl target test`.

use std::collections::BTreeSet;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use helm_component::HelmComponentProgram;
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};
use kyma_controller::{Failure, Program as _, Rule, verdict_failure};
use kyma_operator::KymaOperator;
use kyma_targets::{Target, Verdict, classify, compare};
use release_meta_syncer::ReleaseMetaSyncer;

use super::connection::ConnectionArgs;
use crate::{error::Error, output::Lines};

/// Maximum number of concurrent access reviews.
const MAX_PARALLEL_REVIEWS: usize = 8;

/// Flags of `kymactl target test`.
#[derive(Args)]
pub(crate) struct Test {
    /// The Kyma
    #[arg(value_parser = crate::name::kyma, add = crate::command::complete::kymas())]
    kyma: String,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// An action on a target, as in RBAC.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    name: &'static str,
    path: &'static str,
}

impl Test {
    pub(crate) async fn run(self) -> Result<(), Error> {
        let mut report = Report(Lines::new(self.connection.hub.format()));
        let checked = self.check(&mut report).await;
        report.0.finish()?;
        checked
    }

    async fn check(&self, report: &mut Report) -> Result<(), Error> {
        let start = self.connection.hub().await?.start(&self.kyma).await?;
        let secret = report.step("access Secret", start.secret().await)?;
        report.passed("access Secret", &secret.name)?;
        let target = report.step("kubeconfig", start.target(&secret).await)?;
        report.passed("kubeconfig", &format!("key {}", secret.key))?;
        let found = report.step("connection", target.identify().await.map_err(Failure::from))?;
        report.passed("connection", "the apiserver answers")?;
        let (claim, recorded) = start.read_again().await?.sides();
        match compare(&claim, &recorded, &found) {
            Verdict::Match { .. } => report.passed("identity", "the cluster on record")?,
            Verdict::FirstContact { .. } => report.passed("identity", "not adopted yet")?,
            refused => return report.step("identity", Err(verdict_failure(&refused))),
        }
        let missing = report.step("rights", missing(&target).await)?;
        if missing.is_empty() {
            return report.passed("rights", "the operators have all rights that they need");
        }
        for permission in &missing {
            let words = format!("missing: {}", permission.words());
            report.0.add(&format!("  {words}"), "rights", &words)?;
        }
        report.step("rights", Err(lack_of_rights(missing.len())))
    }
}

/// Returns the failure for a user that lacks `count` permissions.
fn lack_of_rights(count: usize) -> Failure {
    let words = format!(
        "{count} rights are missing; bind the roles that `<operator> rbac --for target` prints to the \
         kubeconfig's user"
    );
    Failure::new(kyma_api::Reason::TargetForbidden, words)
}

/// Results of the checks so far.
struct Report(Lines);

impl Report {
    /// Records a failed step and returns the outcome.
    fn step<T>(&mut self, name: &str, outcome: Result<T, Failure>) -> Result<T, Error> {
        if let Err(failure) = &outcome {
            self.0.add(&format!("{name:<15}FAILED"), name, &format!("failed: {failure}"))?;
        }
        outcome.map_err(Error::from)
    }

    fn passed(&mut self, name: &str, found: &str) -> Result<(), Error> {
        self.0.add(&format!("{name:<15}ok      {found}"), name, &format!("ok: {found}"))
    }
}

/// Returns the permissions that operators need on a target and that the access Secret's user lacks.
async fn missing(target: &Target) -> Result<Vec<Permission>, Failure> {
    let tables = [KymaOperator::rbac(), HelmComponentProgram::rbac(), ReleaseMetaSyncer::rbac()];
    let needed: BTreeSet<Permission> =
        tables.iter().flat_map(|table| &table.target).flat_map(permissions).collect();
    let asked = futures::stream::iter(needed).map(|permission| async move {
        let allowed = permission.is_allowed(target).await?;
        Ok::<_, Failure>((!allowed).then_some(permission))
    });
    let answers: Vec<Option<Permission>> = asked.buffered(MAX_PARALLEL_REVIEWS).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

/// Returns the single actions of a rule.
fn permissions(rule: &Rule) -> Vec<Permission> {
    let names = if rule.names.is_empty() { &[""] } else { rule.names };
    let mut permissions = Vec::new();
    for verb in rule.verbs.iter().copied() {
        permissions.extend(rule.paths.iter().map(|path| Permission { verb, path, ..Permission::default() }));
        for (group, resource) in
            rule.groups.iter().flat_map(|group| rule.resources.iter().map(move |resource| (group, resource)))
        {
            permissions.extend(names.iter().map(|name| Permission { verb, group, resource, name, path: "" }));
        }
    }
    permissions
}

impl Permission {
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
        let words: Vec<String> = permissions(&RULE).iter().map(Permission::words).collect();
        assert_eq!(words, ["get pods/log a", "get pods/log.apps a"]);
        let paths: Vec<String> =
            permissions(&Rule::paths(&["/readyz"], &["get"], "")).iter().map(Permission::words).collect();
        assert_eq!(paths, ["get /readyz"]);
        let question = permissions(&RULE)[1].question().resource_attributes.unwrap();
        assert_eq!(question.subresource.as_deref(), Some("log"));
        assert_eq!(question.resource.as_deref(), Some("pods"));
    }

    #[test]
    fn missing_rights_name_the_command_that_prints_the_roles() {
        let failure = lack_of_rights(2).to_string();
        assert!(failure.contains("`<operator> rbac --for target`"), "{failure}");
    }
}
