//! Helm's record of a release on the target.

use super::*;

#[test]
fn helms_record_is_looked_for_before_anything_is_written() {
    let mut seen =
        Observed { namespace_ready: false, helm_release_unread: true, ..fresh(vec![object(deployment())]) };
    seen.existing_installation = ExistingInstallation::Unread;
    assert_eq!(next(&seen), Step::ReadExistingInstallation);
    seen.existing_installation = ExistingInstallation::None;
    assert_eq!(next(&seen), Step::FindHelmRelease);
    seen.helm_release_unread = false;
    assert_eq!(next(&seen), Step::Namespace);
}
