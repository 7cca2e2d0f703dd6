//! Limits of objects. The schemas also have those that a schema can express.

use serde::Serialize;

/// Maximum number of modules of a Kyma.
pub const MODULES: usize = 100;
/// Maximum size of `spec.modules[].values`, in bytes of JSON.
pub const USER_VALUES_BYTES: usize = 64 * 1024;
/// Maximum size of a CRD in a ModuleTemplate, in bytes of JSON.
pub const INLINE_CRD_BYTES: usize = 256 * 1024;
/// Maximum size of an object sent to a hub or target, in bytes of JSON; etcd refuses 1.5 MiB.
pub const OBJECT_BYTES: usize = 1024 * 1024;
/// Maximum number of names in a status about the fleet.
pub const FLEET_NAMES: usize = 20;
/// Maximum length of a condition message, in bytes.
pub const MESSAGE_BYTES: usize = 4096;

/// Reports whether `value` takes at most `limit` bytes as JSON. Returns false if it cannot be serialized.
pub fn fits<T: Serialize>(value: &T, limit: usize) -> bool {
    serde_json::to_vec(value).is_ok_and(|json| json.len() <= limit)
}
