//! Failures that a secret causes.

mod access;
mod objects;
mod sources;
mod values;

use anyhow::Result;

use crate::world::{Row, World};

/// Returns the rows of all causes.
pub(crate) async fn all(world: &World) -> Result<Vec<Row>> {
    let mut rows = access::rows(world)?;
    rows.extend(sources::rows(world).await?);
    rows.extend(objects::rows(world));
    rows.extend(values::rows(world).await?);
    Ok(rows)
}
