//! The shapes of loops that macros expand to.

use cel::common::ast::{ComprehensionExpr, Expr, IdedExpr, LiteralValue, operators};

/// Returns the accumulator value that ends a loop of `&&` or `||` early.
pub(super) fn short_circuit_value(each: &ComprehensionExpr) -> Option<bool> {
    let Expr::Call(call) = &each.loop_step.expr else { return None };
    let accumulates = call.args.first().is_some_and(|first| is_name(first, &each.accu_var));
    match call.func_name.as_str() {
        operators::LOGICAL_AND if accumulates => Some(false),
        operators::LOGICAL_OR if accumulates => Some(true),
        _ => None,
    }
}

/// The step of a loop that appends one value: `@result + [value]`, or that under a condition.
pub(super) struct AppendStep<'a> {
    pub(super) condition: Option<&'a IdedExpr>,
    pub(super) value: &'a IdedExpr,
}

impl<'a> AppendStep<'a> {
    /// Returns the step of a loop; `None` if it does anything else.
    pub(super) fn of(each: &'a ComprehensionExpr) -> Option<Self> {
        let is_empty = matches!(&each.accu_init.expr, Expr::List(list) if list.elements.is_empty());
        let is_unconditional =
            matches!(&each.loop_cond.expr, Expr::Literal(LiteralValue::Boolean(truth)) if *truth.inner());
        if !is_empty || !is_unconditional || !is_name(&each.result, &each.accu_var) {
            return None;
        }
        let Expr::Call(step) = &each.loop_step.expr else { return None };
        match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::CONDITIONAL, [condition, then, otherwise]) if is_name(otherwise, &each.accu_var) => {
                let value = appended(then, &each.accu_var)?;
                Some(Self { condition: Some(condition), value })
            }
            _ => Some(Self { condition: None, value: appended(&each.loop_step, &each.accu_var)? }),
        }
    }
}

/// The value of `name + [value]`.
fn appended<'a>(node: &'a IdedExpr, name: &str) -> Option<&'a IdedExpr> {
    let Expr::Call(call) = &node.expr else { return None };
    match (call.func_name.as_str(), call.args.as_slice()) {
        (operators::ADD, [list, IdedExpr { expr: Expr::List(added), .. }]) if is_name(list, name) => {
            match added.elements.as_slice() {
                [value] if added.optional_indices.is_empty() => Some(value),
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_name(node: &IdedExpr, name: &str) -> bool {
    matches!(&node.expr, Expr::Ident(ident) if ident == name)
}
