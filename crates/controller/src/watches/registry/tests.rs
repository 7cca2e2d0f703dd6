//! Tests of the calls of a listener.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ApiResource;

use super::*;

type Dependent = &'static str;

/// Subscribers of the recorded calls.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Vec<Dependent>>>>);

impl Calls {
    fn all(&self) -> Vec<Vec<Dependent>> {
        self.0.lock().clone()
    }
}

/// Records calls of `on_event`. The first calls of `is_expensive` panic.
struct RecordingListener {
    calls: Calls,
    panics_left: Mutex<usize>,
}

impl Listener<Dependent> for RecordingListener {
    fn is_expensive(&self, _target: Option<&SecretKey>, _watch_spec: &WatchSpec) -> bool {
        let mut left = self.panics_left.lock();
        let panics = *left > 0;
        *left = left.saturating_sub(1);
        assert!(!panics, "the test wants this panic");
        false
    }

    fn on_event(&self, _: Option<&SecretKey>, _: &WatchSpec, _: &ObjectEvent, dependents: &[Dependent]) {
        self.calls.0.lock().push(dependents.to_vec());
    }
}

fn watches(panics_left: usize) -> (Watches<Dependent>, Calls) {
    let calls = Calls::default();
    let listener = RecordingListener { calls: calls.clone(), panics_left: Mutex::new(panics_left) };
    (Watches::new("test", &Process::new().unwrap(), listener), calls)
}

fn key() -> Key {
    Key { target: None, watch_spec: WatchSpec::in_kind(&ApiResource::erase::<ConfigMap>(&())) }
}

/// Replaces the stream of [`key`] by one that sends nothing by itself.
fn replace_stream(watches: &Watches<Dependent>, dependent: Dependent) -> StreamIdentity {
    let pulse = Pulse::new(Duration::from_mins(1));
    let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
    let open = OpenStream { dependents: Arc::from([dependent]), pulse: Arc::clone(&pulse), task };
    let mut registry = watches.registry();
    registry.remove(&key());
    registry.insert(&key(), open);
    StreamIdentity { key: key(), pulse }
}

fn empty_list() -> ObjectEvent {
    ObjectEvent::Listed { objects: Vec::new(), version: "1".to_owned() }
}

#[tokio::test]
async fn late_event_of_an_ended_stream_does_not_reach_the_next_one() {
    let (watches, calls) = watches(0);
    let ended = replace_stream(&watches, "one");
    let open = replace_stream(&watches, "two");
    assert!(watches.notify(&ended, empty_list()).await, "no list repeats it");
    assert_eq!(calls.all(), Vec::<Vec<Dependent>>::new());
    assert!(watches.notify(&open, empty_list()).await);
    assert_eq!(calls.all(), [vec!["two"]]);
}

#[tokio::test]
async fn event_is_repeated_if_is_expensive_panicked() {
    let (watches, calls) = watches(1);
    let stream = replace_stream(&watches, "one");
    assert!(!watches.notify(&stream, empty_list()).await);
    assert!(watches.notify(&stream, empty_list()).await);
    assert_eq!(calls.all(), [vec!["one"]]);
}
