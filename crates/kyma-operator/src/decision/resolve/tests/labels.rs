//! Visibility of beta and internal versions, by KLM's two tables.

use kyma_api::labels;

use super::*;

/// One row of KLM's tables: the labels of the template and of the Kyma (b: beta, i: internal), and whether the module
/// is installed.
type Row = (&'static str, &'static str, &'static str, bool);

fn wrong_rows(rows: &[Row]) -> Vec<&'static str> {
    let labels_of = |kyma: &str| {
        let named = [('b', labels::BETA), ('i', labels::INTERNAL)];
        let held = named.into_iter().filter(|(letter, _)| kyma.contains(*letter));
        held.map(|(_, label)| (label, "true")).collect::<BTreeMap<_, _>>()
    };
    let decide = |template: &str, kyma: &str| {
        let version =
            json!({ "version": "1.0.0", "beta": template.contains('b'), "internal": template.contains('i') });
        let case = json!({
            "case": "", "expect": {},
            "catalogue": { "keda": { "channels": { "regular": "1.0.0" }, "templates": [version] } },
            "kyma": { "channel": "regular", "labels": labels_of(kyma), "modules": [{ "name": "keda" }] },
        });
        let case: Case = serde_json::from_value(case).unwrap();
        decide_all(case).remove("keda").unwrap()
    };
    let is_wrong = |(_, template, kyma, installed): &&Row| {
        let expected = if *installed { "install 1.0.0 from regular" } else { "refuse NotVisible Error" };
        decide(template, kyma) != expected
    };
    rows.iter().filter(is_wrong).map(|row| row.0).collect()
}

#[test]
fn i06_to_i21_each_label_of_a_module_has_to_be_on_the_kyma() {
    let rows: [Row; 16] = [
        ("i06", "", "", true),
        ("i07", "b", "", false),
        ("i08", "i", "", false),
        ("i09", "", "b", true),
        ("i10", "", "i", true),
        ("i11", "bi", "", false),
        ("i12", "b", "b", true),
        ("i13", "b", "i", false),
        ("i14", "bi", "b", false),
        ("i15", "bi", "i", false),
        ("i16", "bi", "bi", true),
        ("i17", "i", "b", false),
        ("i18", "i", "i", true),
        ("i19", "", "bi", true),
        ("i20", "i", "bi", true),
        ("i21", "b", "bi", true),
    ];
    assert_eq!(wrong_rows(&rows), [""; 0]);
}

/// KLM's row i96 expects what i102 excludes for the same labels; it passes in KLM because that test does not wait.
#[test]
fn i93_to_i109_each_label_of_a_template_has_to_be_on_the_kyma() {
    let rows: [Row; 17] = [
        ("i93", "i", "", false),
        ("i94", "i", "i", true),
        ("i95", "b", "", false),
        ("i96", "b", "b", true),
        ("i97", "i", "b", false),
        ("i98", "", "", true),
        ("i99", "", "b", true),
        ("i100", "", "i", true),
        ("i101", "", "bi", true),
        ("i102", "b", "b", true),
        ("i103", "b", "i", false),
        ("i104", "bi", "", false),
        ("i105", "b", "bi", true),
        ("i106", "i", "bi", true),
        ("i107", "bi", "i", false),
        ("i108", "bi", "b", false),
        ("i109", "bi", "bi", true),
    ];
    assert_eq!(wrong_rows(&rows), [""; 0]);
}
