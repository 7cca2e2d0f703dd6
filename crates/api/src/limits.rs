//! Bounds on what an object may hold. Those that a schema can express are in the schemas too.

use serde::Serialize;

/// Most modules that one Kyma may list.
pub const MODULES: usize = 100;
/// Largest `spec.modules[].values`, in bytes of JSON.
pub const USER_VALUES_BYTES: usize = 64 * 1024;
/// Largest CRD inside a ModuleTemplate, in bytes of JSON.
pub const INLINE_CRD_BYTES: usize = 256 * 1024;
/// Largest object that we send to a hub or target, in bytes of JSON; etcd refuses 1.5 MiB.
pub const OBJECT_BYTES: usize = 1024 * 1024;
/// Names in a status that spans the fleet.
pub const FLEET_NAMES: usize = 20;
/// Longest condition message that we write, in bytes.
pub const MESSAGE_BYTES: usize = 4096;

/// Whether `value` takes at most `limit` bytes as JSON. What does not serialise does not fit.
pub fn fits<T: Serialize>(value: &T, limit: usize) -> bool {
    serde_json::to_vec(value).is_ok_and(|json| json.len() <= limit)
}
