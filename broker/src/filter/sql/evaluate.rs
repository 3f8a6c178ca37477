//! Runs a checked expression against a message's properties, with the conversions and the
//! three-valued logic of broker spec 10.4. Allocates nothing.

use std::cmp::Ordering;

use super::number;
use super::parser::{Constant, Expression, Order};

/// Why an expression has no value for a message; at delivery that is "no match".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// A property compared with a number does not read as one of that number's type.
    #[error("a property's text is no {0}")]
    NotANumber(&'static str),
    /// A boolean on the left compared with a text on the right.
    #[error("a boolean cannot be compared with a text on its right")]
    BooleanWithText,
}

#[derive(Debug, Clone, Copy)]
enum Value<'v> {
    Null,
    Bool(bool),
    Text(&'v str),
    Int(i32),
    Long(i64),
    Double(f64),
}

type Outcome<T> = Result<T, EvaluationError>;

pub(super) fn evaluate<'p>(
    expression: &Expression,
    lookup: &impl Fn(&str) -> Option<&'p str>,
) -> Outcome<Option<bool>> {
    Ok(match expression {
        Expression::Constant(Constant::Bool(value)) => Some(*value),
        // Constants of other types are refused as conditions when compiling, and so are the two below.
        Expression::Constant(_) | Expression::Property(_) | Expression::Negate(_) => None,
        Expression::AsBool(name) => lookup(name).map(|_| false),
        Expression::Not(inner) => evaluate(inner, lookup)?.map(|value| !value),
        Expression::Equal(left, right) => equal(left, right, lookup)?,
        Expression::NotEqual(left, right) => equal(left, right, lookup)?.map(|value| !value),
        Expression::IsNull(inner) => Some(matches!(value(inner, lookup)?, Value::Null)),
        Expression::IsNotNull(inner) => Some(!matches!(value(inner, lookup)?, Value::Null)),
        Expression::Compare(order, left, right) => {
            let (left, right) = (value(left, lookup)?, value(right, lookup)?);
            compare(left, right)?.map(|ordering| match order {
                Order::Greater => ordering.is_gt(),
                Order::GreaterOrEqual => ordering.is_ge(),
                Order::Less => ordering.is_lt(),
                Order::LessOrEqual => ordering.is_le(),
            })
        }
        Expression::In {
            property,
            values,
            negated,
        } => lookup(property).map(|text| values.iter().any(|value| value == text) != *negated),
        Expression::And(operands) => chain(operands, false, lookup)?,
        Expression::Or(operands) => chain(operands, true, lookup)?,
    })
}

/// AND (`decisive` false) and OR (`decisive` true): the first decisive operand ends the chain.
fn chain<'p>(
    operands: &[Expression],
    decisive: bool,
    lookup: &impl Fn(&str) -> Option<&'p str>,
) -> Outcome<Option<bool>> {
    let mut result = Some(!decisive);
    for operand in operands {
        match evaluate(operand, lookup)? {
            Some(value) if value == decisive => return Ok(Some(decisive)),
            Some(_) => {}
            None => result = None,
        }
    }
    Ok(result)
}

fn value<'v, 'p: 'v>(
    expression: &'v Expression,
    lookup: &impl Fn(&str) -> Option<&'p str>,
) -> Outcome<Value<'v>> {
    Ok(match expression {
        Expression::Constant(constant) => match constant {
            Constant::Null => Value::Null,
            Constant::Bool(value) => Value::Bool(*value),
            Constant::Text(text) => Value::Text(text),
            Constant::Int(n) => Value::Int(*n),
            Constant::Long(n) => Value::Long(*n),
            Constant::Double(n) => Value::Double(*n),
        },
        Expression::Property(name) => lookup(name).map_or(Value::Null, Value::Text),
        Expression::Negate(inner) => match value(inner, lookup)? {
            Value::Int(n) => Value::Int(n.wrapping_neg()),
            Value::Long(n) => Value::Long(n.wrapping_neg()),
            Value::Double(n) => Value::Double(-n),
            _ => Value::Null,
        },
        condition => evaluate(condition, lookup)?.map_or(Value::Null, Value::Bool),
    })
}

fn equal<'p>(
    left: &Expression,
    right: &Expression,
    lookup: &impl Fn(&str) -> Option<&'p str>,
) -> Outcome<Option<bool>> {
    Ok(match (value(left, lookup)?, value(right, lookup)?) {
        (Value::Null, Value::Null) => Some(true),
        (Value::Null, _) => None,
        (_, Value::Null) => Some(false),
        (Value::Text(left), Value::Text(right)) => Some(left == right),
        (Value::Bool(left), Value::Bool(right)) => Some(left == right),
        (Value::Text(text), Value::Bool(flag)) => Some(text.eq_ignore_ascii_case("true") == flag),
        (Value::Bool(_), Value::Text(_)) => return Err(EvaluationError::BooleanWithText),
        (Value::Bool(_), _) | (_, Value::Bool(_)) => Some(false),
        (left, right) => compare(left, right)?.map(Ordering::is_eq),
    })
}

/// Numbers and texts in order; `None` with a NULL on either side (booleans are refused when compiling).
fn compare(left: Value<'_>, right: Value<'_>) -> Outcome<Option<Ordering>> {
    Ok(Some(match (left, right) {
        (Value::Text(left), Value::Text(right)) => double_order(double(left)?, double(right)?),
        (Value::Text(text), number) => match number_order(number, text)? {
            Some(ordering) => ordering.reverse(),
            None => return Ok(None),
        },
        (number, Value::Text(text)) => return number_order(number, text),
        (Value::Int(left), Value::Int(right)) => left.cmp(&right),
        (Value::Int(left), Value::Long(right)) => i64::from(left).cmp(&right),
        (Value::Long(left), Value::Int(right)) => left.cmp(&i64::from(right)),
        (Value::Long(left), Value::Long(right)) => left.cmp(&right),
        (Value::Double(left), Value::Double(right)) => double_order(left, right),
        (Value::Double(left), Value::Int(right)) => double_order(left, f64::from(right)),
        (Value::Int(left), Value::Double(right)) => double_order(f64::from(left), right),
        (Value::Double(left), Value::Long(right)) => double_order(left, right as f64),
        (Value::Long(left), Value::Double(right)) => double_order(left as f64, right),
        (Value::Null | Value::Bool(_), _) | (_, Value::Null | Value::Bool(_)) => return Ok(None),
    }))
}

/// A number against a text read as that number's type.
fn number_order(number: Value<'_>, text: &str) -> Outcome<Option<Ordering>> {
    Ok(match number {
        Value::Int(n) => {
            Some(n.cmp(&number::int(text).ok_or(EvaluationError::NotANumber("32-bit integer"))?))
        }
        Value::Long(n) => {
            Some(n.cmp(&number::long(text).ok_or(EvaluationError::NotANumber("64-bit integer"))?))
        }
        Value::Double(n) => Some(double_order(n, double(text)?)),
        Value::Null | Value::Bool(_) | Value::Text(_) => None,
    })
}

fn double(text: &str) -> Outcome<f64> {
    number::double(text).ok_or(EvaluationError::NotANumber("number"))
}

/// Java's order of doubles: −0.0 below 0.0, NaN equal to itself and above all.
fn double_order(left: f64, right: f64) -> Ordering {
    match (left.is_nan(), right.is_nan()) {
        (false, false) => left.total_cmp(&right),
        (left, right) => left.cmp(&right),
    }
}
