//! The hub as a target: which Kymas and components may have it.
//!
//! A flag makes the hub a target. It is one only for a Kyma or component about which nothing says that its target is
//! another cluster: no access Secret is named or labelled, and no other cluster is recorded.

use kube::ResourceExt;
use kyma_api::{Kyma, Reason};
use kyma_targets::Verdict;

use crate::failure::{Failure, verdict_failure};
use crate::kyma::record::target_record;
use crate::process::runtime::Runtime;

/// Access and record of the target of a Kyma or component whose target is the hub according to a flag.
#[derive(Clone, Debug)]
pub struct LocalTarget<'a> {
    /// The object, for messages.
    pub subject: String,
    /// Name of the access Secret that it names.
    pub named: Option<&'a str>,
    /// Names of the access Secrets that are labelled for its Kyma.
    pub labelled: &'a [String],
    /// The uid recorded for its target.
    pub recorded: Option<&'a str>,
}

impl LocalTarget<'_> {
    /// Checks that nothing says that the target is another cluster. Pure.
    ///
    /// # Errors
    /// The object has an access Secret (`AccessInvalid`) or is recorded with another cluster (`TargetChanged`).
    pub fn check(&self, hub_uid: &str) -> Result<(), Failure> {
        if let Some(secret) = self.named {
            return Err(local_access_failure(&self.subject, secret));
        }
        if let [secret, ..] = self.labelled {
            return Err(local_access_failure(&self.subject, secret));
        }
        match self.recorded.filter(|uid| !uid.is_empty() && *uid != hub_uid) {
            None => Ok(()),
            Some(uid) => Err(verdict_failure(&Verdict::TargetChanged {
                recorded: uid.to_owned(),
                found: hub_uid.to_owned(),
            })),
        }
    }
}

/// Returns the failure for an object that has an access Secret although its target is the hub according to a flag.
pub fn local_access_failure(subject: &str, secret: &str) -> Failure {
    let message = format!(
        "{subject} has access Secret {secret}, but this operator runs with --mode=single-cluster or --local-kyma, which \
         make the hub its target; remove the reference and the label of the Secret, or run the operator without the flag"
    );
    Failure::new(Reason::AccessInvalid, message)
}

/// Reports whether the hub is the target of `kyma`.
///
/// # Errors
/// A flag says so, and the Kyma has an access Secret (`AccessInvalid`) or is recorded with another cluster
/// (`TargetChanged`).
pub fn is_local(runtime: &Runtime, kyma: &Kyma) -> Result<bool, Failure> {
    let name = kyma.name_any();
    if !runtime.settings.is_local(&name) {
        return Ok(false);
    }
    let recorded = target_record(kyma).target_uid;
    let target = LocalTarget {
        subject: format!("Kyma {name}"),
        named: kyma.spec.kubeconfig_secret_ref.as_ref().map(|named| named.name.as_str()),
        labelled: &runtime.access.labelled(&name),
        recorded: recorded.as_deref(),
    };
    target.check(&runtime.hub_uid).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUB: &str = "uid-of-hub";

    fn check(named: Option<&str>, labelled: &[&str], recorded: Option<&str>) -> Result<(), Reason> {
        let labelled: Vec<String> = labelled.iter().map(|name| (*name).to_owned()).collect();
        let target = LocalTarget { subject: "Kyma sample".to_owned(), named, labelled: &labelled, recorded };
        target.check(HUB).map_err(|failure| failure.reason)
    }

    #[test]
    fn the_hub_is_the_target_where_nothing_says_otherwise() {
        assert_eq!(check(None, &[], None), Ok(()));
        assert_eq!(check(None, &[], Some("")), Ok(()));
        assert_eq!(check(None, &[], Some(HUB)), Ok(()));
    }

    #[test]
    fn object_with_access_secret_or_other_cluster_record_is_refused() {
        assert_eq!(check(Some("blue"), &[], None), Err(Reason::AccessInvalid));
        assert_eq!(check(None, &["blue"], Some(HUB)), Err(Reason::AccessInvalid));
        assert_eq!(check(None, &["blue", "green"], None), Err(Reason::AccessInvalid));
        assert_eq!(check(None, &[], Some("uid-of-another-cluster")), Err(Reason::TargetChanged));
    }
}
