//! Reads from the target's audit log which requests were sent and which account they impersonated.

use std::collections::BTreeSet;

use anyhow::Result;
use kyma_api::labels;
use testbed::{AuditEvent, AuditMark};

use crate::hooks::USER;
use crate::world::World;

/// Returns the operator's requests to the target since the mark.
pub(super) fn asked(world: &World, mark: AuditMark) -> Result<Vec<AuditEvent>> {
    Ok(world.target.audit()?.since(mark)?.into_iter().filter(|event| event.user == USER).collect())
}

/// Reports whether a request that impersonated the account succeeded.
pub(super) fn has_done(events: &[AuditEvent], account: &str, verb: &str, resource: &str) -> bool {
    events.iter().any(|event| {
        event.verb == verb && event.resource == resource && event.impersonated == account && event.code < 300
    })
}

/// Checks that every request impersonates the account, except those of the target check and of streams that
/// components share.
pub(super) fn assert_always_as(account: &str, uid: &str, events: &[AuditEvent]) {
    for event in events {
        let of_component = event.user_agent.contains(uid);
        assert_eq!(event.impersonated, if of_component { account } else { "" }, "{event:?}");
        assert!(of_component || is_of_a_stream(event) || is_of_the_fence(event), "{event:?}");
    }
    assert_only_streams_list(events);
}

/// Checks that lists without impersonation only begin streams, and that streams of common kinds select the
/// operator's objects.
fn assert_only_streams_list(events: &[AuditEvent]) {
    let shared = || events.iter().filter(|event| event.impersonated.is_empty() && is_of_a_stream(event));
    let of = |verb: &str| {
        let those = shared().filter(|event| event.verb == verb && event.code < 300);
        those.map(|event| event.resource.as_str()).collect::<BTreeSet<&str>>()
    };
    let (listed, watched) = (of("list"), of("watch"));
    assert!(listed.is_subset(&watched), "listed {listed:?}, watched {watched:?}");
    let ours =
        [labels::OWNER, labels::HOOK_OF].map(|label| format!("labelSelector={}", label.replace('/', "%2F")));
    for event in shared().filter(|event| ["secrets", "pods", "configmaps"].contains(&&*event.resource)) {
        assert!(ours.iter().any(|selector| event.uri.contains(selector)), "{event:?}");
    }
}

fn is_of_a_stream(event: &AuditEvent) -> bool {
    matches!(event.verb.as_str(), "list" | "watch")
}

/// Reports whether the request checks the target's identity and owner, which belongs to no component.
fn is_of_the_fence(event: &AuditEvent) -> bool {
    let of = (event.verb.as_str(), event.resource.as_str(), event.name.as_str());
    matches!(of, ("get", "namespaces", "kube-system") | ("get", "configmaps", "kyma-target-stamp"))
}
