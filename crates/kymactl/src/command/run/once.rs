//! `kymactl run --once`: installs modules on a cluster. No operator stays there, only the Kyma, its catalogue and its
//! components.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream::select};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use kyma_api::{ErrorClass, Kyma, annotations::CREATED_BY_RUN, condition};
use kyma_controller::{Diagnoses, Failure, describe_watch_cause};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::input::RunInput;
use super::kyma_run::KymaRun;
use super::mark::CREATED_BY_RUN_VALUE;
use super::operators::Operators;
use super::{component, crds, mandatory, preflight, progress};
use crate::command::status::{Row, list_unready_modules, rows, table};
use crate::error::Error;
use crate::hub::MANAGER;
use crate::output;

/// Maximum delay before the progress is read again: a reconcile that changes nothing causes no event.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

/// Installs the Kyma and its catalogue, and waits until all modules are Ready.
pub(super) async fn run(run: KymaRun) -> Result<(), Error> {
    let KymaRun {
        input,
        programs,
        program_kubeconfig,
        timeout,
        allow_other_kymas,
        flags,
        settings,
        config,
        process,
    } = run;
    let client = kyma_targets::client_from(config.clone())?;
    let live = preflight::check(&client, &input.kyma, allow_other_kymas).await?;
    preflight::ensure_not_deleting(live.as_ref())?;
    crds::install(&client, true).await?;
    crds::install_of_programs(&client, &programs, &input).await?;
    for namespace in [&settings.hub_namespace, &settings.target_namespace] {
        ensure_namespace(&client, namespace).await?;
    }
    input.apply(&client).await?;
    let mut operators = Operators::start_installers(flags, &settings, &config, &process);
    operators.start_programs(programs, &component::arguments(&settings, &program_kubeconfig));
    let waited = tokio::select! {
        ready = await_ready(&client, &input, &process.diagnoses, timeout) => ready,
        ended = operators.ended() => ended.and(Err(Error::Stopped)),
    };
    operators.stop().await;
    waited
}

async fn ensure_namespace(client: &Client, name: &str) -> Result<(), Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    if api.get_opt(name).await?.is_none() {
        let annotations = json!({ CREATED_BY_RUN: CREATED_BY_RUN_VALUE });
        let metadata = json!({"name": name, "annotations": annotations});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        api.patch(name, &PatchParams::apply(MANAGER), &Patch::Apply(&namespace)).await?;
    }
    Ok(())
}

/// Follows the Kyma and reports changes until the operators have found all modules Ready in the requested versions.
async fn await_ready(
    client: &Client,
    input: &RunInput,
    diagnoses: &Diagnoses,
    timeout: Duration,
) -> Result<(), Error> {
    let deadline = Instant::now() + timeout;
    let api: Api<Kyma> = Api::namespaced(client.clone(), &input.kyma.namespace().unwrap_or_default());
    let config = watcher::Config::default().fields(&format!("metadata.name={}", input.kyma.name_any()));
    let kymas = watcher(api, config).default_backoff().applied_objects().map_ok(Some);
    let mut events = select(kymas, mandatory::changes(client, input).map_ok(|()| None)).boxed();
    let versions = input.versions();
    let mut latest = None;
    let mut shown: Vec<Row> = Vec::new();
    let mut unready = Vec::new();
    let mut watch_failure = None;
    let mut reported: Vec<String> = Vec::new();
    while Instant::now() < deadline {
        let event = timeout_at(deadline.min(Instant::now() + PROGRESS_DELAY), events.try_next()).await;
        let has_no_event = event.is_err();
        match event {
            Ok(Ok(Some(event))) => {
                latest = event.or(latest);
                watch_failure = None;
            }
            // The watch is retried until the deadline.
            Ok(Err(error)) => {
                watch_failure =
                    Some(format!("the cluster cannot be watched: {}", describe_watch_cause(&error)));
                continue;
            }
            // The watches do not end.
            Ok(Ok(None)) => break,
            Err(_) => {}
        }
        let Some(kyma) = &latest else { continue };
        let current_rows = rows(std::iter::once(kyma));
        for row in current_rows.iter().filter(|row| !shown.contains(row)) {
            output::remark(&row.line());
        }
        let unfinished = unfinished_modules(kyma, &current_rows, &versions);
        let listing = Box::pin(list_unready(client, input, kyma, diagnoses, unfinished));
        unready = listing.await.or_else(transient_as_unready)?;
        if unready.is_empty() {
            return output::result(&table::render(&current_rows, false, false));
        }
        // The run also waits while a Pause is in force: if the run ended, no operator would see the DELETE event of the
        // Pause, and the Pause would stay in force after its deletion.
        if has_no_event {
            for text in unreported(&unready, &reported, &current_rows) {
                output::remark(text);
            }
            reported.clone_from(&unready);
        }
        shown = current_rows;
    }
    unready.extend(watch_failure);
    Err(Error::not_ready(timeout, &unready))
}

/// Returns the entries of `unready` that are neither in `reported` nor shown as a row.
fn unreported<'a>(
    unready: &'a [String],
    reported: &'a [String],
    rows: &'a [Row],
) -> impl Iterator<Item = &'a String> {
    let is_row = move |text: &str| rows.iter().any(|row| row.line() == text);
    unready.iter().filter(move |text| !reported.contains(text) && !is_row(text))
}

/// Returns the modules that are not Ready: `unfinished`, which the Kyma's status shows, and the mandatory modules. If
/// there are none, returns the objects that the operators have not found Ready.
async fn list_unready(
    client: &Client,
    input: &RunInput,
    kyma: &Kyma,
    diagnoses: &Diagnoses,
    unfinished: Vec<String>,
) -> Result<Vec<String>, Error> {
    let mut unready = unfinished;
    unready.extend(mandatory::unready(client, input).await?);
    if unready.is_empty() {
        unready = Box::pin(progress::unconfirmed(client, input, kyma, diagnoses)).await?;
    }
    Ok(unready)
}

/// Turns a transient error into the only entry of the list of unready modules, so that the run goes on: the API server
/// may restart meanwhile.
///
/// # Errors
/// The same error, if it is not transient.
fn transient_as_unready(error: Error) -> Result<Vec<String>, Error> {
    match &error {
        Error::Cluster(cause) if Failure::hub("read", cause).class == ErrorClass::Transient => {
            Ok(vec![error.to_string()])
        }
        _ => Err(error),
    }
}

/// Returns the modules that the Kyma's status shows as not Ready, or not in the requested version.
fn unfinished_modules(kyma: &Kyma, rows: &[Row], versions: &BTreeMap<String, String>) -> Vec<String> {
    let mut unready = list_unready_modules(std::iter::once(kyma));
    for row in rows {
        if let Some(wanted) = versions.get(&row.module).filter(|wanted| **wanted != row.version) {
            unready.push(format!("{}: waits for version {wanted}", row.line()));
        }
    }
    let reason = halt_reason(kyma).filter(|why| !unready.iter().any(|text| text.contains(why.as_str())));
    unready.extend(reason);
    unready
}

/// Returns the reason for which kyma-operator does not reconcile the Kyma, such as a Pause. No module reports it.
fn halt_reason(kyma: &Kyma) -> Option<String> {
    let conditions = kyma.status.as_ref()?.conditions.as_deref()?;
    let ready = condition::get(conditions, condition::types::READY)?;
    (ready.status == "Unknown").then(|| format!("{}: {}", ready.reason, ready.message))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use testbed::{Answer, RequestMatcher, ScriptedServer};

    use super::*;

    #[tokio::test]
    async fn timeout_names_why_the_kyma_cannot_be_watched() {
        let server = ScriptedServer::start().await.unwrap();
        server.always(RequestMatcher::any(), Answer::failure(403, "Forbidden", "kymas are forbidden here"));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kyma.json");
        let kyma = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "one"}, "spec": {"channel": "regular"},
        });
        std::fs::write(&file, kyma.to_string()).unwrap();
        let input = RunInput::read(&file, &[], "kcp-system").unwrap();
        let client = server.access().client().unwrap();
        let waited = await_ready(&client, &input, &Diagnoses::default(), Duration::from_secs(2)).await;
        let Err(Error::NotReady { open, .. }) = waited else { panic!("{waited:?}") };
        assert!(open.ends_with("the cluster cannot be watched: kymas are forbidden here"), "{open}");
    }

    fn paused_kyma(modules: &serde_json::Value) -> Kyma {
        let condition = json!({
            "type": "Ready", "status": "Unknown", "reason": "Paused", "message": "Pause freeze is in force",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "one"}, "spec": {"channel": "regular", "modules": [{"name": "keda"}]},
            "status": {"state": "Ready", "modules": modules, "conditions": [condition]},
        }))
        .unwrap()
    }

    #[test]
    fn the_pause_of_a_kyma_is_named_once() {
        for modules in [json!([]), json!([{"name": "keda", "state": "Ready"}])] {
            let kyma = paused_kyma(&modules);
            let unready = unfinished_modules(&kyma, &rows(std::iter::once(&kyma)), &BTreeMap::new());
            let named = unready.iter().filter(|text| text.contains("Paused: Pause freeze is in force"));
            assert_eq!(named.count(), 1, "{unready:?}");
        }
    }

    #[test]
    fn text_of_a_row_or_an_earlier_report_is_not_repeated() {
        let rows = rows(std::iter::once(&paused_kyma(&json!([]))));
        let unready = [rows[0].line(), "waits for kyma-operator".to_owned(), "Paused".to_owned()];
        let unreported: Vec<_> = unreported(&unready, &unready[1..2], &rows).collect();
        assert_eq!(unreported, ["Paused"]);
    }

    #[test]
    fn a_run_waits_for_an_api_server_that_does_not_answer() {
        let waits = |error| transient_as_unready(Error::Cluster(error)).is_ok();
        let api = |code| kube::Error::Api(Box::new(Status::failure("", "").with_code(code)));
        assert!(waits(kube::Error::Service("connection refused".into())));
        assert!(waits(api(429)) && waits(api(503)));
        assert!(!waits(api(403)) && !waits(api(400)));
        assert!(transient_as_unready(Error::Stopped).is_err());
    }
}
