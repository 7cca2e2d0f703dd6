//! Log output of the runtime. The only test of its process: `tracing` caches for each callsite, for all threads,
//! whether a subscriber is interested, so a parallel test could disable the callsite.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DeserializeGuard;
use parking_lot::Mutex;
use serde_json::json;
use tracing::field::{Field, Visit};

/// Collects the text of all log records.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().push_str(&format!("{value:?} "));
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn what_is_logged_of_an_unreadable_object_quotes_no_value() {
    let object = json!({"metadata": {"name": "a"}, "data": "s3cret"});
    let unreadable: DeserializeGuard<ConfigMap> = serde_json::from_value(object).unwrap();
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || {
        assert!(kyma_controller::decode_or_log(unreadable).is_none());
    });
    let text = log.0.lock().clone();
    assert!(text.contains("cannot be read") && !text.contains("s3cret"), "{text}");
}
