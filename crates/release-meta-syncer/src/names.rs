//! Names of release-meta-syncer on the hub and on targets.

/// Field manager of all writes, on the hub and on targets.
pub const FIELD_MANAGER: &str = "release-meta-syncer";
