//! Opens connections: from the access Secret to a verified target with a stamp.

use std::sync::Arc;

use kyma_api::{Kyma, SecretKeyRef, TargetIdentity};
use kyma_controller::{Failure, KymaAccess, KymaKey, fence_of};
use kyma_targets::{STAMP_NAMESPACE, Target};

use crate::connection::Connection;
use crate::connector::Connector;
use crate::namespace::ensure_namespace;
use crate::verification::{TargetVerification, verify_recorded_target, verify_target};

/// Returns the access Secret of a Kyma: the one that it names, or else the one labelled for it.
///
/// # Errors
/// There is none, or several are labelled for the Kyma.
pub fn access_of<C: Connector>(connector: &C, kyma: &Kyma) -> Result<SecretKeyRef, Failure> {
    let access = KymaAccess::known(&connector.runtime().access, kyma);
    connector.record_access_secrets(&KymaKey::of(kyma), access.secrets);
    access.chosen
}

/// Opens a connection to the target of a Kyma. Verifies that it is the recorded cluster and not owned by another Kyma,
/// records a first contact on the hub, and writes the stamp if it differs and the operator may write it.
///
/// # Errors
/// The access Secret cannot be used; hub or target does not answer; the target is not the Kyma's.
pub async fn open<C: Connector>(
    connector: &C,
    kyma: &Kyma,
    access: SecretKeyRef,
) -> Result<Connection, Failure> {
    let runtime = connector.runtime();
    let target = runtime.access.target(&access).await?;
    let connection = target.connection();
    // An unreachable target keeps its client with the state of the circuit breaker.
    target.identify().await?;
    let verified = verify(connector, kyma, &target).await;
    let identity = verified.inspect_err(|_| connector.discard_refused(&target))?;
    let target = target.fenced(fence_of(runtime, kyma, &identity));
    Ok(Connection::new(access, target, identity, connection))
}

/// Returns the target of a Kyma for a clean-up. Verifies it as [`open`] does, but writes nothing.
///
/// # Errors
/// Errors of [`access_of`] and [`open`]; no target is recorded.
pub async fn open_for_cleanup<C: Connector>(connector: &C, kyma: &Kyma) -> Result<Target, Failure> {
    let access = access_of(connector, kyma)?;
    let runtime = connector.runtime();
    let target = runtime.access.target(&access).await?;
    let identity = verify_recorded_target(runtime, kyma, &target).await?;
    Ok(target.fenced(fence_of(runtime, kyma, &identity)))
}

/// Verifies the target and writes its stamp if necessary. Returns its identity.
async fn verify<C: Connector>(
    connector: &C,
    kyma: &Kyma,
    target: &Target,
) -> Result<TargetIdentity, Failure> {
    let TargetVerification { identity, kyma: live, stamp, found } =
        verify_target(connector.runtime(), kyma, target).await?;
    if let Some(live) = live {
        connector.record_kyma(&Arc::new(live));
    }
    if let Some(stamp) = stamp
        && connector.may_stamp(kyma).await?
    {
        ensure_namespace(connector, target, STAMP_NAMESPACE).await?;
        target.put_stamp(&stamp, &found).await?;
    }
    Ok(identity)
}
