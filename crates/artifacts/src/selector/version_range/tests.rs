use super::*;

const VERSIONS: &str = "0.0.3 0.0.4 0.1.0 0.2.3 0.2.9 0.3.0 1.0.0 1.2.0-alpha.1 1.2.0 1.2.3 1.2.3+b7 1.3.0-rc.1 1.3.0 \
                        1.4.9 1.5.0 2.0.0-beta.1 2.0.0 2.3.4 3.0.0";

/// Results of Masterminds/semver 3.5 for these versions.
const TABLE: &[(&str, &str)] = &[
    ("1.2.3", "1.2.3 1.2.3+b7"),
    ("=1.2.3", "1.2.3 1.2.3+b7"),
    ("v1.2.3", "1.2.3 1.2.3+b7"),
    ("1.x", "1.0.0 1.2.0 1.2.3 1.2.3+b7 1.3.0 1.4.9 1.5.0"),
    ("1.2.x", "1.2.0 1.2.3 1.2.3+b7"),
    ("1.2.*", "1.2.0 1.2.3 1.2.3+b7"),
    ("1", "1.0.0 1.2.0 1.2.3 1.2.3+b7 1.3.0 1.4.9 1.5.0"),
    ("1.2", "1.2.0 1.2.3 1.2.3+b7"),
    ("=1.2", "1.2.0 1.2.3 1.2.3+b7"),
    (
        "*",
        "0.0.3 0.0.4 0.1.0 0.2.3 0.2.9 0.3.0 1.0.0 1.2.0 1.2.3 1.2.3+b7 1.3.0 1.4.9 1.5.0 2.0.0 2.3.4 3.0.0",
    ),
    (">=1.2 <2", "1.2.0 1.2.3 1.2.3+b7 1.3.0 1.4.9 1.5.0"),
    (">=1.2, <2", "1.2.0 1.2.3 1.2.3+b7 1.3.0 1.4.9 1.5.0"),
    (">= 1.2 , < 2.0.0", "1.2.0 1.2.3 1.2.3+b7 1.3.0 1.4.9 1.5.0"),
    (">=1.2.0-0 <2", "1.2.0-alpha.1 1.2.0 1.2.3 1.2.3+b7 1.3.0-rc.1 1.3.0 1.4.9 1.5.0 2.0.0-beta.1"),
    (">1.2", "1.3.0 1.4.9 1.5.0 2.0.0 2.3.4 3.0.0"),
    (">1", "2.0.0 2.3.4 3.0.0"),
    (">1.2.3", "1.3.0 1.4.9 1.5.0 2.0.0 2.3.4 3.0.0"),
    ("<1.2", "0.0.3 0.0.4 0.1.0 0.2.3 0.2.9 0.3.0 1.0.0"),
    ("<=0.2", "0.0.3 0.0.4 0.1.0 0.2.3 0.2.9"),
    ("<=0", "0.0.3 0.0.4 0.1.0 0.2.3 0.2.9 0.3.0"),
    ("<=0.2.3", "0.0.3 0.0.4 0.1.0 0.2.3"),
    (">=1.2 !=1.2.3", "1.2.0 1.3.0 1.4.9 1.5.0 2.0.0 2.3.4 3.0.0"),
    (">=1 !=1.2.x", "1.0.0 1.3.0 1.4.9 1.5.0 2.0.0 2.3.4 3.0.0"),
    (">=0.3 !=1.x", "0.3.0 2.0.0 2.3.4 3.0.0"),
    ("~1.2", "1.2.0 1.2.3 1.2.3+b7"),
    ("~ 1.2", "1.2.0 1.2.3 1.2.3+b7"),
    ("~>1.2", "1.2.0 1.2.3 1.2.3+b7"),
    ("~1.2.3", "1.2.3 1.2.3+b7"),
    ("~1", "1.0.0 1.2.0 1.2.3 1.2.3+b7 1.3.0 1.4.9 1.5.0"),
    ("~1.3.0-0", "1.3.0-rc.1 1.3.0"),
    ("^1", "1.0.0 1.2.0 1.2.3 1.2.3+b7 1.3.0 1.4.9 1.5.0"),
    ("^1.2.3", "1.2.3 1.2.3+b7 1.3.0 1.4.9 1.5.0"),
    ("^1.2.0-alpha", "1.2.0-alpha.1 1.2.0 1.2.3 1.2.3+b7 1.3.0-rc.1 1.3.0 1.4.9 1.5.0"),
    ("^0.2.3", "0.2.3 0.2.9"),
    ("^0.2", "0.2.3 0.2.9"),
    ("^0.0.3", "0.0.3"),
    ("^0.0", "0.0.3 0.0.4"),
    ("^0", "0.0.3 0.0.4 0.1.0 0.2.3 0.2.9 0.3.0"),
    ("^2 || ^0.2", "0.2.3 0.2.9 2.0.0 2.3.4"),
    ("1.2 - 1.4", "1.2.0 1.2.3 1.2.3+b7 1.3.0 1.4.9"),
    ("1.2.3 - 2", "1.2.3 1.2.3+b7 1.3.0 1.4.9 1.5.0 2.0.0 2.3.4"),
    ("1.2.0 - 1.3.0 || >=3", "1.2.0 1.2.3 1.2.3+b7 1.3.0 3.0.0"),
    ("=>1.5 =<2", "1.5.0 2.0.0 2.3.4"),
    (">=1.0.0 <=1.3.0-rc.1", "1.0.0 1.2.0-alpha.1 1.2.0 1.2.3 1.2.3+b7 1.3.0-rc.1"),
    ("1.2.0-alpha.1", "1.2.0-alpha.1"),
];

#[test]
fn a_range_contains_what_helm_and_flux_say_that_it_contains() {
    let versions: Vec<Version> = VERSIONS.split(' ').map(|text| text.parse().unwrap()).collect();
    for (text, expected) in TABLE {
        let range: VersionRange = text.parse().unwrap();
        let found: Vec<String> =
            versions.iter().filter(|version| range.contains(version)).map(Version::to_string).collect();
        assert_eq!(found.join(" "), *expected, "{text}");
        assert_eq!(range.to_string(), *text);
    }
}

#[test]
fn what_is_no_range_is_refused() {
    let long = format!(">={}", "1".repeat(MAX_RANGE_BYTES));
    let wide = ["1"; MAX_ALTERNATIVES + 1].join("||");
    for text in [
        "",
        " ",
        ">=a",
        "1.2.3.4",
        "1..2",
        "^",
        "1.x.3",
        ">=1.2<2",
        "1.2 -1.4",
        "|| 1",
        "1 ||",
        "latest",
        "1.2.3-",
        ",1",
        "1,",
        "1 , , 2",
        "1.2.3 -2.0.0",
        ">=1 - <2",
        "1 - ",
        "+1",
        "-1",
        "99999999999999999999",
        &long,
        &wide,
    ] {
        let error = text.parse::<VersionRange>().unwrap_err();
        assert_eq!(error.reason(), kyma_api::Reason::SourceInvalid, "{text}: {error}");
        assert!(error.to_string().len() < 200, "{error}");
    }
}

#[test]
fn the_highest_version_is_taken_and_not_the_last_one() {
    fn highest<'a>(range: &str, versions: &[&'a str]) -> Option<&'a str> {
        let versions = versions.iter().map(|text| (lenient_version(text).unwrap(), *text));
        range.parse::<VersionRange>().unwrap().highest(versions).map(|(_, text)| text)
    }
    assert_eq!(highest("1.x", &["1.10.0", "1.9.0", "2.0.0", "1.11.0-rc.1"]), Some("1.10.0"));
    assert_eq!(highest(">=1-0", &["1.10.0", "1.11.0-rc.1"]), Some("1.11.0-rc.1"));
    assert_eq!(highest("*", &["1.2", "v1.1.9", "1"]), Some("1.2"));
    assert_eq!(highest("1.2.3", &["1.2.3+2", "1.2.3+10", "1.2.3"]), Some("1.2.3+10"));
    assert_eq!(highest(">=2", &["1.0.0", "2.0.0-rc.1"]), None);
}

#[test]
fn versions_of_charts_may_be_short() {
    let read = |text| lenient_version(text).map(|version| version.to_string());
    assert_eq!(read("v1.2.3+b").as_deref(), Some("1.2.3+b"));
    assert_eq!(read("1-rc.1").as_deref(), Some("1.0.0-rc.1"));
    assert_eq!(read("1.2").as_deref(), Some("1.2.0"));
    for text in ["", "v", "latest", "1.2.3.4", "1.02.3", "1.2.3-"] {
        assert_eq!(read(text), None, "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn whatever_is_given_is_read_or_refused(text in "[0-9xX*v.<>=~^!|, +-]{0,24}|\\PC{0,24}") {
        if let Ok(range) = text.parse::<VersionRange>() {
            range.contains(&Version::new(1, 2, 3));
        }
    }
}
