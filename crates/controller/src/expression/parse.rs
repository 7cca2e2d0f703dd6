//! From a text to a syntax tree of bounded depth.

use std::collections::BTreeSet;
use std::thread;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::parser::{ParseErrors, PrattParser};

/// Longest text, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 4 * 4096;
/// Deepest nesting, operators included.
pub(super) const MAX_DEPTH: usize = 48;
/// Most nodes of a syntax tree.
const MAX_NODES: usize = 8_192;
/// Longest description of an error, in characters.
const MAX_ERROR_CHARACTERS: usize = 1_024;
/// Stack of the thread that parses. The depth is known only after parsing: an operator is a level, and a text of the
/// greatest length has some thousands of them.
const PARSER_STACK_BYTES: usize = 64 << 20;

/// Error for a text that is no valid expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The text is not valid CEL.
    #[error("is not valid CEL: {0}")]
    Syntax(String),
    /// The text is nested deeper than 48 levels.
    #[error("is nested deeper than {MAX_DEPTH} levels: split it")]
    TooDeep,
    /// The text is longer than 16 KiB, or has more than 8,192 parts.
    #[error("is longer than {MAX_TEXT_BYTES} bytes or has too many parts: shorten it")]
    TooLong,
}

/// A syntax tree that is safe to walk and to drop on any stack.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: IdedExpr,
    /// Names that may be variables.
    pub(super) names: BTreeSet<String>,
    /// Names of called functions and operators.
    pub(super) functions: BTreeSet<String>,
    /// Lists of literals, by the id of their nodes: they are built once.
    pub(super) constants: BTreeSet<u64>,
}

/// Parses a text on a thread of its own, whose stack suffices for the longest text whatever is in it.
pub(super) fn parse(text: &str) -> Result<Tree, ExpressionError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(ExpressionError::TooLong);
    }
    thread::scope(|scope| {
        let parser = thread::Builder::new().name("cel-parser".to_owned()).stack_size(PARSER_STACK_BYTES);
        let parser = parser.spawn_scoped(scope, || parse_here(text));
        let parser =
            parser.map_err(|error| ExpressionError::Syntax(format!("no thread to parse it: {error}")))?;
        parser.join().unwrap_or_else(|_| Err(ExpressionError::Syntax("the parser failed".to_owned())))
    })
}

/// Parses on this stack. A tree that is too deep is dropped here too.
fn parse_here(text: &str) -> Result<Tree, ExpressionError> {
    let root = PrattParser::new()
        .max_recursion_depth(96)
        .parse(text)
        .map_err(|errors| ExpressionError::Syntax(first_error(&errors)))?;
    let Names { variables, functions, constants } = examine(&root)?;
    Ok(Tree { root, names: variables, functions, constants })
}

/// Returns the first error of the text: there may be hundreds, and each repeats its whole line.
fn first_error(errors: &ParseErrors) -> String {
    // An error about the parser itself has no line.
    let in_text = errors.errors.iter().find(|error| error.pos.0 > 0);
    let error = in_text.or_else(|| errors.errors.first());
    let text = error.map(ToString::to_string).unwrap_or_default();
    text.replace('\n', " ").chars().take(MAX_ERROR_CHARACTERS).collect()
}

/// Names in a syntax tree, and its lists of literals.
#[derive(Default)]
struct Names {
    variables: BTreeSet<String>,
    functions: BTreeSet<String>,
    constants: BTreeSet<u64>,
}

/// Checks depth and size; gives the names and the lists of literals.
fn examine(root: &IdedExpr) -> Result<Names, ExpressionError> {
    let mut found = Names::default();
    let (mut open, mut nodes) = (vec![(root, 1)], 0);
    while let Some((node, depth)) = open.pop() {
        nodes += 1;
        if depth > MAX_DEPTH {
            return Err(ExpressionError::TooDeep);
        }
        if nodes > MAX_NODES {
            return Err(ExpressionError::TooLong);
        }
        if let Expr::Ident(name) = &node.expr {
            found.variables.insert(name.trim_start_matches('.').to_owned());
        }
        if let Expr::Call(call) = &node.expr {
            found.functions.insert(call.func_name.clone());
        }
        if let Expr::List(list) = &node.expr
            && list.elements.iter().all(|element| matches!(element.expr, Expr::Literal(_)))
        {
            found.constants.insert(node.id);
        }
        open.extend(children(&node.expr).into_iter().map(|child| (child, depth + 1)));
    }
    Ok(found)
}

fn children(expr: &Expr) -> Vec<&IdedExpr> {
    match expr {
        Expr::Comprehension(each) => {
            vec![&each.iter_range, &each.accu_init, &each.result, &each.loop_cond, &each.loop_step]
        }
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
        Expr::Struct(made) => made.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => vec![],
    }
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(pair) => vec![&pair.key, &pair.value],
    }
}
