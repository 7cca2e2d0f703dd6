//! Content of a chart's `crds` folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kyma_object_set::{Identity, Limits, Object, ObjectSet};

use super::tree::Tree;

/// Returns, for each CRD of a chart, the API versions and kinds that a target serves once it has the CRD.
pub(super) fn own_kinds(archive: &[u8]) -> BTreeMap<Identity, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    each_crd(archive, &mut |crd| {
        let mut names = BTreeSet::new();
        for gvk in crd.defined_kinds() {
            names.insert(gvk.api_version());
            names.insert(gvk.to_string());
        }
        found.insert(crd.identity(), names);
    });
    found
}

/// Returns the CRDs of a chart. Unreadable files are skipped.
pub(super) fn crds(archive: &[u8]) -> BTreeSet<Identity> {
    let mut found = BTreeSet::new();
    each_crd(archive, &mut |crd| {
        found.insert(crd.identity());
    });
    found
}

/// Calls `see` for each CRD of an archive that [`Chart::open`](super::Chart::open) packed.
fn each_crd(archive: &[u8], see: &mut dyn FnMut(&Object)) {
    let _ = Tree::read(archive).and_then(|tree| {
        tree.each(&mut |file, bytes| {
            if is_crds(file) {
                let set = ObjectSet::parse_bytes(bytes, &Limits::default()).unwrap_or_default();
                set.crds().for_each(&mut *see);
            }
            Ok(())
        })
    });
}

/// Reports whether Helm installs a file unchanged, before all others.
fn is_crds(file: &str) -> bool {
    let mut inside = file;
    while let Some((_, below)) = inside.strip_prefix("charts/").and_then(|folder| folder.split_once('/')) {
        inside = below;
    }
    let of_manifests =
        |end: &str| ["yaml", "yml", "json"].iter().any(|known| end.eq_ignore_ascii_case(known));
    inside.starts_with("crds/")
        && Path::new(inside).extension().and_then(|end| end.to_str()).is_some_and(of_manifests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_manifests_in_the_folder_itself_are_meant() {
        for (file, expected) in [
            ("crds/a.yaml", true),
            ("crds/more/a.yml", true),
            ("charts/sub/crds/a.json", true),
            ("charts/sub/charts/deeper/crds/a.yaml", true),
            ("crds/README.md", false),
            ("templates/crds/a.yaml", false),
            ("charts/sub/templates/crds/a.yaml", false),
            ("files/crds/a.yaml", false),
        ] {
            assert_eq!(is_crds(file), expected, "{file}");
        }
    }

    #[test]
    fn crds_are_found_by_their_names() {
        let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: as.x.io}\n";
        let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let mut archive =
            tar::Builder::new(flate2::write::GzEncoder::new(vec![], flate2::Compression::fast()));
        let files = [
            ("c/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"),
            ("c/crds/a.yaml", crd),
            ("c/crds/b.yaml", other),
            ("c/crds/broken.yaml", "a: b: c"),
            ("c/templates/crd.yaml", &crd.replace("as.x.io", "bs.x.io")),
        ];
        for (path, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
        let chart = crate::chart::Chart::open(&archive.into_inner().unwrap().finish().unwrap()).unwrap();
        let expected = Identity::new("apiextensions.k8s.io", "CustomResourceDefinition", None, "as.x.io");
        assert_eq!(chart.crds(), [expected].into());
    }
}
