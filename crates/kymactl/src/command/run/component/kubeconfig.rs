//! The kubeconfig with which component programs reach the cluster of the command.

use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::{error::Error, hub::GlobalFlags};

/// The kubeconfig of component programs. A program has no flag for a context, so for another context than the current
/// one it gets a copy, which only the user can read and which is deleted at the end.
#[derive(Debug)]
pub(in super::super) struct ProgramKubeconfig {
    /// The file of the flag. Without it a program finds the same files as kymactl, by its environment.
    named: Option<PathBuf>,
    copy: Option<TempPath>,
}

impl ProgramKubeconfig {
    /// Selects the kubeconfig and context of the flags.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read or copied.
    pub(in super::super) fn select(global: &GlobalFlags) -> Result<Self, Error> {
        let named = global.given_kubeconfig().map(Path::to_owned);
        let copy = match global.given_context() {
            Some(context) => copy(named.as_deref(), context)?,
            None => None,
        };
        Ok(Self { named, copy })
    }

    /// Returns the file to name to a program, if it needs one.
    pub(super) fn file(&self) -> Option<&Path> {
        self.copy.as_deref().or(self.named.as_deref())
    }
}

/// Copies the kubeconfig with `context` as current context. Returns `None` if there is no kubeconfig.
fn copy(named: Option<&Path>, context: &str) -> Result<Option<TempPath>, Error> {
    let failed = |error: std::io::Error| {
        Error::input("--context", format!("the kubeconfig cannot be copied for --component: {error}"))
    };
    let read = match named {
        Some(file) => {
            // Relative names of certificates have to hold in the directory of the copy.
            let file = std::path::absolute(file).map_err(failed)?;
            Some(kyma_controller::read_kubeconfig(&file)?)
        }
        None => kyma_controller::kubeconfig()?,
    };
    let Some(mut kubeconfig) = read else { return Ok(None) };
    kubeconfig.current_context = Some(context.to_owned());
    let builder = tempfile::Builder::new().prefix("kymactl-").suffix(".kubeconfig").tempfile();
    let file = builder.map_err(failed)?;
    serde_json::to_writer(file.as_file(), &kubeconfig).map_err(|error| failed(error.into()))?;
    Ok(Some(file.into_temp_path()))
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    const FILE: &str = "\
apiVersion: v1
kind: Config
current-context: one
contexts: [{name: one, context: {cluster: a, user: a}}, {name: two, context: {cluster: b, user: b}}]
clusters:
- {name: a, cluster: {server: 'https://a.example'}}
- {name: b, cluster: {server: 'https://b.example', certificate-authority: ca.crt}}
users: [{name: a, user: {}}, {name: b, user: {token: secret}}]
";

    #[test]
    fn programs_get_the_kubeconfig_and_context_of_the_flags() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        std::fs::write(&file, FILE).unwrap();
        let mut flags = GlobalFlags { kubeconfig: Some(file.clone()), ..GlobalFlags::default() };
        assert_eq!(ProgramKubeconfig::select(&flags).unwrap().file(), Some(file.as_path()));

        flags.context = Some("two".to_owned());
        let selected = ProgramKubeconfig::select(&flags).unwrap();
        let path = selected.file().unwrap().to_owned();
        let copy = Kubeconfig::read_from(&path).unwrap();
        assert_eq!(copy.current_context.as_deref(), Some("two"));
        let cluster = copy.clusters[1].cluster.as_ref().unwrap();
        let certificate = directory.path().join("ca.crt").display().to_string();
        assert_eq!(cluster.certificate_authority.as_deref(), Some(certificate.as_str()));
        assert!(std::fs::read_to_string(&path).unwrap().contains("\"secret\""));
        drop(selected);
        assert!(!path.exists());
    }
}
