//! What `helm template` cannot be told by a flag: which API versions a target lacks, and the number of a revision.
//!
//! `--api-versions` adds to the versions that are compiled into the program. A template that is executed before all others
//! of its chart takes those out again: it replaces `.Capabilities` by a map whose `APIVersions` is the part of the list
//! behind a marker, of the same type. Another marker holds the revision.

/// Marker in the list of API versions: all behind it are the target's.
pub(super) const TARGET_VERSIONS_BEGIN: &str = "helm-component.kyma-project.io/target";
/// Marker in the list of API versions: the revision follows.
pub(super) const REVISION: &str = "helm-component.kyma-project.io/revision-";

/// A template that a chart has besides its own: first part of its path below `templates`.
pub(super) const FOLDER: &str = "helm-component.kyma-project.io";
/// Its file name.
pub(super) const FILE: &str = "context.yaml";

/// The template; `has_git_version`: whether the chart asks for `.Capabilities.KubeVersion.GitVersion`, a method in Helm.
/// A map that has it otherwise would show where all of it is printed.
pub(super) fn template(has_git_version: bool) -> String {
    let git_version = if has_git_version { " \"GitVersion\" $version.GitVersion" } else { "" };
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
{{{{- $kube := dict "Version" $version.Version "Major" $version.Major "Minor" $version.Minor{git_version} -}}}}
{{{{- $versions := slice .Capabilities.APIVersions $begin -}}}}
{{{{- $_ := set . "Capabilities" (dict "KubeVersion" $kube "APIVersions" $versions "HelmVersion" .Capabilities.HelmVersion) -}}}}
{{{{- end -}}}}
"#
    )
}

/// Path below a chart's folder at which the template is executed before the chart's others: Helm begins with the deepest.
pub(super) fn path(deepest: usize) -> String {
    let above = format!("templates/{FOLDER}/");
    let folders = (deepest + 1).saturating_sub(above.matches('/').count());
    format!("{above}{}{FILE}", "x/".repeat(folders))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_lies_deeper_than_the_others() {
        assert_eq!(path(1), "templates/helm-component.kyma-project.io/context.yaml");
        for deepest in 0..9 {
            assert!(path(deepest).matches('/').count() > deepest, "{}", path(deepest));
        }
    }
}
