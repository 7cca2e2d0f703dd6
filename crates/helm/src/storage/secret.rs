//! Name, type and key of the Secret of a revision.

/// Type of such Secrets.
pub const TYPE: &str = "helm.sh/release.v1";
/// Key in the data of such Secrets.
pub const KEY: &str = "release";

/// Returns the name of the Secret of a revision.
pub fn secret_name(release: &str, revision: i64) -> String {
    format!("sh.helm.release.v1.{release}.v{revision}")
}
