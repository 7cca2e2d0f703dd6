//! A template that sets the API versions and the revision, for which `helm template` has no flags.
//!
//! `--api-versions` adds to the versions that are compiled into the program. A template that is executed before all
//! others of its chart removes those: it replaces `.Capabilities` by a map whose `APIVersions` is the part of the
//! list after a marker, of the same type. Another marker contains the revision.

/// Marker in the list of API versions; the target's versions follow.
pub(crate) const TARGET_VERSIONS_BEGIN: &str = "helm-component.kyma-project.io/target";
/// Marker in the list of API versions; the revision follows in the same entry.
pub(crate) const REVISION: &str = "helm-component.kyma-project.io/revision-";

/// Folder of the template below `templates`.
pub(super) const FOLDER: &str = "helm-component.kyma-project.io";
/// File name of the template.
pub(super) const FILE: &str = "context.yaml";

/// Returns the template. `has_git_version` and `has_string` are whether the chart reads
/// `.Capabilities.KubeVersion.GitVersion` and `.String`, methods in Helm. Other charts get no such key, since it would
/// show where the whole map is printed. `helm install` gives the unchanged version for both.
pub(super) fn template(has_git_version: bool, has_string: bool) -> String {
    let git_version = if has_git_version { " \"GitVersion\" $version.GitVersion" } else { "" };
    let string = if has_string { " \"String\" $version.Version" } else { "" };
    format!(
        r#"{{{{- $begin := -1 -}}}}
{{{{- range $index, $name := .Capabilities.APIVersions -}}}}
{{{{- if eq $name "{TARGET_VERSIONS_BEGIN}" -}}}}{{{{- $begin = add1 $index | int -}}}}{{{{- end -}}}}
{{{{- if hasPrefix "{REVISION}" $name -}}}}
{{{{- $_ := set $.Release "Revision" (trimPrefix "{REVISION}" $name | atoi) -}}}}
{{{{- end -}}}}
{{{{- end -}}}}
{{{{- if ge $begin 0 -}}}}
{{{{- $version := .Capabilities.KubeVersion -}}}}
{{{{- $kube := dict "Version" $version.Version "Major" $version.Major "Minor" $version.Minor{git_version}{string} -}}}}
{{{{- $versions := slice .Capabilities.APIVersions $begin -}}}}
{{{{- $_ := set . "Capabilities" (dict "KubeVersion" $kube "APIVersions" $versions "HelmVersion" .Capabilities.HelmVersion) -}}}}
{{{{- end -}}}}
"#
    )
}

/// Returns the path below the chart's folder at which Helm executes the template first: it starts with the deepest
/// path.
pub(super) fn path(deepest: usize) -> String {
    let above = format!("templates/{FOLDER}/");
    let folders = (deepest + 1).saturating_sub(above.matches('/').count());
    format!("{above}{}{FILE}", "x/".repeat(folders))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_deeper_than_the_others() {
        assert_eq!(path(1), "templates/helm-component.kyma-project.io/context.yaml");
        for deepest in 0..9 {
            assert!(path(deepest).matches('/').count() > deepest, "{}", path(deepest));
        }
    }
}
