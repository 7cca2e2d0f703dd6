//! Finds and merges kubeconfig files as kubectl does.

use std::{
    ffi::OsStr,
    io,
    path::{MAIN_SEPARATOR, Path, PathBuf},
};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use kyma_targets::decode_text;
use rustls::{RootCertStore, pki_types::CertificateDer};
use serde_json::Value;

use super::error::HubError;
use super::proxy;

/// Environment variable that lists kubeconfig files.
const KUBECONFIG: &str = "KUBECONFIG";
/// Fields of clusters and users that name a file.
const FILE_FIELDS: [&str; 4] = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];

/// Returns how to reach and log in to a cluster.
///
/// `file` wins over the files that `KUBECONFIG` lists, these over `~/.kube/config`; without any, the ServiceAccount of
/// the Pod counts. As in kubectl, missing files of the list are skipped and the first file that sets a value wins.
/// `context` selects a context other than the current one. The proxy is that of the kubeconfig, else that of the
/// environment; with the ServiceAccount of the Pod, none.
///
/// # Errors
/// A file cannot be read or parsed, the context does not exist, the proxy is not an address, or no file exists and this
/// is not a Pod.
pub async fn client_config(file: Option<&Path>, context: Option<&str>) -> Result<Config, HubError> {
    if let Some(file) = file {
        return config_of(read(file)?, context).await;
    }
    let files = KubeconfigFiles::of_process();
    let Some(merged) = files.merge()? else {
        if context.is_some() {
            return Err(HubError::NoKubeconfig { files: files.names() });
        }
        let absent = |source| HubError::NoAccess { files: files.names(), source };
        return Config::incluster().map_err(absent);
    };
    match config_of(merged, context).await {
        // A kubeconfig that selects no cluster does not hide the Pod's ServiceAccount.
        Err(HubError::Kubeconfig(KubeconfigError::CurrentContextNotSet)) if context.is_none() => {
            Config::incluster().map_err(|_| HubError::Kubeconfig(KubeconfigError::CurrentContextNotSet))
        }
        found => found,
    }
}

/// Returns the cluster that a context selects.
async fn config_of(kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Config, HubError> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let named = proxy::kubeconfig_proxy(&kubeconfig, context);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    if let Some(authorities) = &mut config.root_cert {
        remove_unreadable(authorities);
    }
    // kube compares `NO_PROXY` with the proxy instead of the server.
    config.proxy_url = proxy::choose(&config.cluster_url, named.as_deref(), |name| std::env::var(name).ok())?;
    Ok(config)
}

/// Removes certificates that cannot be read, as client-go does, if others remain. kube would use none of them.
fn remove_unreadable(authorities: &mut Vec<Vec<u8>>) {
    let is_readable = |der: &Vec<u8>| RootCertStore::empty().add(CertificateDer::from_slice(der)).is_ok();
    if authorities.iter().any(is_readable) {
        authorities.retain(is_readable);
    }
}

/// Returns the merged kubeconfig files that [`client_config`] reads unless a file is named; none if no file exists.
///
/// # Errors
/// A file cannot be read or parsed.
pub fn kubeconfig() -> Result<Option<Kubeconfig>, HubError> {
    Ok(KubeconfigFiles::of_process().merge()?)
}

/// The kubeconfig files to read, in the order of precedence.
struct KubeconfigFiles {
    paths: Vec<PathBuf>,
    /// Whether `KUBECONFIG` lists them; otherwise the path is the default one.
    are_listed: bool,
}

impl KubeconfigFiles {
    fn of_process() -> Self {
        Self::of(std::env::var_os(KUBECONFIG).as_deref(), std::env::home_dir().as_deref())
    }

    fn of(listed: Option<&OsStr>, home: Option<&Path>) -> Self {
        let paths: Vec<PathBuf> = listed
            .map(|listed| std::env::split_paths(listed).filter(|path| !path.as_os_str().is_empty()).collect())
            .unwrap_or_default();
        if !paths.is_empty() {
            return Self { paths, are_listed: true };
        }
        let default = home.map(|home| home.join(".kube").join("config"));
        Self { paths: default.into_iter().collect(), are_listed: false }
    }

    /// Merges the files that exist; none if no file exists.
    fn merge(&self) -> Result<Option<Kubeconfig>, KubeconfigError> {
        let mut merged = None;
        for file in self.paths.iter().filter(|file| !self.is_missing(file)) {
            let read = read(file)?;
            merged = Some(match merged {
                None => read,
                Some(before) => Kubeconfig::merge(before, read)?,
            });
        }
        Ok(merged)
    }

    /// Reports whether a file is missing. A listed file in a directory that cannot be searched is not: without it,
    /// another file would select another cluster. The home directory of a Pod may be closed to its process.
    fn is_missing(&self, file: &Path) -> bool {
        match file.try_exists() {
            Ok(exists) => !exists,
            Err(_) => !self.are_listed,
        }
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|file| file.display().to_string()).collect();
        if names.is_empty() { "~/.kube/config".to_owned() } else { names.join(", ") }
    }
}

/// Reads a kubeconfig file as kubectl does: in UTF-8 or UTF-16, an empty value counts as absent, base64 may contain
/// line breaks, and names of files are relative to its directory.
///
/// # Errors
/// The file cannot be read or parsed.
pub fn read_kubeconfig(file: &Path) -> Result<Kubeconfig, HubError> {
    Ok(read(file)?)
}

fn read(file: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let unreadable = |source| KubeconfigError::ReadConfig(source, file.to_owned());
    let bytes = std::fs::read(file).map_err(unreadable)?;
    let text = decode_text(&bytes).ok_or_else(|| {
        unreadable(io::Error::new(io::ErrorKind::InvalidData, "it is neither UTF-8 nor UTF-16"))
    })?;
    // kube's own reader panics at half a character, and logs in with an empty user name although there is a token.
    let parsed = Kubeconfig::from_yaml(text.trim_start_matches('\u{feff}'));
    let mut kubeconfig = parsed.map_err(|error| match error {
        // The parser's message quotes the text around the problem, which may be a token, and does not name the file.
        KubeconfigError::Parse(error) => {
            let line = error.location().map(|at| format!(" (line {})", at.line())).unwrap_or_default();
            unreadable(io::Error::new(io::ErrorKind::InvalidData, format!("it is not a kubeconfig{line}")))
        }
        other => other,
    })?;
    // With several files, the first one that names a context decides.
    kubeconfig.current_context = kubeconfig.current_context.filter(|context| !context.is_empty());
    let directory = file.parent().unwrap_or(Path::new(""));
    let Ok(mut fields) = serde_json::to_value(&kubeconfig) else { return Ok(kubeconfig) };
    for (list, content) in [("clusters", "cluster"), ("users", "user")] {
        for entry in fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(entry) = entry.get_mut(content).and_then(Value::as_object_mut) {
                entry.retain(|name, value| normalize(name, value, directory));
            }
        }
    }
    Ok(serde_json::from_value(fields).unwrap_or(kubeconfig))
}

/// Removes whitespace from base64, and resolves names of files. Returns whether the field has a value.
fn normalize(name: &str, value: &mut Value, directory: &Path) -> bool {
    // A command without a directory is searched in PATH.
    if name == "exec"
        && let Some(command) = value.get_mut("command")
        && command.as_str().is_some_and(|command| command.contains(MAIN_SEPARATOR))
    {
        resolve(command, directory);
    }
    let Value::String(text) = value else { return true };
    if name.ends_with("-data") {
        text.retain(|character| !character.is_ascii_whitespace());
    }
    let has_value = !text.is_empty();
    if has_value && FILE_FIELDS.contains(&name) {
        resolve(value, directory);
    }
    has_value
}

/// Resolves the name of a file that is relative to the directory of the kubeconfig.
fn resolve(name: &mut Value, directory: &Path) {
    let resolved = name.as_str().and_then(|name| directory.join(name).to_str().map(str::to_owned));
    if let Some(resolved) = resolved {
        *name = resolved.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(directory: &Path, name: &str, current: Option<&str>) -> PathBuf {
        let current = current.map(|current| format!("current-context: {current}\n")).unwrap_or_default();
        let text = format!(
            "apiVersion: v1\nkind: Config\n{current}\
             contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\n\
             clusters: [{{name: {name}, cluster: {{server: 'https://{name}.example:6443'}}}}]\n\
             users: [{{name: {name}, user: {{}}}}]\n"
        );
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn missing_files_of_the_list_are_skipped_and_the_first_wins() {
        let directory = tempfile::tempdir().unwrap();
        let one = file(directory.path(), "one", None);
        let two = file(directory.path(), "two", Some("two"));
        let three = file(directory.path(), "three", Some("three"));
        let missing = PathBuf::from("/does/not/exist");
        let merge = |paths: Vec<PathBuf>| KubeconfigFiles { paths, are_listed: true }.merge();
        let merged = merge(vec![missing.clone(), one, two, missing.clone(), three]).unwrap().unwrap();
        assert_eq!(merged.current_context.as_deref(), Some("two"));
        let contexts: Vec<&str> = merged.contexts.iter().map(|context| context.name.as_str()).collect();
        assert_eq!(contexts, ["one", "two", "three"]);
        assert!(merge(vec![missing]).unwrap().is_none());
    }

    #[test]
    fn a_listed_file_that_cannot_be_read_is_not_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let one = file(directory.path(), "one", Some("one"));
        // A path below a file, which cannot be searched by any user.
        let unreadable = one.join("config");
        let listed = std::env::join_paths([&unreadable, &one]).unwrap();
        let error = KubeconfigFiles::of(Some(&listed), None).merge().unwrap_err();
        assert!(matches!(error, KubeconfigError::ReadConfig(_, path) if path == unreadable));
        let home = one.as_path();
        assert!(KubeconfigFiles::of(None, Some(home)).merge().unwrap().is_none());
    }

    #[test]
    fn an_empty_list_means_the_file_of_the_user() {
        let home = Path::new("/users/blue");
        for empty in [None, Some(""), Some("::")] {
            let files = KubeconfigFiles::of(empty.map(OsStr::new), Some(home));
            assert_eq!((files.names().as_str(), files.are_listed), ("/users/blue/.kube/config", false));
        }
        let files = KubeconfigFiles::of(Some(OsStr::new(":a::b:")), Some(home));
        assert_eq!((files.names().as_str(), files.are_listed), ("a, b", true));
    }

    #[tokio::test]
    async fn empty_values_of_a_kubeconfig_count_as_absent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let text = "current-context: a\n\
            contexts: [{name: a, context: {cluster: a, user: a}}]\n\
            clusters: [{name: a, cluster: {server: 'https://a.example', tls-server-name: '', \
            certificate-authority: '', certificate-authority-data: ''}}]\n\
            users: [{name: a, user: {token: t, username: '', password: '', tokenFile: '', as: '', \
            client-certificate: '', client-key: '', client-certificate-data: ''}}]\n";
        std::fs::write(&path, text).unwrap();
        let config = client_config(Some(&path), None).await.unwrap();
        assert_eq!((config.tls_server_name, config.root_cert), (None, None));
        let user = config.auth_info;
        assert!(user.token.is_some());
        let texts = [user.username, user.token_file, user.impersonate, user.client_certificate];
        assert!(texts.iter().all(Option::is_none), "{texts:?}");
        assert_eq!((user.client_key, user.client_certificate_data), (None, None));
    }

    #[tokio::test]
    async fn an_unreadable_authority_leaves_the_others_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let text = "current-context: a\n\
            contexts: [{name: a, context: {cluster: a}}]\n\
            clusters: [{name: a, cluster: {server: 'https://a.example', certificate-authority: ca.pem}}]\n";
        std::fs::write(&path, text).unwrap();
        let unreadable = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
        let authority = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap().cert.pem();
        for (bundle, expected) in [(format!("{unreadable}{authority}"), 1), (unreadable.to_owned(), 1)] {
            std::fs::write(directory.path().join("ca.pem"), &bundle).unwrap();
            let authorities = client_config(Some(&path), None).await.unwrap().root_cert.unwrap();
            assert_eq!(authorities.len(), expected);
            assert_eq!(authorities == [vec![1, 2, 3]], bundle == unreadable);
        }
    }

    #[test]
    fn names_of_files_are_relative_to_the_kubeconfig() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let user =
            |command: &str| format!("{{tokenFile: a/t, client-key: /k, exec: {{command: {command}}}}}");
        for (command, expected) in [("./login", directory.path().join("./login")), ("login", "login".into())]
        {
            std::fs::write(&path, format!("users: [{{name: a, user: {}}}]\n", user(command))).unwrap();
            let user = read(&path).unwrap().auth_infos.remove(0).auth_info.unwrap();
            let token = directory.path().join("a/t").display().to_string();
            assert_eq!((user.token_file, user.client_key), (Some(token), Some("/k".to_owned())));
            assert_eq!(user.exec.unwrap().command.map(PathBuf::from), Some(expected));
        }
    }

    #[test]
    fn text_that_kubectl_decodes_is_read_and_other_text_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let mut utf_16: Vec<u8> =
            "\u{feff}current-context: a\n---\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [utf_16.as_slice(), "\u{feff}current-context: a\n".as_bytes()] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read(&path).unwrap().current_context.as_deref(), Some("a"));
        }
        utf_16.push(b'\n');
        std::fs::write(&path, &utf_16).unwrap();
        assert!(matches!(read(&path), Err(KubeconfigError::ReadConfig(..))));
    }

    #[test]
    fn an_invalid_kubeconfig_is_named_without_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        for text in ["current-context: [hunter2]\n", "users: [{name: a, user: {token: hunter2\n"] {
            std::fs::write(&path, text).unwrap();
            let message = HubError::from(read(&path).unwrap_err()).to_string();
            let is_named = message.contains("it is not a kubeconfig") && message.contains("config\"");
            assert!(is_named && !message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn base64_may_contain_line_breaks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        let data = "certificate-authority-data: \"YW\\n Jj\"";
        std::fs::write(&path, format!("clusters: [{{name: a, cluster: {{{data}}}}}]\n")).unwrap();
        let cluster = read(&path).unwrap().clusters.remove(0).cluster.unwrap();
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("YWJj"));
    }

    #[tokio::test]
    async fn a_context_is_selected_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let one = file(directory.path(), "one", Some("one"));
        let config = client_config(Some(&one), None).await.unwrap();
        assert_eq!(config.cluster_url.host(), Some("one.example"));
        let error = client_config(Some(&one), Some("other")).await.unwrap_err();
        assert!(matches!(error, HubError::Kubeconfig(_)), "{error}");
    }
}
