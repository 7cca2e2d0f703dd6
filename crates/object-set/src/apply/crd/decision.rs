//! Decides whether an owner writes a CRD that exists. Pure.

use std::cmp::Ordering;

use super::versions::{LiveCrd, compare, keep_serving, keep_versions, lost_versions};
use crate::normalise::certificate_authority;
use crate::object::Object;
use crate::ownership::{self, CREATED_BY, OWNER_LABEL, Ownership, SET_VERSION, sharers};

/// Decision for a CRD that exists.
#[derive(Debug, PartialEq)]
pub(super) enum CrdDecision {
    /// Send it, with the versions that must stay, after marking the shares of these owners.
    Send {
        object: Box<Object>,
        shares: Vec<String>,
        /// API versions in which objects may be stored, and that it would not serve any more.
        lost: Vec<String>,
    },
    /// Leave it unchanged; mark only this owner's share.
    ShareOnly,
}

/// Decides whether this owner writes an existing CRD: yes, unless another live owner ships the same or a higher
/// version. A CRD is never downgraded, even if the owner of the higher version is gone, so that objects keep all
/// their fields.
pub(super) fn decide(
    mut ours: Object,
    live: &LiveCrd,
    us: &Ownership,
    is_live: &(dyn Fn(&str) -> bool + Sync),
) -> CrdDecision {
    let owner = us.owner.as_str();
    let is_live = |other: &str| !ownership::is_dead(other, &live.metadata, us, is_live);
    let labels = live.metadata.labels.clone().unwrap_or_default();
    let annotations = live.metadata.annotations.clone().unwrap_or_default();
    let holder =
        labels.get(OWNER_LABEL).filter(|holder| holder.as_str() != owner && is_live(holder)).cloned();
    let others = sharers(labels.keys()).into_iter().filter(|other| other != owner && is_live(other));
    let others: Vec<String> = others.chain(holder.clone()).collect();
    if let Some(by) = annotations.get(CREATED_BY) {
        ours.set_annotation(CREATED_BY, by);
    }
    let order = compare(&ours, live);
    if holder.is_some() && order != Ordering::Greater {
        return CrdDecision::ShareOnly;
    }
    if order == Ordering::Less {
        ours.body_mut().insert("spec".to_owned(), live.spec.clone());
        // The apply would own the CA that a controller injected.
        certificate_authority::remove_injected(
            ours.body_mut(),
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
        );
        if let Some(version) = annotations.get(SET_VERSION) {
            ours.set_annotation(SET_VERSION, version);
        }
    }
    if others.is_empty() {
        let lost = lost_versions(&ours, live);
        keep_versions(&mut ours, &live.spec, |version| live.stored.iter().any(|stored| stored == version));
        return CrdDecision::Send { object: Box::new(ours), shares: Vec::new(), lost };
    }
    keep_versions(&mut ours, &live.spec, |_| true);
    keep_serving(&mut ours, &live.spec);
    let mut shares: Vec<String> = holder.into_iter().collect();
    shares.push(owner.to_owned());
    CrdDecision::Send { object: Box::new(ours), shares, lost: Vec::new() }
}
