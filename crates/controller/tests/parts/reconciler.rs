//! Reconciles that events trigger.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use kube_runtime::reflector::ObjectRef;
use kyma_api::Reason;
use kyma_controller::{Change, Failure, Reconciler, Runtime, Settings, Wait};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testbed::until;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::{SOON, cluster, runtime};

/// Time for which a reconcile waits for a second one in parallel.
const ALONE: Duration = Duration::from_millis(300);

/// A controller of the ConfigMaps in a namespace of its own, and its recorded calls.
struct Stage {
    runtime: Runtime,
    maps: Api<ConfigMap>,
    trigger: kyma_controller::Trigger<ObjectRef<ConfigMap>>,
    seen: Arc<Mutex<HashMap<String, usize>>>,
    gone: Arc<Mutex<Vec<String>>>,
    verifications: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
    namespace: String,
}

impl Stage {
    async fn new<F, Fut>(name: &str, reconcile: F) -> Result<Self>
    where
        F: Fn(String, usize) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Wait, Failure>> + Send + 'static,
    {
        Self::with_resync(name, Duration::from_hours(24), reconcile).await
    }

    async fn with_resync<F, Fut>(name: &str, resync: Duration, reconcile: F) -> Result<Self>
    where
        F: Fn(String, usize) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Wait, Failure>> + Send + 'static,
    {
        Self::with(name, |settings| settings.resync = resync, reconcile).await
    }

    async fn with<F, Fut>(name: &str, set: impl FnOnce(&mut Settings), reconcile: F) -> Result<Self>
    where
        F: Fn(String, usize) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Wait, Failure>> + Send + 'static,
    {
        let cluster = cluster().await?;
        let namespace = cluster.namespace(name).await?;
        let mut runtime = runtime(&cluster, &namespace).await?;
        set(Arc::make_mut(&mut runtime.settings));
        let (seen, gone) =
            (Arc::<Mutex<HashMap<String, usize>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (counted, ended) = (Arc::clone(&seen), Arc::clone(&gone));
        let verifications = Arc::<Mutex<Vec<String>>>::default();
        let verified = Arc::clone(&verifications);
        let reconciler = Reconciler::<ConfigMap>::new(&runtime).on_change(move |change| {
            if let Change::Deleted(key) = change {
                ended.lock().push(key.name.clone());
            }
        });
        let trigger = reconciler.trigger();
        let task = tokio::spawn(reconciler.run(move |map, context| {
            let name = map.name_any();
            let times = {
                let mut seen = counted.lock();
                let times = seen.entry(name.clone()).or_default();
                *times += 1;
                *times
            };
            verified.lock().extend(context.verifies().then(|| name.clone()));
            context.repaired(1);
            reconcile(name, times)
        }));
        let maps = Api::namespaced(cluster.client()?, &namespace);
        Ok(Self { runtime, maps, trigger, seen, gone, verifications, task, namespace })
    }

    async fn put(&self, name: &str, mut metadata: Value, data: Value) -> Result<()> {
        metadata["name"] = name.into();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        self.maps.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&map)).await?;
        Ok(())
    }

    fn times(&self, name: &str) -> usize {
        self.seen.lock().get(name).copied().unwrap_or_default()
    }

    async fn until_times(&self, name: &str, times: usize) -> Result<()> {
        until(&format!("{name} was reconciled {times} times"), SOON, || async {
            Ok((self.times(name) >= times).then_some(()))
        })
        .await
    }

    async fn stop(self) -> Result<()> {
        self.runtime.process.shutdown.cancel();
        tokio::time::timeout(SOON, self.task).await??;
        Ok(())
    }
}

#[tokio::test]
async fn failures_back_off_and_a_later_success_ends_them() -> Result<()> {
    let stage = Stage::new("backoff", |name, times| async move {
        match (name.as_str(), times) {
            ("passes", 1 | 2) => Err(Failure::new(Reason::HubUnavailable, "not yet")),
            ("blocked", _) => Err(Failure::new(Reason::DeletionBlocked, "waits for an event")),
            _ => Ok(Wait::Event),
        }
    })
    .await?;
    stage.put("blocked", json!({}), json!({})).await?;
    stage.put("passes", json!({}), json!({})).await?;
    stage.until_times("passes", 3).await?;
    assert_eq!(stage.times("blocked"), 1);
    let key = ObjectRef::new("blocked").within(&stage.namespace);
    stage.trigger.enqueue(key);
    stage.until_times("blocked", 2).await?;
    let counted = stage.runtime.process.metrics.render()?;
    let line =
        r#"reconcile_failures_total{class="Transient",operator="test-operator",reason="HubUnavailable"} 2"#;
    assert!(counted.contains(line), "{counted}");
    stage.stop().await
}

#[tokio::test]
async fn panic_for_one_object_fails_its_reconcile_alone() -> Result<()> {
    let stage = Stage::new("panics", |name: String, times| async move {
        assert!(name != "bad" || times > 2, "the reconcile of this object panics");
        Ok(Wait::Event)
    })
    .await?;
    stage.put("bad", json!({}), json!({})).await?;
    stage.until_times("bad", 1).await?;
    stage.put("good", json!({}), json!({})).await?;
    stage.until_times("good", 1).await?;
    stage.until_times("bad", 3).await?;
    stage.put("good", json!({"labels": {"a": "b"}}), json!({})).await?;
    stage.until_times("good", 2).await?;
    stage.stop().await
}

#[tokio::test]
async fn pass_that_awaits_first_answer_does_not_reset_the_backoff() -> Result<()> {
    let stage = Stage::new("answer", |_, times| async move {
        if times.is_multiple_of(2) {
            return Err(Failure::new(Reason::HubUnavailable, "not yet"));
        }
        Ok(Wait::Answer(Duration::ZERO))
    })
    .await?;
    let start = Instant::now();
    stage.put("a", json!({}), json!({})).await?;
    stage.until_times("a", 9).await?;
    // Four failures in a row wait for at least 0.25 + 0.5 + 1 + 2 s; if the count were reset each time, for at most
    // 2 s.
    assert!(start.elapsed() >= Duration::from_millis(3750), "{:?}", start.elapsed());
    stage.stop().await
}

#[tokio::test]
async fn only_changes_of_what_decides_come_back() -> Result<()> {
    let stage = Stage::new("changes", |_, _| async { Ok(Wait::Event) }).await?;
    stage.put("a", json!({}), json!({"report": "1"})).await?;
    stage.until_times("a", 1).await?;
    // Changes neither generation nor labels, annotations or finalizers, like a status write.
    stage.put("a", json!({}), json!({"report": "2"})).await?;
    stage.put("a", json!({"labels": {"x": "y"}}), json!({"report": "2"})).await?;
    stage.until_times("a", 2).await?;
    stage.put("a", json!({"labels": {"x": "y"}, "finalizers": ["x.io/y"]}), json!({"report": "2"})).await?;
    stage.until_times("a", 3).await?;
    assert_eq!(stage.times("a"), 3);
    stage.stop().await
}

#[tokio::test]
async fn unchanged_objects_are_verified_and_repairs_are_counted() -> Result<()> {
    let resync = Duration::from_secs(1);
    let stage = Stage::with_resync("verify", resync, |_, _| async { Ok(Wait::Event) }).await?;
    stage.put("a", json!({}), json!({})).await?;
    stage.until_times("a", 1).await?;
    let metrics = stage.runtime.process.metrics.clone();
    until("nothing happened for as long as the resync", SOON, || async {
        Ok((!stage.verifications.lock().is_empty()).then_some(()))
    })
    .await?;
    let repairs = || -> Result<usize> {
        let text = metrics.render()?;
        let metric = r#"verification_repairs_total{operator="test-operator"} "#;
        let count = text.lines().find_map(|line| line.strip_prefix(metric)).context("the metric")?;
        Ok(count.parse()?)
    };
    let counted = until("its repair is counted", SOON, || async {
        let counted = repairs()?;
        Ok((counted > 0).then_some(counted))
    });
    let counted = counted.await?;
    {
        // The record of the brake is a ConfigMap of this namespace, which is reconciled, too.
        let seen = stage.seen.lock();
        let repeated = seen.values().sum::<usize>() - seen.len();
        assert!(counted <= repeated, "the first pass verifies nothing: {counted} repairs, {seen:?}");
    }
    stage.stop().await
}

#[tokio::test]
async fn hanging_reconcile_is_cancelled_and_costs_only_its_slot() -> Result<()> {
    let running = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let counted = Arc::clone(&running);
    let set = |settings: &mut Settings| {
        settings.resync = Duration::from_hours(24);
        settings.reconcile_deadline = Duration::from_secs(2);
    };
    let stage = Stage::with("deadline", set, move |name, times| {
        let counted = Arc::clone(&counted);
        async move {
            let now = counted.0.fetch_add(1, Ordering::SeqCst) + 1;
            counted.1.fetch_max(now, Ordering::SeqCst);
            if name == "hangs" && times == 1 {
                let held = scopeguard(&counted);
                std::future::pending::<()>().await;
                drop(held);
            }
            // Lets other tasks run while this one is counted.
            tokio::task::yield_now().await;
            counted.0.fetch_sub(1, Ordering::SeqCst);
            Ok(Wait::Event)
        }
    })
    .await?;
    stage.put("hangs", json!({}), json!({})).await?;
    for number in 0..20 {
        stage.put(&format!("works-{number}"), json!({}), json!({})).await?;
    }
    for number in 0..20 {
        stage.until_times(&format!("works-{number}"), 1).await?;
    }
    stage.until_times("hangs", 2).await?;
    assert!(running.1.load(Ordering::SeqCst) <= 2, "concurrency is 2");
    stage.stop().await
}

#[tokio::test]
async fn what_hangs_when_the_process_is_to_stop_is_cut_off_in_seconds() -> Result<()> {
    let set = |settings: &mut Settings| {
        settings.resync = Duration::from_hours(24);
        settings.reconcile_deadline = Duration::from_hours(1);
    };
    let stage = Stage::with("stop", set, |_, _| std::future::pending()).await?;
    stage.put("hangs", json!({}), json!({})).await?;
    stage.until_times("hangs", 1).await?;
    stage.stop().await
}

/// Counts down when the reconcile is dropped at its deadline.
fn scopeguard(counted: &Arc<(AtomicUsize, AtomicUsize)>) -> impl Drop + use<> {
    struct Guard(Arc<(AtomicUsize, AtomicUsize)>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    Guard(Arc::clone(counted))
}

#[tokio::test]
async fn what_is_gone_is_told_and_a_push_for_it_does_nothing() -> Result<()> {
    let stage = Stage::new("gone", |_, _| async { Ok(Wait::Event) }).await?;
    stage.put("a", json!({}), json!({})).await?;
    stage.until_times("a", 1).await?;
    stage.maps.delete("a", &DeleteParams::default()).await?;
    until("it is told", SOON, || async { Ok(stage.gone.lock().contains(&"a".to_owned()).then_some(())) })
        .await?;
    stage.trigger.enqueue(ObjectRef::new("a").within(&stage.namespace));
    stage.put("b", json!({}), json!({})).await?;
    stage.until_times("b", 1).await?;
    assert_eq!(stage.times("a"), 1);
    assert_eq!(stage.runtime.process.health.missing(), [""; 0]);
    stage.stop().await
}

#[tokio::test]
async fn targets_that_do_not_answer_leave_the_slots_to_those_that_do() -> Result<()> {
    let hanging = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let counted = Arc::clone(&hanging);
    let entered = Arc::new(Notify::new());
    let stage = Stage::new("silent", move |name, times| {
        let (counted, entered) = (Arc::clone(&counted), Arc::clone(&entered));
        async move {
            let silent = Err(Failure::new(Reason::TargetTimeout, "no answer"));
            if name.starts_with("works") || times > 2 {
                return Ok(Wait::Event);
            }
            if times == 2 {
                let now = counted.0.fetch_add(1, Ordering::SeqCst) + 1;
                counted.1.fetch_max(now, Ordering::SeqCst);
                // A second reconcile in the meantime ends the wait; only the deadline can show that there is none.
                entered.notify_waiters();
                tokio::time::timeout(ALONE, entered.notified()).await.ok();
                counted.0.fetch_sub(1, Ordering::SeqCst);
            }
            silent
        }
    })
    .await?;
    for number in 0..6 {
        stage.put(&format!("silent-{number}"), json!({}), json!({})).await?;
    }
    for number in 0..6 {
        stage.until_times(&format!("silent-{number}"), 3).await?;
    }
    assert_eq!(hanging.1.load(Ordering::SeqCst), 1, "one of two slots is for them");
    stage.stop().await
}
