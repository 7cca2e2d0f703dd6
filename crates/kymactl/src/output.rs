//! Writes results to standard output and everything else to standard error.

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;

use crate::error::Error;

/// Output format, as `kubectl --output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Table
    Table,
    /// Table with all columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// One name per line
    Name,
}

impl Format {
    /// Returns the text of a result in this format: `text` formats it as a table, `names` returns its names.
    pub(crate) fn text<T: Serialize + ?Sized>(
        self,
        value: &T,
        text: impl FnOnce() -> String,
        names: impl FnOnce() -> Vec<String>,
    ) -> Result<String, Error> {
        match self {
            Self::Table | Self::Wide => Ok(text()),
            Self::Json => Ok(serde_json::to_string_pretty(value).map_err(io::Error::other)?),
            Self::Yaml => yaml(value),
            Self::Name => Ok(names().into_iter().flat_map(|name| [name, "\n".to_owned()]).collect()),
        }
    }

    /// Writes what a command did to an object: a sentence, the object itself, or its name.
    pub(crate) fn object<K>(self, object: &K, sentence: &str) -> Result<(), Error>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        result(&self.text(object, || sentence.to_owned(), || vec![resource_name(object)])?)
    }
}

/// One line of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    /// The object or step that the line is about.
    pub(crate) name: String,
    /// The command's message.
    pub(crate) message: String,
}

/// A result that is written line by line as text, or as one list at the end in other formats.
pub(crate) struct Lines {
    format: Format,
    lines: Vec<Line>,
}

impl Lines {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, lines: Vec::new() }
    }

    /// Adds a line: `text` for the text format, `name` and `message` for others.
    pub(crate) fn add(&mut self, text: &str, name: &str, message: &str) -> Result<(), Error> {
        if matches!(self.format, Format::Table | Format::Wide) {
            result(text)?;
        }
        self.lines.push(Line { name: name.to_owned(), message: message.to_owned() });
        Ok(())
    }

    /// Writes a summary: to standard output in the text format, to standard error in others.
    pub(crate) fn sum_up(&self, text: &str) -> Result<(), Error> {
        if matches!(self.format, Format::Table | Format::Wide) {
            return result(text);
        }
        remark(text);
        Ok(())
    }

    /// Writes the list, unless its lines were already written as text.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let names = || self.lines.iter().map(|line| line.name.clone()).collect();
        result(&self.format.text(&self.lines, String::new, names)?)
    }
}

/// Serializes `value` as YAML.
pub(crate) fn yaml<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    // Through JSON, so that both formats have the same fields.
    let value = serde_json::to_value(value).map_err(io::Error::other)?;
    Ok(serde_saphyr::to_string(&value).map_err(|error| io::Error::other(error.to_string()))?)
}

/// Returns `<kind>.<group>/<name>`, as kubectl writes and reads it.
pub(crate) fn resource_name<K: Resource<DynamicType = ()>>(object: &K) -> String {
    qualified(&K::kind(&()), &K::group(&()), &object.name_any())
}

/// Returns `<kind>.<group>/<name>` of an object of this kind.
pub(crate) fn qualified(kind: &str, group: &str, name: &str) -> String {
    let kind = kind.to_lowercase();
    if group.is_empty() { format!("{kind}/{name}") } else { format!("{kind}.{group}/{name}") }
}

/// Writes a result to standard output. Writes nothing for an empty one.
pub(crate) fn result(text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Reports whether standard output shows colours: it is a terminal, and `NO_COLOR` is empty or not set.
pub(crate) fn has_colours() -> bool {
    let is_forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !is_forbidden
}

/// Formats lines of cells in columns as wide as their widest cell. All lines have as many cells as the first.
pub(crate) fn columns<Line: AsRef<[String]>>(lines: &[Line]) -> String {
    let count = lines.first().map_or(0, |line| line.as_ref().len());
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.as_ref().get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let padded = line.as_ref().iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Returns any text on one line.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Writes a remark to standard error. Ignores a closed standard error.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes the reason of a failed command to standard error.
pub(crate) fn complain(text: &str) {
    remark(&format!("error: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_the_same_content() {
        let value = serde_json::json!([{"name": "a", "note": "line one\nline two: \u{2028}"}]);
        let write =
            |format: Format| format.text(&value, || "text".to_owned(), || vec!["a".to_owned()]).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&write(Format::Json)).unwrap(), value);
        assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&write(Format::Yaml)).unwrap(), value);
        assert_eq!(write(Format::Name), "a\n");
        assert_eq!(write(Format::Table), "text");
    }

    #[test]
    fn names_are_those_that_kubectl_takes() {
        let mut kyma: kyma_api::Kyma = serde_json::from_value(serde_json::json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {},
            "spec": {"channel": "regular"},
        }))
        .unwrap();
        kyma.metadata.name = Some("blue".to_owned());
        assert_eq!(resource_name(&kyma), "kyma.operator.kyma-project.io/blue");
        assert_eq!(qualified("Namespace", "", "x"), "namespace/x");
    }
}
