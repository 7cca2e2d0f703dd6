//! Metadata of a catalogue object that shows the cause of its deletion. Pure.

use jiff::Timestamp;
use kube::api::ObjectMeta;
use kyma_controller::may_be_garbage;

/// Fields that show whether a deletion was requested, or caused by the garbage collector, the CRD or the namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObjectOrigin {
    /// Creation time of the object.
    pub(crate) created: Option<Timestamp>,
    /// Whether the garbage collector may delete it.
    pub(crate) is_dependent: bool,
}

impl ObjectOrigin {
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        Self { created, is_dependent: may_be_garbage(meta) }
    }
}
