//! Watches on targets.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, Patch, PatchParams},
};
use kyma_api::Reason;
use kyma_controller::{Content, Listener, ObjectEvent, Process, WatchSpec, WatchTimes, Watches};
use kyma_targets::{Grant, SecretKey};
use parking_lot::Mutex;
use serde_json::json;
use testbed::{Answer, Cluster, RequestMatcher, ScriptedServer, until};

use crate::{SOON, cluster, target};

/// Deadline for a stream after an outage. Probes of a target are up to 120 s apart.
const RECOVERY_DEADLINE: Duration = Duration::from_mins(3);

type Dependent = &'static str;

/// Recorded events, one entry each: `listed a,b`, `applied a`, `deleted a`.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Entry>>>);

type Entry = (String, Vec<Dependent>);

impl Log {
    fn watches(&self, silence: Duration) -> Watches<Dependent> {
        self.watches_within(WatchTimes { silence, ..WatchTimes::default() }, &Process::new().unwrap())
    }

    fn watches_within(&self, times: WatchTimes, process: &Process) -> Watches<Dependent> {
        let log = self.clone();
        let listener =
            move |_: Option<&SecretKey>, _: &WatchSpec, event: &ObjectEvent, dependents: &[Dependent]| {
                log.0.lock().push((word(event), dependents.to_vec()));
            };
        Watches::with_times("test", process, times, listener)
    }

    async fn until(&self, wanted: &str) -> Result<Vec<Dependent>> {
        until(wanted, SOON, || async {
            let seen = self.0.lock();
            Ok(seen.iter().rev().find(|(word, _)| word == wanted).map(|(_, dependents)| dependents.clone()))
        })
        .await
    }

    fn count(&self, wanted: &str) -> usize {
        self.0.lock().iter().filter(|(word, _)| word == wanted).count()
    }
}

fn word(event: &ObjectEvent) -> String {
    match event {
        ObjectEvent::Listed { objects, .. } => {
            let names: Vec<String> = objects.iter().map(ResourceExt::name_any).collect();
            format!("listed {}", names.join(","))
        }
        ObjectEvent::Applied(object) => format!("applied {}", object.name_any()),
        ObjectEvent::Deleted(object) => format!("deleted {}", object.name_any()),
    }
}

fn maps_in(namespace: &str) -> WatchSpec {
    let mut watch_spec = WatchSpec::in_kind(&ApiResource::erase::<ConfigMap>(&()));
    watch_spec.namespace = Some(namespace.to_owned());
    watch_spec.fields = Some("metadata.name!=kube-root-ca.crt".to_owned());
    watch_spec
}

async fn put(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client()?, namespace);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    maps.patch(name, &PatchParams::apply("test"), &Patch::Apply(&map)).await?;
    Ok(())
}

/// A scripted server in front of a cluster, with a namespace of the test's own.
struct Front {
    cluster: Cluster,
    namespace: String,
    server: ScriptedServer,
    /// Path of the ConfigMaps in the namespace.
    path: String,
}

impl Front {
    async fn of(name: &str) -> Result<Self> {
        let cluster = cluster().await?;
        let namespace = cluster.namespace(name).await?;
        let server = ScriptedServer::in_front_of(&cluster).await?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        Ok(Self { cluster, namespace, server, path })
    }
}

#[tokio::test]
async fn quiet_watch_is_verified_by_a_separate_list_without_a_gap() -> Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.namespace("verified").await?;
    let target = target("verified", cluster.admin())?;
    let (log, process) = (Log::default(), Process::new()?);
    let times = WatchTimes { verify: Duration::from_secs(1), ..WatchTimes::default() };
    let watches = log.watches_within(times, &process);
    put(&cluster, &namespace, "a").await?;
    watches.subscribe(&target, &"x", [maps_in(&namespace)])?;
    until("it is listed again, and again", SOON, || async { Ok((log.count("listed a") >= 3).then_some(())) })
        .await?;
    let text = process.metrics.render()?;
    assert!(text.contains(r#"target_watch_missed_total{operator="test"} 0"#), "{text}");
    assert!(!text.contains("target_watch_restarts_total"), "{text}");
    Ok(())
}

#[tokio::test]
async fn streams_end_with_the_process() -> Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.namespace("ended").await?;
    let target = target("ended", cluster.admin())?;
    let (ended, process) = (Log::default(), Process::new()?);
    let of_process = ended.watches_within(WatchTimes::default(), &process);
    put(&cluster, &namespace, "before").await?;
    of_process.subscribe(&target, &"x", [maps_in(&namespace)])?;
    ended.until("listed before").await?;
    process.shutdown.cancel();
    let other = Log::default();
    let watches = other.watches(SOON);
    watches.subscribe(&target, &"y", [maps_in(&namespace)])?;
    other.until("listed before").await?;
    for name in ["after", "later"] {
        put(&cluster, &namespace, name).await?;
        other.until(&format!("applied {name}")).await?;
    }
    assert_eq!(ended.count("applied after"), 0);
    Ok(())
}

#[tokio::test]
async fn one_stream_serves_all_who_want_it_and_ends_with_the_last() -> Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.namespace("shared").await?;
    let target = target("shared", cluster.admin())?;
    let log = Log::default();
    let watches = log.watches(SOON);
    put(&cluster, &namespace, "before").await?;
    let watch_spec = || [maps_in(&namespace)];
    assert!(!watches.is_healthy(&target, watch_spec()));
    watches.subscribe(&target, &"one", watch_spec())?;
    assert_eq!(log.until("listed before").await?, ["one"]);
    watches.subscribe(&target, &"two", watch_spec())?;
    assert_eq!(watches.count(), 1);
    put(&cluster, &namespace, "after").await?;
    assert_eq!(log.until("applied after").await?, ["one", "two"]);
    assert!(watches.is_healthy(&target, watch_spec()));
    watches.unsubscribe(&"one");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client()?, &namespace);
    maps.delete("after", &DeleteParams::default()).await?;
    assert_eq!(log.until("deleted after").await?, ["two"]);
    watches.subscribe(&target, &"two", [])?;
    assert_eq!((watches.count(), watches.is_healthy(&target, watch_spec())), (0, false));
    Ok(())
}

#[tokio::test]
async fn whoever_joins_while_a_list_is_told_hears_of_it_too() -> Result<()> {
    type Join = Box<dyn Fn() + Send + Sync>;
    let cluster = cluster().await?;
    let namespace = cluster.namespace("joined").await?;
    let target = target("joined", cluster.admin())?;
    put(&cluster, &namespace, "a").await?;
    let (log, joining) = (Log::default(), Arc::new(OnceLock::<Join>::new()));
    let (heard, join) = (log.clone(), Arc::clone(&joining));
    let listener =
        move |_: Option<&SecretKey>, _: &WatchSpec, event: &ObjectEvent, dependents: &[Dependent]| {
            if let Some(join) = join.get() {
                join();
            }
            heard.0.lock().push((word(event), dependents.to_vec()));
        };
    let watches = Watches::new("test", &Process::new()?, listener);
    let (late, through, watch_spec) = (watches.clone(), target.clone(), maps_in(&namespace));
    joining.set(Box::new(move || late.subscribe(&through, &"late", [watch_spec.clone()]).unwrap())).ok();
    watches.subscribe(&target, &"first", [maps_in(&namespace)])?;
    until("the late one is told", SOON, || async {
        let told = log.0.lock();
        Ok((*told == [("listed a".to_owned(), vec!["first"]), ("listed a".to_owned(), vec!["late"])])
            .then_some(()))
    })
    .await
}

#[tokio::test]
async fn event_at_which_the_listener_panicked_is_repeated() -> Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.namespace("panicked").await?;
    let target = target("panicked", cluster.admin())?;
    let (log, is_first) = (Log::default(), AtomicBool::new(true));
    let heard = log.clone();
    let listener =
        move |_: Option<&SecretKey>, _: &WatchSpec, event: &ObjectEvent, dependents: &[Dependent]| {
            let word = word(event);
            let panics = word == "applied b" && is_first.swap(false, Ordering::Relaxed);
            assert!(!panics, "the test wants a panic at the first event of b");
            heard.0.lock().push((word, dependents.to_vec()));
        };
    let process = Process::new()?;
    let watches = Watches::new("test", &process, listener);
    put(&cluster, &namespace, "a").await?;
    watches.subscribe(&target, &"one", [maps_in(&namespace)])?;
    log.until("listed a").await?;
    put(&cluster, &namespace, "b").await?;
    assert_eq!(log.until("listed a,b").await?, ["one"]);
    assert_eq!(log.count("applied b"), 0);
    assert!(watches.is_healthy(&target, [maps_in(&namespace)]));
    let text = process.metrics.render()?;
    assert!(text.contains(r#"target_watch_missed_total{operator="test"} 0"#), "{text}");
    Ok(())
}

/// Records events as [`Log`] does, and `joined` for a subscriber that joins a listed stream.
struct JoinLog(Log);

impl Listener<Dependent> for JoinLog {
    fn on_event(&self, _: Option<&SecretKey>, _: &WatchSpec, event: &ObjectEvent, dependents: &[Dependent]) {
        self.0.0.lock().push((word(event), dependents.to_vec()));
    }

    fn on_joined(&self, _: Option<&SecretKey>, _: &WatchSpec, dependent: &Dependent) {
        self.0.0.lock().push(("joined".to_owned(), vec![*dependent]));
    }
}

#[tokio::test]
async fn joiner_of_a_listed_stream_gets_one_event_for_itself() -> Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.namespace("joiner").await?;
    let target = target("joiner", cluster.admin())?;
    let log = Log::default();
    let watches = Watches::new("test", &Process::new()?, JoinLog(log.clone()));
    put(&cluster, &namespace, "a").await?;
    watches.subscribe(&target, &"first", [maps_in(&namespace)])?;
    log.until("listed a").await?;
    assert_eq!(log.count("joined"), 0, "the first subscriber gets the list");
    watches.subscribe(&target, &"late", [maps_in(&namespace)])?;
    assert_eq!(log.until("joined").await?, ["late"]);
    for dependent in ["first", "late"] {
        watches.subscribe(&target, &dependent, [maps_in(&namespace)])?;
    }
    assert_eq!(log.count("joined"), 1, "both are subscribed already");
    let seen = log.0.lock().clone();
    let of_first = seen.iter().filter(|(_, dependents)| dependents.contains(&"first"));
    assert_eq!(of_first.count(), 1, "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn joiner_of_a_stream_without_list_waits_for_the_list() -> Result<()> {
    let server = ScriptedServer::start().await?;
    server.always(RequestMatcher::any(), Answer::failure(503, "ServiceUnavailable", "down"));
    let target = target("unlisted", server.access())?;
    let log = Log::default();
    let watches = Watches::new("test", &Process::new()?, JoinLog(log.clone()));
    for dependent in ["first", "late"] {
        watches.subscribe(&target, &dependent, [maps_in("default")])?;
    }
    assert_eq!((watches.count(), log.count("joined")), (1, 0));
    Ok(())
}

/// Returns the `Accept` headers of lists and watches with this content.
async fn accepted(name: &str, content: Content) -> Result<BTreeSet<String>> {
    let Front { cluster, namespace, server, path } = Front::of(name).await?;
    let target = target(name, server.access())?;
    let log = Log::default();
    let watches = log.watches(SOON);
    watches.subscribe(&target, &"one", [WatchSpec { content, ..maps_in(&namespace) }])?;
    log.until("listed ").await?;
    put(&cluster, &namespace, "new").await?;
    log.until("applied new").await?;
    let asked = server.requests().into_iter().filter(|request| request.path == path);
    Ok(asked.map(|request| request.accept).collect())
}

#[tokio::test]
async fn of_objects_whose_metadata_is_enough_no_more_is_asked_for() -> Result<()> {
    let part = "as=PartialObjectMetadata";
    let metadata = accepted("metadata", Content::Metadata).await?;
    let kinds: BTreeSet<&str> = metadata.iter().filter_map(|one| one.split(';').nth(1)).collect();
    let list = format!("{part}List");
    assert_eq!(kinds, BTreeSet::from([part, list.as_str()]), "{metadata:?}");
    assert_eq!(metadata.len(), 2, "{metadata:?}");
    let whole = accepted("whole", Content::Whole).await?;
    assert!(!whole.is_empty() && whole.iter().all(|one| !one.contains(part)), "{whole:?}");
    Ok(())
}

#[tokio::test]
async fn an_expired_watch_is_listed_anew_and_nothing_is_missed() -> Result<()> {
    let Front { cluster, namespace, server, path } = Front::of("expired").await?;
    server.next(1, RequestMatcher::watch(&path), Answer::watch_expired());
    server.next(1, RequestMatcher::watch(&path), Answer::expired());
    let target = target("expired", server.access())?;
    let log = Log::default();
    let watches = log.watches(SOON);
    watches.subscribe(&target, &"one", [maps_in(&namespace)])?;
    until("the list came three times", SOON, || async { Ok((log.count("listed ") == 3).then_some(())) })
        .await?;
    put(&cluster, &namespace, "new").await?;
    log.until("applied new").await?;
    Ok(())
}

#[tokio::test]
async fn watch_that_broke_ahead_of_a_restored_target_is_relisted() -> Result<()> {
    let Front { cluster, namespace, server, path } = Front::of("restored").await?;
    // An event that the target sent before it was restored to an earlier state.
    let lost = json!({"type": "ADDED", "object": {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "lost", "namespace": namespace, "uid": "u", "resourceVersion": "999999999999"},
    }});
    server.next(1, RequestMatcher::watch(&path), Answer::raw(format!("{lost}\n")));
    let target = target("restored", server.access())?;
    let log = Log::default();
    let watches = log.watches(SOON);
    watches.subscribe(&target, &"one", [maps_in(&namespace)])?;
    log.until("applied lost").await?;
    until("it was listed anew", SOON, || async { Ok((log.count("listed ") == 2).then_some(())) }).await?;
    put(&cluster, &namespace, "new").await?;
    log.until("applied new").await?;
    Ok(())
}

#[tokio::test]
async fn event_without_version_shows_why_the_stream_is_not_healthy() -> Result<()> {
    let front = Front::of("versionless").await?;
    let event = json!({"type": "ADDED", "object": {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "odd", "namespace": front.namespace, "uid": "u"},
    }});
    front.server.always(RequestMatcher::watch(&front.path), Answer::raw(format!("{event}\n")));
    let target = target("versionless", front.server.access())?;
    let log = Log::default();
    let watches = log.watches(SOON);
    watches.subscribe(&target, &"one", [maps_in(&front.namespace)])?;
    until("the cause is known", SOON, || async {
        let unhealthy = watches.unhealthy(&target, [maps_in(&front.namespace)]);
        let reasons: Vec<Reason> = unhealthy.into_iter().filter_map(|(_, why)| Some(why?.reason)).collect();
        Ok((reasons == [Reason::TargetAnswerInvalid]).then_some(()))
    })
    .await?;
    assert_eq!(log.count("applied odd"), 0);
    Ok(())
}

/// A role with `resourceNames` refuses a list without the name as field selector.
#[tokio::test]
async fn every_request_of_a_watch_that_ends_early_has_its_selectors() -> Result<()> {
    let Front { cluster, namespace, server, path } = Front::of("selected").await?;
    server.next(1, RequestMatcher::watch(&path), Answer::raw(String::new()));
    let target = target("selected", server.access())?;
    let log = Log::default();
    let watches = log.watches(SOON);
    watches.subscribe(&target, &"one", [maps_in(&namespace)])?;
    log.until("listed ").await?;
    put(&cluster, &namespace, "new").await?;
    log.until("applied new").await?;
    assert_eq!(log.count("listed "), 1, "the watch continues without a list");
    let seen = server.requests();
    let requests: Vec<_> = seen.iter().filter(|request| request.path == path).collect();
    let looks_at_version = |query: &str| query.split('&').any(|part| part == "limit=1");
    assert!(requests.iter().any(|request| looks_at_version(&request.query)), "{requests:?}");
    assert!(requests.iter().all(|request| request.query.contains("fieldSelector=")), "{requests:?}");
    Ok(())
}

#[tokio::test]
async fn a_silent_stream_is_not_trusted() -> Result<()> {
    let Front { cluster, namespace, server, path } = Front::of("silent").await?;
    server.next(1, RequestMatcher::watch(&path), Answer::watch(&[]));
    let target = target("silent", server.access())?;
    let log = Log::default();
    let watches = log.watches(Duration::from_millis(500));
    watches.subscribe(&target, &"one", [maps_in(&namespace)])?;
    log.until("listed ").await?;
    put(&cluster, &namespace, "unseen").await?;
    until("what the silent stream hid is found", SOON, || async {
        Ok((log.count("listed unseen") > 0).then_some(()))
    })
    .await
}

#[tokio::test]
async fn refused_watch_names_reason_and_a_list_alone_is_no_recovery() -> Result<()> {
    let Front { cluster, namespace, server, path } = Front::of("refused").await?;
    server.always(RequestMatcher::watch(&path), Answer::failure(403, "Forbidden", "no"));
    let target = target("refused", server.access())?;
    let log = Log::default();
    let watches = log.watches(SOON);
    watches.subscribe(&target, &"one", [maps_in(&namespace)])?;
    let refusals = || server.count(&RequestMatcher::watch(&path));
    until("it is tried again, and again", SOON, || async { Ok((refusals() >= 4).then_some(())) }).await?;
    assert_eq!(log.count("listed "), 1, "a list alone is no recovery");
    let unhealthy = watches.unhealthy(&target, [maps_in(&namespace)]);
    let why = unhealthy.into_iter().next().and_then(|(_, why)| why).context("why")?;
    assert_eq!(why.reason, Reason::TargetForbidden);
    assert!(why.message.starts_with("watch ConfigMap: "), "{why}");
    server.clear();
    until("it is healthy", SOON, || async {
        Ok(watches.unhealthy(&target, [maps_in(&namespace)]).is_empty().then_some(()))
    })
    .await?;
    assert_eq!(log.count("listed "), 2);
    put(&cluster, &namespace, "new").await?;
    log.until("applied new").await?;
    Ok(())
}

#[tokio::test]
async fn an_outage_is_survived_and_what_happened_meanwhile_is_seen() -> Result<()> {
    let cluster = crate::TEST_ENV.cluster("outage", |cluster| cluster).await?;
    let target = target("outage", cluster.admin())?;
    let log = Log::default();
    let watches = log.watches(SOON);
    let watch_spec = || [maps_in("default")];
    watches.subscribe(&target, &"one", watch_spec())?;
    log.until("listed ").await?;
    cluster.stop();
    until("the stream is not trusted any more", SOON, || async {
        Ok((!watches.is_healthy(&target, watch_spec())).then_some(()))
    })
    .await?;
    cluster.start_again().await?;
    put(&cluster, "default", "meanwhile").await?;
    until("the change is seen", RECOVERY_DEADLINE, || async {
        Ok((log.count("listed meanwhile") + log.count("applied meanwhile") > 0).then_some(()))
    })
    .await
}

#[tokio::test]
async fn changed_access_ends_the_streams_that_went_through_it() -> Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.namespace("rotated").await?;
    let (old, other) = (target("rotated", cluster.admin())?, target("other", cluster.admin())?);
    let log = Log::default();
    let watches = log.watches(SOON);
    watches.subscribe(&old, &"one", [maps_in(&namespace)])?;
    watches.subscribe(&other, &"two", [maps_in(&namespace)])?;
    watches.access_changed("rotated");
    assert_eq!(
        (watches.count(), watches.subscriptions(&"one").len(), watches.subscriptions(&"two").len()),
        (1, 0, 1)
    );
    watches.subscribe(&target("rotated", cluster.admin())?, &"one", [maps_in(&namespace)])?;
    until("both lists came", SOON, || async { Ok((log.count("listed ") >= 2).then_some(())) }).await
}

/// A pass that read the target before the Secret changed ends after the change.
#[tokio::test]
async fn nothing_is_opened_late_with_access_that_changed() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let watches = Log::default().watches(SOON);
    let watch_spec = || [maps_in("default")];
    let (first, second) = (Grant::default(), Grant::default());
    let old = target("rotated", server.access())?.granted(first.clone());
    watches.subscribe(&old, &"one", watch_spec())?;
    assert_eq!(watches.count(), 1);
    first.withdraw();
    watches.access_changed("rotated");
    watches.subscribe(&old, &"one", watch_spec())?;
    watches.subscribe(&old.acting_for("uid", None), &"two", watch_spec())?;
    assert_eq!((watches.count(), watches.subscriptions(&"one").len()), (0, 0));
    let new = target("rotated", server.access())?.granted(second);
    watches.subscribe(&new, &"one", watch_spec())?;
    watches.subscribe(&old, &"two", watch_spec())?;
    assert_eq!(
        (watches.count(), watches.subscriptions(&"one").len(), watches.subscriptions(&"two").len()),
        (1, 1, 0)
    );
    Ok(())
}

#[tokio::test]
async fn subscription_of_withdrawn_access_ends_with_its_stream() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let watches = Log::default().watches(SOON);
    let grant = Grant::default();
    let target = target("withdrawn", server.access())?.granted(grant.clone());
    watches.subscribe(&target, &"one", [maps_in("default")])?;
    grant.withdraw();
    watches.subscribe(&target, &"one", [maps_in("default"), maps_in("other")])?;
    assert_eq!((watches.count(), watches.subscriptions(&"one")), (1, vec![maps_in("default")]));
    watches.unsubscribe(&"one");
    assert_eq!(watches.count(), 0);
    Ok(())
}

#[tokio::test]
async fn streams_on_one_target_are_bounded() -> Result<()> {
    let server = ScriptedServer::start().await?;
    let target = target("bounded", server.access())?;
    let watches = Log::default().watches(SOON);
    let kinds = (0..200).map(|number| WatchSpec { plural: format!("kinds{number}"), ..maps_in("default") });
    let refused = watches.subscribe(&target, &"greedy", kinds.clone());
    assert!(refused.is_err());
    assert_eq!(watches.count(), 96);
    assert_eq!(
        watches.subscriptions(&"greedy"),
        kinds.take(96).collect::<Vec<_>>(),
        "the first watches have streams"
    );
    watches.unsubscribe(&"greedy");
    assert_eq!(watches.count(), 0);
    Ok(())
}
