//! Watched objects, events of watches, and their receivers.

use std::time::Duration;

use kube::{
    api::ApiResource,
    core::{DynamicObject, GroupVersionKind},
};
use kyma_targets::SecretKey;

use crate::informer::ResourceVersion;

/// The watched objects of a target, and their content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchSpec {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural name, as in the path.
    pub plural: String,
    /// Only in this namespace; `None`: in all, or cluster-scoped.
    pub namespace: Option<String>,
    /// Label selector; `None`: all.
    pub labels: Option<String>,
    /// Field selector; `None`: all.
    pub fields: Option<String>,
    /// Only metadata, or whole objects.
    pub content: Content,
}

/// Content of the objects in watch events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Metadata, managedFields included; [`DynamicObject::data`] is null.
    Metadata,
    /// The whole object.
    Whole,
}

impl WatchSpec {
    /// Selects the metadata of all objects of a kind.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::api::ApiResource;
    /// use kyma_controller::WatchSpec;
    ///
    /// let owned = WatchSpec::in_kind(&ApiResource::erase::<ConfigMap>(&())).owned();
    /// assert_eq!((owned.kind.as_str(), owned.plural.as_str()), ("ConfigMap", "configmaps"));
    /// ```
    pub fn in_kind(resource: &ApiResource) -> Self {
        let ApiResource { group, version, kind, plural, .. } = resource.clone();
        Self {
            group,
            version,
            kind,
            plural,
            namespace: None,
            labels: None,
            fields: None,
            content: Content::Metadata,
        }
    }

    /// Limits the watch to objects with an owner label. One stream serves all components on a target.
    pub fn owned(self) -> Self {
        self.marked(kyma_api::labels::OWNER)
    }

    /// Limits the watch to objects with this label. Its value is the hash of an owner: only this owner is notified
    /// of the object.
    pub fn marked(mut self, label: &str) -> Self {
        self.labels = Some(label.to_owned());
        self
    }

    /// Returns the kind in kube's form.
    pub fn resource(&self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        ApiResource::from_gvk_with_plural(&gvk, &self.plural)
    }
}

/// Event of a watch.
#[derive(Clone, Debug)]
pub enum ObjectEvent {
    /// The complete list, at the start and after every gap. Objects that it lacks are gone.
    Listed {
        /// All objects.
        objects: Vec<DynamicObject>,
        /// The resourceVersion of the list.
        version: String,
    },
    /// One object is new or changed.
    Applied(Box<DynamicObject>),
    /// One object is gone.
    Deleted(Box<DynamicObject>),
}

impl ObjectEvent {
    /// Returns the resourceVersion up to which the stream has delivered all events; `None` if the server's are not
    /// numeric. The versions of one kind are comparable (KEP-5504).
    pub fn revision(&self) -> Option<ResourceVersion> {
        match self {
            Self::Listed { version, .. } => ResourceVersion::parse(version),
            Self::Applied(object) | Self::Deleted(object) => ResourceVersion::of(&object.metadata),
        }
    }
}

/// Receiver of watch events. Called inside of the stream, so it must not block unless `is_expensive` returns true. A
/// panic in it is logged and the stream continues. A new list repeats the event after a few seconds, and after growing
/// delays while the listener panics at the list too.
///
/// `target` is the access Secret of the target, `None` for the hub itself; `dependents` are the subscribers of this
/// stream.
pub trait Listener<D>: Send + Sync + 'static {
    /// Reports whether [`on_event`](Self::on_event) is CPU-bound for this stream. It is then called on a separate
    /// thread, and the stream waits for it. Default: no.
    fn is_expensive(&self, _target: Option<&SecretKey>, _watch_spec: &WatchSpec) -> bool {
        false
    }

    /// Processes an event of a watch.
    fn on_event(
        &self,
        target: Option<&SecretKey>,
        watch_spec: &WatchSpec,
        event: &ObjectEvent,
        dependents: &[D],
    );

    /// Called when `dependent` joins a stream that was listed before: no event reports changes between its last read
    /// and the subscription. Called only for this subscriber, once per subscription. Default: does nothing.
    fn on_joined(&self, _target: Option<&SecretKey>, _watch_spec: &WatchSpec, _dependent: &D) {}

    /// Called when the target starts to refuse a watch that it allowed before, or when its answer exceeds the bounds.
    /// Only a change on the target ends that; the next event is a list. Default: does nothing.
    fn on_refused(&self, _target: Option<&SecretKey>, _watch_spec: &WatchSpec, _dependents: &[D]) {}
}

impl<D, F> Listener<D> for F
where
    F: Fn(Option<&SecretKey>, &WatchSpec, &ObjectEvent, &[D]) + Send + Sync + 'static,
{
    fn on_event(
        &self,
        target: Option<&SecretKey>,
        watch_spec: &WatchSpec,
        event: &ObjectEvent,
        dependents: &[D],
    ) {
        self(target, watch_spec, event, dependents);
    }
}

/// Maximum silence of a stream, after which it counts as dead; API servers send bookmarks about once a minute.
const WATCH_SILENCE_TIMEOUT: Duration = Duration::from_mins(3);
/// Time after which a stream is verified by a new list. Shortened at random by up to a tenth.
const VERIFY_INTERVAL: Duration = Duration::from_hours(24);

/// Times after which a stream is listed again.
#[derive(Clone, Copy, Debug)]
pub struct WatchTimes {
    /// Maximum silence before it is listed again.
    pub silence: Duration,
    /// Time after which it is listed again in any case, shortened at random by up to a tenth.
    pub verify: Duration,
}

impl Default for WatchTimes {
    /// 3 minutes, since apiservers send bookmarks about once a minute; 24 hours.
    fn default() -> Self {
        Self { silence: WATCH_SILENCE_TIMEOUT, verify: VERIFY_INTERVAL }
    }
}
