//! The kyma-operator binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    kyma_controller::run_program(kyma_operator::KymaOperator)
}
