//! CEL expressions, arbitrary and generated: each compiles and ends within its limit of steps and within 2 MiB of
//! memory that the process really allocates.
#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use arbitrary::{Arbitrary, Unstructured};
use kyma_controller::Expression;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// The documented limits of one evaluation.
const MAX_STEPS: u64 = 400_000;
const MAX_BYTES: usize = 2 << 20;

/// Counts the bytes that this thread has allocated and not freed, and their maximum.
struct CountingAllocator;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn count(change: impl Fn(usize) -> usize) {
    // A thread that ends does not count any more.
    _ = LIVE.try_with(|live| {
        live.set(change(live.get()));
        _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|live| live.saturating_add(layout.size()));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(|live| live.saturating_sub(layout.size()));
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check(text);
    }
    let mut source = Unstructured::new(bytes);
    if let Ok(text) = expression(&mut source, 6) {
        check(&text);
    }
});

fn check(text: &str) {
    let Ok(expression) = Expression::compile(text) else { return };
    let object = json!({
        "metadata": {"name": "a", "labels": {"app": "web", "tier": "front"}},
        "spec": {"replicas": 3, "share": 0.5, "none": null, "text": "x".repeat(1_000)},
        "status": {"parts": vec!["part"; 200], "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let (_, cost) = expression.evaluate_with_cost(&[("self", &object)]);
    let allocated = PEAK.with(Cell::get) - before;
    assert!(cost.steps <= MAX_STEPS, "{cost:?}: {text}");
    assert!(allocated <= MAX_BYTES, "{allocated} bytes, {cost:?}: {text}");
}

const LEAVES: &[&str] = &[
    "self",
    "x",
    "true",
    "null",
    "1",
    "0u",
    "0.5",
    "'ab'",
    "b'ab'",
    "['x']",
    "[0,0,0,0,0,0,0,0]",
    "self.status.parts",
    "self.spec.text",
    "self.metadata.labels",
    "'(a|b)*\\\\w{9}'",
    "{'a': 1}",
    "{}",
    "[]",
    "'\\\\b(?:||a){9}[^x]'",
    "'2.4703282292062327208e-324'",
];
const OPERATORS: &[&str] = &["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "in", "&&", "||"];
const LOOPS: &[&str] = &["all", "exists", "exists_one", "map", "filter"];
const METHODS: &[&str] = &["contains", "startsWith", "endsWith", "matches", "orValue", "or"];
const FUNCTIONS: &[&str] =
    &["size", "string", "int", "uint", "double", "bytes", "bool", "type", "dyn", "optional.of", "!", "-"];

/// Generates text that is mostly CEL.
fn expression(source: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<String> {
    if depth == 0 || source.is_empty() {
        return Ok((*source.choose(LEAVES)?).to_owned());
    }
    let mut inner = || expression(source, depth - 1);
    let (a, b) = (inner()?, inner()?);
    Ok(match u8::arbitrary(source)? % 9 {
        0 => format!("({a} {} {b})", source.choose(OPERATORS)?),
        1 | 2 => format!("{a}.{}(x, {b})", source.choose(LOOPS)?),
        3 => format!("{a}.{}({b})", source.choose(METHODS)?),
        4 => format!("{}({a})", source.choose(FUNCTIONS)?),
        5 => format!("[{a}, {b}]"),
        6 => format!("{{{a}: {b}}}"),
        7 => format!("{a}[{b}]"),
        _ => format!("{a}.map(x, x + x).map(x, [x, x, {b}])"),
    })
}
