//! What goes wrong because of a secret.

mod access;
mod objects;
mod sources;
mod values;

use anyhow::Result;

use crate::world::{Row, World};

/// All of them.
pub(crate) async fn all(world: &World) -> Result<Vec<Row>> {
    let mut rows = access::rows(world)?;
    rows.extend(sources::rows(world).await?);
    rows.extend(objects::rows(world));
    rows.extend(values::rows(world).await?);
    Ok(rows)
}
