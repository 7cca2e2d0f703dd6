//! Prints what expressions cost at the limit of their evaluation, one line for each: name, judgement, steps, allocated
//! bytes and milliseconds of processor time, all separated by tabs. `cargo xtask bench expressions` runs it.

#![expect(clippy::print_stdout, reason = "the measurement")]

use std::sync::LazyLock;
use std::time::Instant;

use kyma_controller::{Expression, ExpressionError};
use serde_json::json;

/// Evaluations of each expression; the slowest counts.
const ROUNDS: u32 = 5;

fn main() -> Result<(), ExpressionError> {
    let object = json!({"parts": vec!["a-part"; 5_000], "text": "x".repeat(20_000),
        "words": "y ".repeat(900), "numbers": (0..2_000).collect::<Vec<_>>()});
    for (name, text) in expressions() {
        let expression = Expression::compile(&text)?;
        let (mut slowest, mut last) = (0.0_f64, None);
        for _ in 0..ROUNDS {
            let start = milliseconds_of_this_thread();
            last = Some(expression.evaluate_with_cost(&[("self", &object)]));
            slowest = slowest.max(milliseconds_of_this_thread() - start);
        }
        let Some((judgement, cost)) = last else { continue };
        let (steps, bytes) = (cost.steps, cost.allocated_bytes);
        println!("{name}\t{judgement:?}\t{steps}\t{bytes}\t{slowest:.3}");
    }
    Ok(())
}

/// Processor time of this thread so far; without Linux the time on the clock.
fn milliseconds_of_this_thread() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let nanoseconds = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = nanoseconds.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds
        .map_or_else(|| START.elapsed().as_secs_f64() * 1_000.0, |nanoseconds| nanoseconds / 1_000_000.0)
}

/// Expressions that use up their steps or memory, each by another part of the evaluator.
fn expressions() -> Vec<(&'static str, String)> {
    let nested =
        |open: &str, inner: &str, times: usize| format!("{}{inner}{}", open.repeat(times), ")".repeat(times));
    let zeros = "[0,0,0,0,0,0,0,0]";
    let list = format!("[{}]", vec!["0"; 500].join(","));
    // Letters between which others are left out.
    let set: String = ('a'..='z').chain('A'..='Z').step_by(2).collect();
    vec![
        ("nested loops over literals", nested(&format!("{zeros}.all(a,"), "true", 20)),
        ("nested loops over a variable", "self.parts.all(a, self.parts.all(b, a == b))".to_owned()),
        ("a sum in nested loops", nested("self.parts.exists(a,", "1 + 2 * 3 - 4 / 5 > 100", 4)),
        ("growing strings", format!("['x']{}.size() == 1", ".map(s,s+s)".repeat(30))),
        ("growing lists", format!("[[0]]{}.size() == 1", ".map(s,s+s)".repeat(30))),
        ("copies of literals", format!("self.parts.all(a, {list} == {list})")),
        ("maps", "self.parts.all(a, {'a': 1, 'b': a, 'c': [a]} == {'a': 1, 'b': a, 'c': [a]})".to_owned()),
        (
            "shared lists that are compared",
            format!("{0} == {0}", ["[[0]]", &".map(s,[s,s])".repeat(20)].concat()),
        ),
        ("a text that is searched", "self.parts.all(a, !self.text.contains('y'))".to_owned()),
        ("a text that is measured", "self.parts.all(a, self.text.size() == 20000)".to_owned()),
        ("a pattern in a loop", "self.parts.all(a, a.matches('^[a-z]+-part$') )".to_owned()),
        ("a large pattern", format!("self.text.matches('{}y')", "(x|a)?".repeat(60))),
        ("many classes of characters", format!("'x'.matches('{}')", "\\\\pL".repeat(40))),
        ("classes blind to case", format!("'x'.matches('(?i){}')", "\\\\PN".repeat(40))),
        ("brackets blind to case", format!("'x'.matches('(?i){}')", "[^x]".repeat(40))),
        ("literals blind to case", format!("'x'.matches('(?i){}')", "k".repeat(900))),
        ("repeated classes", "'x'.matches('(\\\\w{30}){30}')".to_owned()),
        ("repeated literals", "'x'.matches('((a{9}){9}){99}')".to_owned()),
        ("alternatives", format!("'x'.matches('{}')", vec!["ab"; 300].join("|"))),
        (
            "patterns that differ",
            (0..60).map(|at| format!("'x'.matches('^\\\\w{at}')")).collect::<Vec<_>>().join("||"),
        ),
        (
            "conversions",
            "self.parts.all(a, self.parts.all(b, string(123456) + string(0.5) != ''))".to_owned(),
        ),
        ("members", format!("self.parts.all(a, 'a' in {list} || true)")),
        ("names in deep loops", nested("[0,1].all(v,", "w == w && w == w", 20).replacen("(v,", "(w,", 1)),
        ("small maps", "self.parts.all(a, {1: {2: {3: {4: a}}}} == {1: {2: {3: {4: a}}}})".to_owned()),
        // About half of the smallest number, so that all digits count.
        (
            "long numbers",
            format!("self.parts.all(a, double('2.4703282292062327208{}e-324') >= 0.0)", "1".repeat(740)),
        ),
        ("word boundaries", format!("self.words.matches('{}!')", "\\\\b".repeat(200))),
        ("empty alternatives", format!("self.words.matches('(?:{}x){{10}}!')", "|".repeat(300))),
        ("states of many ranges", format!("self.words.matches('(?:[{set}]?){{150}}!')")),
        ("patterns with a set that differ", "self.numbers.all(n, !'x'.matches('.y' + string(n)))".to_owned()),
    ]
}
