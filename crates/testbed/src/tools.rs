//! Programs, inputs and repetitions of tests.

pub(crate) mod binaries;
pub(crate) mod inputs;
pub(crate) mod pins;
pub(crate) mod rounds;
