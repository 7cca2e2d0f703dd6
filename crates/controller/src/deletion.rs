//! Deletions: requests and their causes, the delete gate with the brake, and the objects that block a removal.

pub(crate) mod blocking;
pub(crate) mod brake;
pub(crate) mod cause;
pub(crate) mod gate;
pub(crate) mod request;
