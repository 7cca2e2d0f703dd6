//! Lists what a removal leaves on the target, in the same words in each run.

use e2e::remains::is_in_every_namespace;
use e2e::snapshot::Difference;

/// Returns what stays, without objects that Kubernetes creates in every namespace and without generated parts of
/// names.
pub(crate) fn listed(kept: &[Difference]) -> Vec<String> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for difference in kept {
        let Some(name) = name(difference) else { continue };
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let counted =
        |(name, count): (String, usize)| if count == 1 { name } else { format!("{name} ({count})") };
    counts.into_iter().map(counted).collect()
}

fn name(difference: &Difference) -> Option<String> {
    let Difference::Added(key) = difference else { return Some(difference.to_string()) };
    if is_in_every_namespace(key) {
        return None;
    }
    let mut key = key.clone();
    if key.is("", "PersistentVolume") {
        "pvc-…".clone_into(&mut key.name);
    } else if key.is("", "Pod")
        && let Some((start, _)) = key.name.rsplit_once('-')
    {
        key.name = format!("{start}-…");
    }
    Some(format!("+ {key}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use e2e::snapshot::Key;

    fn added(kind: &str, name: &str) -> Difference {
        Difference::Added(Key::of("", kind, &json!({"name": name})))
    }

    #[test]
    fn generated_names_are_listed_without_their_suffix() {
        let volumes = ["pvc-1", "pvc-2"].map(|name| added("PersistentVolume", name));
        let kept =
            [added("Namespace", "n"), added("Pod", "setup-x7z"), volumes[0].clone(), volumes[1].clone()];
        assert_eq!(listed(&kept), ["+ Namespace n", "+ Pod setup-…", "+ PersistentVolume pvc-… (2)"]);
    }
}
