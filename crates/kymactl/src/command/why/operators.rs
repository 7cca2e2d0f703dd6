//! Queries running operators.

use std::time::Duration;

use http::Request;
use kube::{Client, Config};
use kyma_controller::{Diagnosis, describe_cause};

use super::subject::Subject;
use crate::error::Error;

/// Timeout of one query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Admin servers of operators.
pub(super) struct Operators(Vec<(String, Client)>);

impl Operators {
    /// Creates clients for these admin addresses.
    pub(super) fn at(addresses: &[String]) -> Result<Self, Error> {
        let connect = |address: &String| {
            let url = address.parse().map_err(|_| {
                Error::input(
                    "--operator",
                    format!("{address} is not an address of the form http://host:port"),
                )
            })?;
            let mut config = Config::new(url);
            (config.read_timeout, config.connect_timeout) = (Some(QUERY_TIMEOUT), Some(QUERY_TIMEOUT));
            Ok((address.clone(), kyma_targets::client_from(config)?))
        };
        addresses.iter().map(connect).collect::<Result<_, Error>>().map(Self)
    }

    /// Returns the diagnosis of an object from each operator that knows it.
    pub(super) async fn diagnoses(
        &self,
        namespace: &str,
        subject: &Subject,
    ) -> Result<Vec<Diagnosis>, Error> {
        let mut found = Vec::new();
        for (address, operator) in &self.0 {
            let path = format!("/diagnosis/{namespace}/{}", subject.name);
            let problem = |error: &str| {
                Error::input(
                    "--operator",
                    format!("no admin server of an operator answers at {address}: {error}"),
                )
            };
            let request = Request::get(path).body(Vec::new()).map_err(|error| problem(&error.to_string()))?;
            let told: Vec<Diagnosis> =
                operator.request(request).await.map_err(|error| problem(&describe_cause(&error)))?;
            found.extend(told.into_iter().filter(|diagnosis| diagnosis.kind == subject.kind));
        }
        Ok(found)
    }
}
