//! `kymactl test`.

use std::time::Duration;

use clap::Args;
use kyma_api::{HelmComponent, HookPhase, Hooks, annotations, condition};

use crate::{duration::duration, error::Error, hub::GlobalFlags, output, request::Request};

/// Flags of `kymactl test`.
#[derive(Args)]
pub(crate) struct Test {
    /// The HelmComponent
    #[arg(value_parser = crate::name::component, add = crate::command::complete::components())]
    component: String,
    /// Do not wait for the tests
    #[arg(long)]
    no_wait: bool,
    /// Maximum time to wait, such as 30s or 10m
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    hub: GlobalFlags,
}

impl Test {
    /// Runs the chart's tests and prints their results.
    pub(crate) async fn run(self) -> Result<(), Error> {
        let Self { component: name, no_wait, timeout, hub } = self;
        let format = hub.format();
        let request = Request::make(&hub, &name, annotations::TEST_REQUESTED_AT).await?;
        if no_wait {
            let component = request.component().await?;
            return format.object(&component, &format!("the tests of {name} are requested"));
        }
        let are_over = |component: &HelmComponent, at: &str| over(component, at).is_some();
        let Some(component) = request.followed(timeout, are_over).await? else {
            return Err(Error::not_ready(timeout, &[awaited(&name, &request.component().await?)]));
        };
        let tests = over(&component, &request.at).cloned().unwrap_or_default();
        let ran = || tests.succeeded.iter().flatten().chain(&tests.running).cloned().collect();
        output::result(&format.text(&tests, || test_results(&name, &tests), ran)?)?;
        if tests.phase == HookPhase::Succeeded { Ok(()) } else { Err(Error::TestFailed { name }) }
    }
}

/// Returns the tests of this request after they ended.
fn over<'a>(component: &'a HelmComponent, request: &str) -> Option<&'a Hooks> {
    let status = component.status.as_ref()?;
    let tests = status.tests.as_ref()?;
    let is_over = matches!(tests.phase, HookPhase::Succeeded | HookPhase::Failed);
    (is_over && status.last_handled_test_at.as_deref() == Some(request)).then_some(tests)
}

/// Returns a line for each test that ran. Tests after a failed one do not run.
fn test_results(name: &str, tests: &Hooks) -> String {
    let succeeded =
        tests.succeeded.iter().flatten().map(|test| format!("succeeded: {}", output::one_line(test)));
    let failed = tests.message.iter().map(|message| format!("failed: {}", output::one_line(message)));
    let lines: Vec<String> = succeeded.chain(failed).collect();
    if lines.is_empty() { format!("the chart of {name} has no tests") } else { lines.join("\n") }
}

/// Returns a line with the conditions that delay the tests.
fn awaited(name: &str, component: &HelmComponent) -> String {
    let conditions = component.status.as_ref().and_then(|status| status.conditions.as_deref());
    let says = |type_: &str| {
        let found = condition::get(conditions.unwrap_or_default(), type_);
        found.map(|found| format!("{type_} is {} ({}: {})", found.status, found.reason, found.message))
    };
    let said: Vec<String> =
        [condition::types::READY, condition::types::TEST_SUCCESS].into_iter().filter_map(says).collect();
    match said.as_slice() {
        [] => format!("{name}: no operator reports its status; is helm-component running?"),
        said => format!("{name}: {}", output::one_line(&said.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finished_test_is_listed_with_its_result() {
        let mut tests = Hooks { phase: HookPhase::Succeeded, ..Hooks::default() };
        assert_eq!(test_results("shop", &tests), "the chart of shop has no tests");
        tests.succeeded = Some(vec!["Pod shop/a".to_owned()]);
        tests.message = Some("test hook Pod shop/b: it failed".to_owned());
        assert_eq!(
            test_results("shop", &tests),
            "succeeded: Pod shop/a\nfailed: test hook Pod shop/b: it failed"
        );
    }
}
