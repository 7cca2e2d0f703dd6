//! Result of a chart, and whether helm has the same result.

use std::fmt;

use crate::compare::Findings;

/// End of a workload's entry in the message of Healthy while no node takes its Pods.
pub(crate) const UNSCHEDULABLE: &str = ": Unschedulable)";

/// Result of a chart.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) findings: Findings,
    /// Workloads that do not become ready, as in the component's status.
    pub(crate) unhealthy: Option<String>,
    /// The hook that the target refuses, as in the component's status; if it comes first, nothing is installed.
    pub(crate) hook: Option<String>,
    /// Reduction of objects that had to be confirmed.
    pub(crate) confirmed: Option<String>,
    /// Whether hooks were skipped because the Pod of one cannot be scheduled.
    pub(crate) skips: bool,
    /// Objects that stay after the removal.
    pub(crate) kept: Vec<String>,
    /// Reason why neither helm nor helm-component can render it.
    pub(crate) refused: Option<String>,
}

impl Outcome {
    /// Returns the result of a chart that is not installed.
    pub(crate) fn refused(reason: String) -> Self {
        Self { refused: Some(reason), ..Self::default() }
    }

    /// Returns the number of equal objects.
    pub(crate) fn equal(&self) -> String {
        self.findings.equal.to_string()
    }

    /// Reports whether something is missing that only a failure of helm would justify.
    pub(crate) fn needs_proof(&self) -> bool {
        let Findings { missing, refused, .. } = &self.findings;
        !missing.is_empty() || !refused.is_empty() || self.hook.is_some() || !self.unscheduled().is_empty()
    }

    /// Checks that helm's failure has the cause that the component reports. Helm stops at the first cause, in this
    /// order.
    pub(crate) fn is_explained_by(&self, helm_error: &str) -> Result<(), String> {
        let Findings { missing, refused, .. } = &self.findings;
        let is_named = |object: &str| {
            parts(object).is_some_and(|(kind, name)| names(helm_error, kind) && names(helm_error, name))
        };
        let explained = if !missing.is_empty() {
            let mut kinds = missing.iter().map(|kind| kind.split('.').next().unwrap_or(kind));
            kinds.any(|kind| helm_error.contains(&format!("no matches for kind \"{kind}\"")))
        } else if let Some(hook) = &self.hook {
            let object = hook.split(" hook ").nth(1).and_then(|rest| rest.split(": ").next());
            object.is_some_and(is_named) && fields(hook).all(|field| helm_error.contains(field))
        } else if !refused.is_empty() {
            refused.keys().any(|object| is_named(object))
        } else {
            self.unscheduled().into_iter().all(is_named)
        };
        if explained { Ok(()) } else { Err(format!("helm fails for another reason: {helm_error}")) }
    }

    /// Returns workloads whose Pods cannot be scheduled.
    fn unscheduled(&self) -> Vec<&str> {
        let named = self.unhealthy.iter().flat_map(|named| named.split(", "));
        named.filter_map(|name| name.strip_suffix(UNSCHEDULABLE)?.split(" (").next()).collect()
    }

    /// Returns remarks for the report.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let Findings { varying, missing, refused, absent, surplus, .. } = &self.findings;
        let mut remarks: Vec<String> =
            self.refused.iter().map(|reason| format!("helm and we cannot render it: {reason}")).collect();
        remarks.extend(self.hook.iter().map(|hook| format!("neither helm nor we can install it: {hook}")));
        remarks.extend(self.confirmed.iter().map(|less| format!("confirmed with allow-shrink: {less}")));
        if self.skips {
            remarks.push("with hooks: Skip, since no node takes the Pod of one".to_owned());
        }
        if *varying > 0 {
            remarks.push(format!("{varying} paths vary between runs of helm"));
        }
        remarks.extend(missing.iter().map(|kind| {
            format!("not installed: {kind}, which the target does not serve; helm installs nothing then")
        }));
        remarks.extend(
            refused.iter().map(|(object, reason)| format!("helm and we cannot install {object}: {reason}")),
        );
        if !absent.is_empty() {
            remarks.push(format!("{} objects wait for that", absent.len()));
        }
        if !surplus.is_empty() {
            remarks.push(format!("{} objects of the values before stay until then", surplus.len()));
        }
        remarks
            .extend(self.unhealthy.iter().map(|unhealthy| format!("never ready here: {}", fixed(unhealthy))));
        if !self.kept.is_empty() {
            remarks.push(format!("stays after removal: {}", self.kept.join(", ")));
        }
        remarks
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} objects equal helm's", self.equal())?;
        self.remarks().iter().try_for_each(|remark| write!(formatter, "; {remark}"))
    }
}

/// Returns kind without group, and name, of an object as messages name it.
fn parts(object: &str) -> Option<(&str, &str)> {
    let (kind, path) = object.split_once(' ')?;
    Some((kind.split('.').next()?, path.rsplit('/').next()?))
}

/// Reports whether a text contains this word, not as a part of a longer name.
fn names(helm_error: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '-';
    helm_error.match_indices(word).any(|(at, _)| {
        let (before, after) = (&helm_error[..at], &helm_error[at + word.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

/// Returns the fields that a refusal names.
fn fields(refusal: &str) -> impl Iterator<Item = &str> {
    let listed = refusal.split_once("refused as invalid: ").map_or("", |(_, listed)| listed);
    listed.split(", ").filter_map(|field| field.split(" (").next()).filter(|field| !field.is_empty())
}

/// Returns the unhealthy workloads without random names of Pods.
pub(crate) fn fixed(unhealthy: &str) -> String {
    let each = unhealthy.split(", ").map(|name| match name.strip_suffix(UNSCHEDULABLE) {
        Some(start) => {
            let workload = start.split(" (").next().unwrap_or(start);
            format!("{workload}, as with helm (no node takes its Pods)")
        }
        None => name.to_owned(),
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helm_has_to_fail_for_what_the_component_names() {
        let mut outcome = Outcome::default();
        assert!(!outcome.needs_proof());
        let waits = "Deployment.apps n/web (Pod web-1-x: PodScheduled is False: Unschedulable)";
        outcome.unhealthy = Some(waits.to_owned());
        assert!(outcome.needs_proof());
        assert!(outcome.is_explained_by("resource not ready, name: web, kind: Deployment").is_ok());
        assert!(outcome.is_explained_by("resource Deployment/n/web not ready. status: InProgress").is_ok());
        assert!(outcome.is_explained_by("resource not ready, name: db, kind: Deployment").is_err());
        assert!(
            outcome.is_explained_by("resource Deployment/n/web-2 not ready. status: InProgress").is_err()
        );
        let hook = "pre-install hook Job.batch n/setup: creating Job.batch n/setup: refused as invalid: \
                    spec.x (FieldValueInvalid)";
        outcome.hook = Some(hook.to_owned());
        assert!(outcome.is_explained_by("Job.batch \"setup\" is invalid: spec.x: Invalid value").is_ok());
        assert!(outcome.is_explained_by("Job.batch \"setup\" is invalid: spec.y: Invalid value").is_err());
        outcome.findings.missing.insert("Lantern.example.com".to_owned());
        assert!(outcome.is_explained_by("no matches for kind \"Lantern\" in version").is_ok());
        assert!(outcome.is_explained_by("Job.batch \"setup\" is invalid: spec.x: Invalid value").is_err());
    }

    #[test]
    fn pods_are_not_named_in_the_page() {
        let waits = "Deployment.apps n/web (Pod web-1-x: PodScheduled is False: Unschedulable)";
        let outcome = Outcome { unhealthy: Some(waits.to_owned()), ..Outcome::default() };
        let remark = "never ready here: Deployment.apps n/web, as with helm (no node takes its Pods)";
        assert_eq!(outcome.remarks(), [remark]);
    }
}
