//! A connection for unit tests of an operator.

use kyma_api::{SecretKeyRef, TargetIdentity};
use kyma_controller::Runtime;

use crate::connection::Connection;

/// Returns a connection to the hub as target, whose identity is not verified. It needs neither a cluster nor a network
/// with the runtime of [`kyma_controller::testing::unconnected_runtime`].
pub fn unverified_connection(runtime: &Runtime, access: SecretKeyRef) -> Connection {
    let target = runtime.access.local();
    let verified = target.connection();
    Connection::new(access, target, TargetIdentity::default(), verified)
}
