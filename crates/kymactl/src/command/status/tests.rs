//! Tests waiting with scripted events.

use clap::{Args as _, FromArgMatches as _};
use serde_json::json;

use super::*;

fn flags(words: &[&str]) -> Status {
    let command = Status::augment_args(clap::Command::new("status"));
    let matches = command.get_matches_from([&["status"], words].concat());
    Status::from_arg_matches(&matches).unwrap()
}

fn kyma(name: &str, state: &str) -> Kyma {
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": name, "namespace": "kcp-system", "generation": 1},
        "spec": {"channel": "regular"}, "status": {"state": state},
    }))
    .unwrap()
}

fn of(kymas: &[(&str, &str)]) -> Kymas {
    kymas.iter().map(|(name, state)| keyed(kyma(name, state))).collect()
}

/// Returns the open modules when the watch ends after these events.
async fn open_after(flags: &Status, listed: Kymas, events: Vec<watcher::Event<Kyma>>) -> Vec<String> {
    let events = futures::stream::iter(events.into_iter().map(Ok::<_, ()>));
    let followed = flags.follow(events, listed, Instant::now() + Duration::from_mins(1)).await;
    flags.open(&followed)
}

#[tokio::test]
async fn a_list_that_is_not_complete_does_not_end_the_wait() {
    use watcher::Event;
    let listed = || of(&[("blue", "Ready"), ("zinc", "Processing")]);
    let partial = vec![Event::Init, Event::InitApply(kyma("blue", "Ready"))];
    assert_eq!(open_after(&flags(&[]), listed(), partial.clone()).await, ["zinc: Processing"]);
    let mut complete = partial;
    complete.extend([Event::InitApply(kyma("zinc", "Warning")), Event::InitDone]);
    assert_eq!(open_after(&flags(&[]), listed(), complete.clone()).await, ["zinc: Warning"]);
    // A watch that fails and lists again begins in the same way.
    complete.extend([Event::Init, Event::InitApply(kyma("blue", "Ready"))]);
    assert_eq!(open_after(&flags(&[]), listed(), complete.clone()).await, ["zinc: Warning"]);
    complete.extend([Event::InitApply(kyma("zinc", "Ready")), Event::InitDone]);
    assert!(open_after(&flags(&[]), listed(), complete).await.is_empty());
}

#[tokio::test]
async fn a_named_kyma_that_is_gone_or_was_never_there_is_not_ready() {
    let named = flags(&["blue", "zinc"]);
    let listed = of(&[("blue", "Ready"), ("zinc", "Processing")]);
    let events = vec![watcher::Event::Delete(kyma("zinc", "Processing"))];
    assert_eq!(open_after(&named, listed, events).await, ["zinc: it does not exist"]);
    let error = named.ensure_all_exist(&of(&[("blue", "Ready")])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "zinc: there is no such Kyma in namespace kcp-system; --namespace names another one"
    );
    assert!(named.ensure_all_exist(&of(&[("blue", "Ready"), ("zinc", "Error")])).is_ok());
    assert_eq!(flags(&[]).open(&Kymas::new()), ["there is no Kyma"]);
}
