//! A session with one target: its identity is verified, the catalogue's CRDs are installed, and it is watched.
//!
//! Kept until the access Secret changes or a call fails, so that a reconcile without changes makes no calls.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use kube::api::DynamicObject;
use kyma_connection::Connection;
use kyma_controller::{ObjectEvent, WatchSpec};
use kyma_object_set::drift::fingerprint;
use parking_lot::{Mutex, MutexGuard};

use crate::copy::{Key, Kind};
use crate::names::FIELD_MANAGER;
use crate::target::memory::{Memory, ObjectVersion, WatchedObject};

/// An open session.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    memory: Mutex<Memory>,
    verified: Mutex<Option<Instant>>,
}

impl Session {
    /// Creates a session without any state of the target.
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, memory: Mutex::default(), verified: Mutex::default() }
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// Records that the whole target was read.
    pub(crate) fn is_verified(&self) {
        *self.verified.lock() = Some(Instant::now());
    }

    /// Returns the time since the whole target was read.
    pub(crate) fn age(&self) -> Duration {
        let verified = *self.verified.lock();
        verified.map_or(Duration::MAX, |verified| verified.elapsed())
    }
}

/// Records a watch event. Returns true if the target must be read again.
pub(crate) fn record_event(session: &Session, watch_spec: &WatchSpec, event: &ObjectEvent) -> bool {
    let kind = Kind::BOTH.into_iter().find(|kind| kind.resource().plural == watch_spec.plural);
    let watched = |object: &DynamicObject| {
        let name = object.name_any();
        kind.map_or_else(
            || WatchedObject::Crd(name.clone()),
            |kind| WatchedObject::Copy(Key { kind, name: name.clone() }),
        )
    };
    let mut memory = session.memory();
    match event {
        // CRDs of other operators have the same label.
        ObjectEvent::Applied(object) => memory.record_event(watched(object), Some(version_of(object))),
        ObjectEvent::Deleted(object) => memory.record_event(watched(object), None),
        ObjectEvent::Listed { objects, .. } => {
            let seen = objects.iter().map(|object| (watched(object), version_of(object))).collect();
            memory.listed(seen, kind)
        }
    }
}

pub(crate) fn version_of(object: &DynamicObject) -> ObjectVersion {
    ObjectVersion {
        uid: object.uid().unwrap_or_default(),
        fingerprint: fingerprint(&object.metadata, FIELD_MANAGER),
    }
}
