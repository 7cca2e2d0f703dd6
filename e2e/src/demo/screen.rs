//! What a person sees: steps with bars, and a table that fills by itself. Plain lines without a terminal.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::Report;

/// The steps that the demo has; the bar of the whole counts them.
const STEPS: u64 = 8;

/// The terminal, or what stands for it.
pub(super) struct Screen {
    bars: MultiProgress,
    whole: ProgressBar,
    table: ProgressBar,
    plain: bool,
}

/// A step at work.
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
        let whole = bars
            .add(ProgressBar::new(STEPS).with_style(style("{bar:40.green} {pos}/{len} steps, {elapsed}")));
        let table = bars.add(ProgressBar::new_spinner().with_style(style("{msg}")));
        Self { bars, whole, table, plain }
    }

    /// A line that stays.
    pub(super) fn say(&self, line: &str) {
        if self.plain {
            eprintln_line(line);
        } else {
            // A closed terminal is no reason to stop.
            let _ = self.bars.println(line);
        }
    }

    /// The table of the fleet, in place of the one shown before.
    pub(super) fn table(&self, table: &str) {
        self.table.set_message(table.to_owned());
        self.table.tick();
    }

    /// A line of the table that changed; shown only where the table itself cannot be.
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

    /// What happened, and how long each step took.
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
