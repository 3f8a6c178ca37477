//! Random selectors evaluate as a slow, obvious evaluator that follows the tables of broker spec 10.4
//! word by word; and random text never panics.

use std::collections::BTreeMap;

use minimq_broker::filter::sql::{MAX_DEPTH, Selector, SelectorError};
use proptest::prelude::*;

/// A value in the obvious evaluator.
#[derive(Debug, Clone, PartialEq)]
enum V {
    Null,
    Bool(bool),
    Text(String),
    Int(i32),
    Long(i64),
    Double(f64),
}

#[derive(Debug, Clone)]
enum E {
    Name(&'static str),
    Int(i32),
    Long(i64),
    Double(u32),
    Text(&'static str),
    Bool(bool),
    Equal(Box<E>, Box<E>, bool),
    Less(Box<E>, Box<E>, &'static str),
    Between(Box<E>, i32, i32, bool),
    In(&'static str, Vec<&'static str>, bool),
    IsNull(Box<E>, bool),
    Not(Box<E>),
    Negate(Box<E>),
    And(Box<E>, Box<E>),
    Or(Box<E>, Box<E>),
}

const NAMES: [&str; 4] = ["a", "b", "c", "missing"];
const TEXTS: [&str; 8] = ["5", "abc", "", "true", "5.5", "3000000000", "-7", "it's"];

fn render(e: &E) -> String {
    let quoted = |t: &str| format!("'{}'", t.replace('\'', "''"));
    match e {
        E::Name(name) => (*name).to_owned(),
        E::Int(n) => n.to_string(),
        E::Long(n) => format!("{n}L"),
        E::Double(n) => format!("{n}.5"),
        E::Text(t) => quoted(t),
        E::Bool(b) => b.to_string(),
        E::Equal(l, r, same) => format!(
            "({} {} {})",
            render(l),
            if *same { "=" } else { "<>" },
            render(r)
        ),
        E::Less(l, r, op) => format!("({} {op} {})", render(l), render(r)),
        E::Between(x, low, high, negated) => {
            format!(
                "({} {}BETWEEN {low} AND {high})",
                render(x),
                if *negated { "NOT " } else { "" }
            )
        }
        E::In(name, list, negated) => {
            let list: Vec<String> = list.iter().map(|t| quoted(t)).collect();
            format!(
                "({name} {}IN ({}))",
                if *negated { "NOT " } else { "" },
                list.join(", ")
            )
        }
        E::IsNull(x, yes) => format!("({} IS {}NULL)", render(x), if *yes { "" } else { "NOT " }),
        E::Not(x) => format!("(NOT {})", render(x)),
        E::Negate(x) => format!("(- {})", render(x)),
        E::And(l, r) => format!("({} AND {})", render(l), render(r)),
        E::Or(l, r) => format!("({} OR {})", render(l), render(r)),
    }
}

type Props = BTreeMap<&'static str, &'static str>;

fn truth(e: &E, p: &Props) -> Result<Option<bool>, ()> {
    if let E::Name(name) = e {
        return Ok(p.get(name).map(|_| false));
    }
    Ok(match run(e, p)? {
        V::Bool(b) => Some(b),
        _ => None,
    })
}

fn from_truth(t: Option<bool>) -> V {
    t.map_or(V::Null, V::Bool)
}

fn number_of(kind: &V, text: &str) -> Result<f64, ()> {
    match kind {
        V::Int(_) => text.parse::<i32>().map(f64::from).map_err(|_| ()),
        V::Long(_) => text.parse::<i64>().map(|n| n as f64).map_err(|_| ()),
        _ => text.trim().parse::<f64>().map_err(|_| ()),
    }
}

/// Both sides as doubles: exact for the small numbers used here.
fn numbers(l: &V, r: &V) -> Result<(f64, f64), ()> {
    let plain = |v: &V| match v {
        V::Int(n) => f64::from(*n),
        V::Long(n) => *n as f64,
        V::Double(n) => *n,
        other => panic!("{other:?}"),
    };
    match (l, r) {
        (V::Text(l), V::Text(r)) => Ok((
            number_of(&V::Double(0.0), l)?,
            number_of(&V::Double(0.0), r)?,
        )),
        (V::Text(t), n) => Ok((number_of(n, t)?, plain(n))),
        (n, V::Text(t)) => Ok((plain(n), number_of(n, t)?)),
        (l, r) => Ok((plain(l), plain(r))),
    }
}

fn run(e: &E, p: &Props) -> Result<V, ()> {
    Ok(match e {
        E::Name(name) => p.get(name).map_or(V::Null, |t| V::Text((*t).to_owned())),
        E::Int(n) => V::Int(*n),
        E::Long(n) => i32::try_from(*n).map_or(V::Long(*n), V::Int),
        E::Double(n) => V::Double(f64::from(*n) + 0.5),
        E::Text(t) => V::Text((*t).to_owned()),
        E::Bool(b) => V::Bool(*b),
        E::Equal(l, r, same) => {
            let (l, r) = (run(l, p)?, run(r, p)?);
            let equal = match (&l, &r) {
                (V::Null, V::Null) => Some(true),
                (V::Null, _) => None,
                (_, V::Null) => Some(false),
                (V::Text(l), V::Text(r)) => Some(l == r),
                (V::Bool(l), V::Bool(r)) => Some(l == r),
                (V::Text(t), V::Bool(b)) => Some((t.to_lowercase() == "true") == *b),
                (V::Bool(_), V::Text(_)) => return Err(()),
                (V::Bool(_), _) | (_, V::Bool(_)) => Some(false),
                _ => numbers(&l, &r).map(|(l, r)| Some(l == r))?,
            };
            from_truth(equal.map(|b| b == *same))
        }
        E::Less(l, r, op) => {
            let (l, r) = (run(l, p)?, run(r, p)?);
            if l == V::Null || r == V::Null {
                return Ok(V::Null);
            }
            let (l, r) = numbers(&l, &r)?;
            V::Bool(match *op {
                "<" => l < r,
                "<=" => l <= r,
                ">" => l > r,
                _ => l >= r,
            })
        }
        E::Between(x, low, high, negated) => {
            let half = |n: &i32, op| Box::new(E::Less(x.clone(), Box::new(E::Int(*n)), op));
            let both = if *negated {
                E::Or(half(low, "<"), half(high, ">"))
            } else {
                E::And(half(low, ">="), half(high, "<="))
            };
            run(&both, p)?
        }
        E::In(name, list, negated) => from_truth(p.get(name).map(|t| list.contains(t) != *negated)),
        E::IsNull(x, yes) => V::Bool((run(x, p)? == V::Null) == *yes),
        E::Not(x) => from_truth(truth(x, p)?.map(|b| !b)),
        E::Negate(x) => match run(x, p)? {
            V::Int(n) => V::Int(-n),
            V::Long(n) => V::Long(-n),
            V::Double(n) => V::Double(-n),
            _ => V::Null,
        },
        E::And(l, r) => from_truth(match truth(l, p)? {
            Some(false) => Some(false),
            l => match (l, truth(r, p)?) {
                (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
        }),
        E::Or(l, r) => from_truth(match truth(l, p)? {
            Some(true) => Some(true),
            l => match (l, truth(r, p)?) {
                (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
        }),
    })
}

fn name() -> impl Strategy<Value = E> {
    prop::sample::select(&NAMES[..]).prop_map(E::Name)
}

fn operand() -> impl Strategy<Value = E> {
    let number = prop_oneof![
        (0..10i32).prop_map(E::Int),
        (0..4_000_000_000i64).prop_map(E::Long),
        (0..10u32).prop_map(E::Double),
    ];
    prop_oneof![3 => name(), 2 => number.clone(), 1 => number.prop_map(|n| E::Negate(Box::new(n)))]
}

fn condition() -> impl Strategy<Value = E> {
    let texts = || prop::sample::select(&TEXTS[..]);
    let names = || prop::sample::select(&NAMES[..]);
    let leaf = prop_oneof![
        name(),
        (name(), texts().prop_map(E::Text), any::<bool>()).prop_map(|(l, r, s)| E::Equal(
            l.into(),
            r.into(),
            s
        )),
        (name(), any::<bool>().prop_map(E::Bool), any::<bool>()).prop_map(|(l, r, s)| E::Equal(
            l.into(),
            r.into(),
            s
        )),
        (operand(), operand(), any::<bool>()).prop_map(|(l, r, s)| E::Equal(l.into(), r.into(), s)),
        (
            operand(),
            operand(),
            prop::sample::select(&["<", "<=", ">", ">="][..])
        )
            .prop_map(|(l, r, op)| E::Less(l.into(), r.into(), op)),
        (operand(), -5..5i32, 5..10i32, any::<bool>()).prop_map(|(x, l, h, n)| E::Between(
            x.into(),
            l,
            h,
            n
        )),
        (names(), prop::collection::vec(texts(), 1..4), any::<bool>())
            .prop_map(|(n, l, neg)| E::In(n, l, neg)),
        (operand(), any::<bool>()).prop_map(|(x, yes)| E::IsNull(x.into(), yes)),
    ];
    leaf.prop_recursive(5, 40, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(l, r)| E::And(l.into(), r.into())),
            (inner.clone(), inner.clone()).prop_map(|(l, r)| E::Or(l.into(), r.into())),
            (inner.clone(), inner.clone(), any::<bool>()).prop_map(|(l, r, s)| E::Equal(
                l.into(),
                r.into(),
                s
            )),
            inner.clone().prop_map(|x| E::Not(x.into())),
            (inner, any::<bool>()).prop_map(|(x, yes)| E::IsNull(x.into(), yes)),
        ]
    })
}

fn properties() -> impl Strategy<Value = Props> {
    prop::collection::btree_map(
        prop::sample::select(&NAMES[..3]),
        prop::sample::select(&TEXTS[..]),
        0..4,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_selectors_agree_with_the_obvious_evaluator(e in condition(), p in properties()) {
        let text = render(&e);
        let selector = Selector::parse(&text).map_err(|why| TestCaseError::fail(format!("{text}: {why}")))?;
        let result = selector.evaluate(|name| p.get(name).copied()).map_err(|_| ());
        prop_assert_eq!(result, truth(&e, &p), "{}", text);
    }

    #[test]
    fn random_text_never_panics(text in "[a-c '()=<>0-9.,+\\-*/NOTANDIBEWLR#\u{4e2d}\n]{0,60}") {
        if let Ok(selector) = Selector::parse(&text) {
            let _ = selector.evaluate(|_| Some("5"));
        }
    }
}

#[test]
fn nesting_and_length_are_limited_with_a_reason() {
    for (open, close) in [("(", ")"), ("NOT (", ")"), ("- ", ""), ("+ ", "")] {
        let text = format!("{}a{} IS NULL", open.repeat(10_000), close.repeat(10_000));
        assert!(
            matches!(Selector::parse(&text), Err(SelectorError::TooDeep(_))),
            "{open}"
        );
    }
    let chain = format!("a = 1{}", " = TRUE".repeat(MAX_DEPTH + 1));
    assert!(matches!(
        Selector::parse(&chain),
        Err(SelectorError::TooDeep(_))
    ));
    let long = format!("a = 1{}", " OR a = 1".repeat(7_000));
    assert!(Selector::parse(&long).is_ok());
    let too_long = format!("a = 1{}", " OR a = 1".repeat(8_000));
    assert_eq!(
        Selector::parse(&too_long),
        Err(SelectorError::TooLong(too_long.len()))
    );
}

#[test]
fn errors_name_what_is_wrong_and_where() {
    for (text, message) in [
        (
            "",
            "expected a value, a property name or a parenthesis at byte 0, found the end",
        ),
        (
            "a == 5",
            "expected a value, a property name or a parenthesis at byte 3, found =",
        ),
        ("a != 5", "unexpected character '!' at byte 2"),
        ("b = \"abc\"", "unexpected character '\"' at byte 4"),
        ("a > 0.0", "number 0.0 at byte 4 is out of range"),
        ("a = 'x", "string that begins at byte 4 has no end"),
        (
            "a IN (5)",
            "expected a text in quotes in the list of IN at byte 7, found 5",
        ),
    ] {
        assert_eq!(
            Selector::parse(text).unwrap_err().to_string(),
            message,
            "{text}"
        );
    }
}
