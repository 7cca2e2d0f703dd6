//! Requests to a HelmComponent by annotation, until its status shows them as handled.

use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kyma_api::HelmComponent;
use serde_json::json;

use crate::{
    error::Error,
    hub::{GlobalFlags, MANAGER},
};

/// A request.
pub(crate) struct Request {
    components: Api<HelmComponent>,
    namespace: String,
    name: String,
    /// Value of the annotation, which identifies the request and which the status repeats.
    pub(crate) at: String,
}

impl Request {
    /// Sets the annotation and returns the request.
    ///
    /// # Errors
    /// If the component does not exist or is suspended: the request would not be handled.
    pub(crate) async fn make(hub: &GlobalFlags, name: &str, annotation: &str) -> Result<Self, Error> {
        let namespace = hub.namespace().to_owned();
        let components: Api<HelmComponent> = Api::namespaced(hub.client().await?, &namespace);
        let at = Timestamp::now().to_string();
        let request = Self { components, namespace, name: name.to_owned(), at };
        if request.component().await?.spec.suspend == Some(true) {
            let message = format!("it is suspended; resume it with `kymactl resume {name}`");
            return Err(Error::input(name, message));
        }
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = json!({"metadata": {"annotations": {annotation: request.at}}});
        request.components.patch(name, &params, &Patch::Merge(patch)).await?;
        Ok(request)
    }

    /// Waits until `is_followed` returns true for the component and [`Request::at`]. Returns `None` after the
    /// timeout.
    pub(crate) async fn followed(
        &self,
        timeout: Duration,
        is_followed: impl Fn(&HelmComponent, &str) -> bool,
    ) -> Result<Option<HelmComponent>, Error> {
        let components = self.components.clone();
        let waiting = await_condition(components, &self.name, |component: Option<&HelmComponent>| {
            component.is_none_or(|component| is_followed(component, &self.at))
        });
        match tokio::time::timeout(timeout, waiting).await {
            Ok(ended) => ended?.ok_or_else(|| self.missing()).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Reads the component.
    pub(crate) async fn component(&self) -> Result<HelmComponent, Error> {
        self.components.get_opt(&self.name).await?.ok_or_else(|| self.missing())
    }

    fn missing(&self) -> Error {
        Error::no_component(&self.name, &self.namespace)
    }
}
