//! Progress of a long step: a spinner on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A running step.
pub(crate) struct Progress {
    name: String,
    start: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Reports the start of `name`.
    pub(crate) fn begin(name: impl Into<String>) -> Self {
        let name = name.into();
        let bar = std::io::stderr().is_terminal().then(|| spinner(&name));
        if bar.is_none() {
            say(&format!("{name} …"));
        }
        Self { name, start: Instant::now(), bar }
    }

    /// Shows the current detail; only on a terminal.
    pub(crate) fn note(&self, note: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(note.chars().take(80).collect::<String>());
        }
    }

    /// Reports the result.
    pub(crate) fn end(self, outcome: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        say(&format!("{}: {outcome} ({:.1} s)", self.name, self.start.elapsed().as_secs_f64()));
    }
}

fn spinner(name: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {msg:.dim}") {
        bar.set_style(style);
    }
    bar.set_prefix(name.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Prints a line to the terminal.
#[expect(clippy::print_stderr, reason = "a command for people; standard output belongs to what it runs")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
