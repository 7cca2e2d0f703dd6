//! The binary: `run`, `crd`, `rbac`, `reasons`, `version`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kyma_controller::run_program(release_meta_syncer::ReleaseMetaSyncer)
}
