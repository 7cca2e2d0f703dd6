//! helm-component: the base reconciler as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    kyma_helm::render::run_if_launcher();
    kyma_controller::run_program(helm_component::HelmComponentProgram)
}
