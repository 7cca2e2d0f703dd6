//! Tests of a chart, which run on request as with `helm test`.

mod renders;

pub(crate) use renders::OnlyTests;
