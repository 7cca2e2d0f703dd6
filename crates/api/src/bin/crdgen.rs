//! Prints all CRDs as YAML, one document each; `codegen` writes `crds/` from it.

use std::{
    io::{self, Write},
    process::ExitCode,
};

fn main() -> ExitCode {
    match print(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr leaves no way to report the error.
            let _ = writeln!(io::stderr(), "crdgen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print(out: &mut impl Write) -> io::Result<()> {
    for crd in kyma_api::crds::all() {
        let yaml = kyma_api::crds::to_yaml(&crd).map_err(io::Error::other)?;
        write!(out, "---\n{yaml}")?;
    }
    out.flush()
}
