//! Formats of content at HTTP addresses.

use crate::content::archive;
use crate::error::ArtifactError;

/// The required format of content at an address. A page of a proxy or sign-on service has another format and is not
/// cached.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ContentFormat {
    /// An archive: gzip or tar.
    Archive,
    /// YAML, or YAML compressed by gzip: some stores send content as it was uploaded.
    Yaml,
    /// YAML, or an archive of it.
    YamlOrArchive,
    /// Anything.
    Any,
}

impl ContentFormat {
    /// Returns whether the start of the content has this format.
    pub(super) fn is_of(self, content: &[u8]) -> bool {
        let (is_gzip, is_tar) = (archive::is_gzip(content), archive::is_tar(content));
        // Empty content would be valid YAML without objects, for which all installed objects are deleted.
        let is_text = !is_blank(content) && !is_markup(content);
        match self {
            Self::Archive => is_gzip || is_tar,
            Self::Yaml => is_gzip || !is_tar && is_text,
            Self::YamlOrArchive => is_gzip || is_tar || is_text,
            Self::Any => true,
        }
    }

    /// Returns the error for content of another format.
    pub(super) fn refusal(self, what: &str, content: &[u8]) -> ArtifactError {
        if let Some(problem) = archive::other_format(content) {
            return ArtifactError::invalid(what, problem);
        }
        let problem = match self {
            _ if is_blank(content) => "the server's answer is empty",
            Self::Archive => "the server's answer is not an archive",
            Self::Yaml | Self::YamlOrArchive | Self::Any => "the server's answer is a page of HTML or XML",
        };
        ArtifactError::invalid(what, problem)
    }
}

/// Checks the text that was unpacked from an answer: the answer itself was only recognized as an archive.
///
/// # Errors
/// If the text is empty or a page of HTML or XML.
pub(crate) fn check_unpacked(what: &str, text: &[u8]) -> Result<(), ArtifactError> {
    if is_blank(text) {
        return Err(ArtifactError::invalid(what, "the text in the server's answer is empty"));
    }
    if is_markup(text) {
        let problem = "the text in the server's answer is a page of HTML or XML";
        return Err(ArtifactError::invalid(what, problem));
    }
    Ok(())
}

/// Returns whether content is HTML or XML. YAML may also begin with `<`, as in the merge key `<<`.
fn is_markup(content: &[u8]) -> bool {
    let content = text_of(content);
    matches!(content, [b'<', next, ..] if *next == b'!' || *next == b'?' || next.is_ascii_alphabetic())
}

fn is_blank(content: &[u8]) -> bool {
    text_of(content).is_empty()
}

/// Returns content without its byte order mark and white space at the start.
fn text_of(content: &[u8]) -> &[u8] {
    content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content).trim_ascii_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_proxies_are_told_from_content() {
        let pages: [&[u8]; 5] = [
            b"<!DOCTYPE html><html></html>",
            b"\n  <html lang=\"en\">",
            b"\xef\xbb\xbf<?xml version=\"1.0\"?><Error/>",
            b"<Error><Code>AccessDenied</Code></Error>",
            b"<!-- maintenance -->",
        ];
        for page in pages {
            for form in [ContentFormat::Archive, ContentFormat::Yaml, ContentFormat::YamlOrArchive] {
                assert!(!form.is_of(page), "{}", String::from_utf8_lossy(page));
            }
            assert!(ContentFormat::Any.is_of(page));
        }
        for yaml in [&b"kind: A"[..], b"<<: *a", b"# a comment", b"- <b>x</b>", b"{}"] {
            assert!(
                ContentFormat::Yaml.is_of(yaml)
                    && ContentFormat::YamlOrArchive.is_of(yaml)
                    && !ContentFormat::Archive.is_of(yaml)
            );
        }
        for form in [ContentFormat::Archive, ContentFormat::Yaml, ContentFormat::YamlOrArchive] {
            assert!(form.is_of(b"\x1f\x8b.."), "compressed");
            for empty in [&b""[..], b" \n\n", b"\xef\xbb\xbf\n"] {
                assert!(!form.is_of(empty));
                assert!(form.refusal("a", empty).to_string().ends_with("is empty"));
            }
        }
    }

    #[test]
    fn unpacked_text_is_neither_empty_nor_a_page() {
        for text in [&b""[..], b" \n\n", b"\xef\xbb\xbf\n", b"<html></html>"] {
            assert!(check_unpacked("a", text).is_err(), "{}", String::from_utf8_lossy(text));
        }
        assert!(check_unpacked("a", b"# a comment").is_ok());
    }
}
