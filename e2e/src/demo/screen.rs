//! Terminal output of the demo: steps with progress bars, and a table that is updated. Plain lines without a
//! terminal.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::Report;

/// Number of steps in the progress bar.
const STEP_COUNT: u64 = 8;

/// The terminal, or plain output.
pub(super) struct Screen {
    bars: MultiProgress,
    whole: ProgressBar,
    table: ProgressBar,
    plain: bool,
}

/// Progress bar of a running step.
pub(super) struct StepBar<'a> {
    screen: &'a Screen,
    bar: ProgressBar,
    number: usize,
    name: &'static str,
}

impl Screen {
    pub(super) fn new() -> Self {
        let bars = MultiProgress::new();
        let plain = bars.is_hidden();
        let whole = bars.add(
            ProgressBar::new(STEP_COUNT).with_style(style("{bar:40.green} {pos}/{len} steps, {elapsed}")),
        );
        let table = bars.add(ProgressBar::new_spinner().with_style(style("{msg}")));
        Self { bars, whole, table, plain }
    }

    /// Prints a permanent line.
    pub(super) fn say(&self, line: &str) {
        if self.plain {
            eprintln_line(line);
        } else {
            // Ignore a closed terminal.
            let _ = self.bars.println(line);
        }
    }

    /// Replaces the table of the fleet.
    pub(super) fn table(&self, table: &str) {
        self.table.set_message(table.to_owned());
        self.table.tick();
    }

    /// Prints a changed line of the table if the table itself cannot be shown.
    pub(super) fn change(&self, line: &str) {
        if self.plain {
            eprintln_line(&format!("      {line}"));
        }
    }

    pub(super) fn begin(&self, number: usize, name: &'static str) -> StepBar<'_> {
        let bar = self.bars.insert_before(&self.whole, ProgressBar::new_spinner());
        bar.set_style(style("{spinner:.cyan} {msg} {elapsed}"));
        bar.set_message(format!("{number}. {name}"));
        bar.enable_steady_tick(Duration::from_millis(100));
        if self.plain {
            eprintln_line(&format!("{number}. {name}"));
        }
        StepBar { screen: self, bar, number, name }
    }

    /// Prints the results and durations of the steps.
    pub(super) fn summary(&self, report: &Report) {
        self.whole.finish_and_clear();
        self.table.finish_and_clear();
        let total: f64 = report.steps.iter().map(|step| step.seconds).sum();
        let rows = report.steps.iter().map(|step| {
            let mark = if step.ok { "ok    " } else { "FAILED" };
            format!("  {mark} {:>6.1} s  {}", step.seconds, step.name)
        });
        let rows: Vec<String> = rows.collect();
        self.say(&format!("\nWhat happened\n{}\n         {total:>6.1} s  in all\n", rows.join("\n")));
    }
}

impl StepBar<'_> {
    pub(super) fn end(self, ok: bool, seconds: f64) {
        self.bar.finish_and_clear();
        self.screen.whole.inc(1);
        let mark = if ok { "✓" } else { "✗" };
        self.screen.say(&format!("{mark} {}. {} ({seconds:.1} s)", self.number, self.name));
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[expect(clippy::print_stderr, reason = "the demo's output without a terminal")]
fn eprintln_line(line: &str) {
    eprintln!("{line}");
}
