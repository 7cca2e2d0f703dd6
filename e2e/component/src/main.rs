//! A component as another team would write it: puts a greeting on the target.

use greeting_component::Hello;

fn main() -> std::process::ExitCode {
    kyma_sdk::run_component(Hello)
}
