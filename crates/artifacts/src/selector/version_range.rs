//! Ranges of versions in the syntax of Helm and Flux.
//!
//! The rules are those of Go's Masterminds/semver, which Helm and Flux use. The `semver` crate's own ranges are
//! Cargo's: there `1.2.3` means any later 1.x, and `||`, hyphens and `!=` do not exist.

use std::{cmp::Ordering, fmt, str::FromStr};

use semver::{BuildMetadata, Prerelease, Version};

use crate::error::ArtifactError;
use crate::storage::digest::printable;

#[cfg(test)]
mod tests;

/// Maximum length of a range, in bytes.
const MAX_RANGE_BYTES: usize = 512;
/// Maximum number of alternatives of one range.
const MAX_ALTERNATIVES: usize = 32;

/// A range such as `>=1.2 <2`, `1.x`, `~1.4`, `^2 || ^3` or `1.2 - 1.4`.
///
/// It contains a prerelease only if a bound of the same alternative has a prerelease too, such as `>=1.2.0-0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRange {
    text: String,
    alternatives: Vec<Vec<Bound>>,
}

/// One condition, such as `>=1.2`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    operator: Operator,
    /// With zeros for missing numbers.
    version: Version,
    precision: Precision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    Different,
    Greater,
    Less,
    AtLeast,
    AtMost,
    Tilde,
    Caret,
}

/// Last number that a bound specifies; the rest is a wildcard or missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precision {
    None,
    Major,
    Minor,
    Patch,
}

/// Operators in their notation, longer ones first.
const OPERATORS: [(&str, Operator); 11] = [
    ("!=", Operator::Different),
    (">=", Operator::AtLeast),
    ("=>", Operator::AtLeast),
    ("<=", Operator::AtMost),
    ("=<", Operator::AtMost),
    ("~>", Operator::Tilde),
    (">", Operator::Greater),
    ("<", Operator::Less),
    ("=", Operator::Equal),
    ("~", Operator::Tilde),
    ("^", Operator::Caret),
];

impl VersionRange {
    /// Reports whether a version is in the range. Build metadata does not count.
    pub fn contains(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|bounds| {
            let prereleases = bounds.iter().any(|bound| !bound.version.pre.is_empty());
            (version.pre.is_empty() || prereleases) && bounds.iter().all(|bound| bound.admits(version))
        })
    }

    /// Returns the highest of these versions in the range, with its associated value. Of versions that differ only in
    /// build metadata, the last one in their order is returned.
    pub fn highest<T>(&self, versions: impl IntoIterator<Item = (Version, T)>) -> Option<(Version, T)> {
        let within = versions.into_iter().filter(|(version, _)| self.contains(version));
        within.max_by(|(one, _), (other, _)| one.cmp(other))
    }
}

/// Parses a version as chart authors write it: possibly with a leading `v`, or without minor and patch.
pub fn lenient_version(text: &str) -> Option<Version> {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let (numbers, rest) = bare.split_at(bare.find(['-', '+']).unwrap_or(bare.len()));
    let missing = 2_usize.checked_sub(numbers.matches('.').count())?;
    Version::parse(&format!("{numbers}{}{rest}", ".0".repeat(missing))).ok()
}

impl Bound {
    fn admits(&self, found: &Version) -> bool {
        let Self { operator, version, precision } = self;
        let order = found.cmp_precedence(version);
        match operator {
            Operator::Equal if *precision == Precision::Patch => order == Ordering::Equal,
            Operator::Equal | Operator::Tilde => {
                order.is_ge() && self.shares(found, (*precision).min(Precision::Minor))
            }
            Operator::Different if *precision == Precision::Patch => order != Ordering::Equal,
            Operator::Different => !self.shares(found, *precision),
            Operator::Greater if *precision == Precision::Patch => order.is_gt(),
            Operator::Greater => order.is_gt() && !self.shares(found, *precision),
            Operator::Less => order.is_lt(),
            Operator::AtLeast => order.is_ge(),
            Operator::AtMost if *precision == Precision::Patch => order.is_le(),
            Operator::AtMost => order.is_le() || self.shares(found, *precision),
            Operator::Caret => order.is_ge() && self.shares(found, self.leading()),
        }
    }

    /// Reports whether a version has the same numbers, up to and including `upto`.
    fn shares(&self, found: &Version, upto: Precision) -> bool {
        let wanted = &self.version;
        (upto < Precision::Major || found.major == wanted.major)
            && (upto < Precision::Minor || found.minor == wanted.minor)
            && (upto < Precision::Patch || found.patch == wanted.patch)
    }

    /// Returns the part that `^` keeps: up to the first number that is not zero, as far as numbers are specified.
    fn leading(&self) -> Precision {
        let first = match (self.version.major, self.version.minor) {
            (0, 0) => Precision::Patch,
            (0, _) => Precision::Minor,
            _ => Precision::Major,
        };
        first.min(self.precision)
    }
}

impl FromStr for VersionRange {
    type Err = ArtifactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |problem: &str| {
            let shown: String = text.chars().take(64).collect();
            ArtifactError::address(format!("the version range {:?}", printable(&shown)), problem)
        };
        if text.len() > MAX_RANGE_BYTES {
            return Err(invalid("it is too long"));
        }
        let alternatives: Vec<&str> = text.split("||").collect();
        if alternatives.len() > MAX_ALTERNATIVES {
            return Err(invalid("it has too many alternatives"));
        }
        let alternatives: Option<Vec<Vec<Bound>>> = alternatives.into_iter().map(bounds).collect();
        let alternatives =
            alternatives.ok_or_else(|| invalid("write it like >=1.2 <2, ~1.4, ^2, 1.x or 1.2 - 1.4"))?;
        Ok(Self { text: text.to_owned(), alternatives })
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses the bounds of one alternative, separated by blanks or commas.
fn bounds(text: &str) -> Option<Vec<Bound>> {
    let mut bounds = vec![];
    let mut rest = text.trim();
    loop {
        let (bound, after) = bound(rest)?;
        let trimmed = after.trim_start();
        let separated = trimmed.len() < after.len();
        let hyphen = trimmed.strip_prefix("- ").filter(|_| separated && bound.operator == Operator::Equal);
        if let Some(upper) = hyphen {
            let (upper, after) = self::bound(upper.trim_start())?;
            let upper = Some(upper).filter(|upper| upper.operator == Operator::Equal)?;
            bounds.push(Bound { operator: Operator::AtLeast, ..bound });
            bounds.push(Bound { operator: Operator::AtMost, ..upper });
            rest = after;
        } else {
            bounds.push(bound);
            rest = after;
        }
        let trimmed = rest.trim_start();
        if trimmed.is_empty() {
            return Some(bounds);
        }
        let after_comma = trimmed.strip_prefix(',').map(str::trim_start);
        let separated = after_comma.is_some() || trimmed.len() < rest.len();
        rest = separated.then(|| after_comma.unwrap_or(trimmed))?;
    }
}

/// Parses the first bound of a text; returns it with the text after it.
fn bound(text: &str) -> Option<(Bound, &str)> {
    let written = OPERATORS.iter().find(|(written, _)| text.starts_with(written));
    let (length, operator) =
        written.map_or((0, Operator::Equal), |(written, operator)| (written.len(), *operator));
    let text = text[length..].trim_start();
    let end = text.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(text.len());
    let (version, rest) = text.split_at(end);
    let (version, precision) = partial(version)?;
    Some((Bound { operator, version, precision }, rest))
}

/// Parses a version whose end may be missing or a wildcard.
fn partial(text: &str) -> Option<(Version, Precision)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    build.map_or(Some(BuildMetadata::EMPTY), |build| BuildMetadata::new(build).ok())?;
    let (numbers, pre) = text.split_once('-').map_or((text, None), |(numbers, pre)| (numbers, Some(pre)));
    let pre =
        pre.map_or(Some(Prerelease::EMPTY), |pre| Prerelease::new(pre).ok().filter(|pre| !pre.is_empty()))?;
    let parts: Vec<&str> = numbers.split('.').collect();
    if parts.len() > 3 {
        return None;
    }
    let wildcard = |part: &&str| matches!(*part, "x" | "X" | "*");
    let precision = parts.iter().position(wildcard).unwrap_or(parts.len());
    // Only wildcards may follow a wildcard: `1.x.3` has no meaning.
    let (exact, wild) = parts.split_at(precision);
    if !wild.iter().all(wildcard) {
        return None;
    }
    let digits = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty();
    let exact: Option<Vec<u64>> =
        exact.iter().map(|part| part.parse().ok().filter(|_| digits(part))).collect();
    let mut numbers = exact?.into_iter().chain([0; 3]);
    let mut number = || numbers.next().unwrap_or_default();
    let mut version = Version::new(number(), number(), number());
    version.pre = pre;
    let precision =
        [Precision::None, Precision::Major, Precision::Minor, Precision::Patch].get(precision).copied()?;
    Some((version, precision))
}
