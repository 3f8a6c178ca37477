//! Replaces `{"$ref":"$.path"}` by what the path points to (wire spec 6.1, quirk 2).
//!
//! Java writes a reference when one object occurs twice, always to the earlier place. What points to something that
//! contains itself (`$`, `..`, `@`), to nothing, or would go beyond the limits stays a [`Value::Reference`].

use super::reader::Limits;
use super::value::Value;

/// References looked at in one text; what comes after stays unresolved.
const MOST_REFERENCES: usize = 10_000;

/// Replaces the references in `root`, in the order of the text.
pub(super) fn resolve(root: &mut Value<'_>, limits: Limits) {
    let mut places = Vec::new();
    find(root, &mut Vec::new(), &mut places);
    // Lookups and copies are paid from one budget, so that many references to one big table cost no more than
    // reading a text of the allowed size.
    let mut budget = limits.nodes;
    for place in places {
        let Some(Value::Reference(path)) = at(root, &place) else {
            continue;
        };
        let Some(target) = lookup(root, path, &mut budget) else {
            continue;
        };
        let Some(depth) = measure(target, &mut budget) else {
            continue;
        };
        if place.len() + depth > limits.depth {
            continue;
        }
        let copy = target.clone();
        if let Some(slot) = at_mut(root, &place) {
            *slot = copy;
        }
    }
}

/// Collects the places of all references: positions in arrays and objects from the root on.
fn find(value: &Value<'_>, place: &mut Vec<usize>, places: &mut Vec<Vec<usize>>) {
    let children: &mut dyn Iterator<Item = &Value<'_>> = match value {
        Value::Reference(_) if places.len() < MOST_REFERENCES => return places.push(place.clone()),
        Value::Array(items) => &mut items.iter(),
        Value::Object(members) => &mut members.iter().map(|(_, child)| child),
        _ => return,
    };
    for (index, child) in children.enumerate() {
        place.push(index);
        find(child, place, places);
        place.pop();
    }
}

fn at<'v, 'a>(mut value: &'v Value<'a>, place: &[usize]) -> Option<&'v Value<'a>> {
    for index in place {
        value = match value {
            Value::Array(items) => items.get(*index)?,
            Value::Object(members) => &members.get(*index)?.1,
            _ => return None,
        };
    }
    Some(value)
}

fn at_mut<'v, 'a>(mut value: &'v mut Value<'a>, place: &[usize]) -> Option<&'v mut Value<'a>> {
    for index in place {
        value = match value {
            Value::Array(items) => items.get_mut(*index)?,
            Value::Object(members) => &mut members.get_mut(*index)?.1,
            _ => return None,
        };
    }
    Some(value)
}

/// How deep `value` is nested; `None` if it contains a reference or the budget runs out.
fn measure(value: &Value<'_>, budget: &mut usize) -> Option<usize> {
    *budget = budget.checked_sub(1)?;
    let mut deepest = 0;
    match value {
        Value::Reference(_) => return None,
        Value::Array(items) => {
            for item in items {
                deepest = deepest.max(measure(item, budget)?);
            }
        }
        Value::Object(members) => {
            for (key, child) in members {
                deepest = deepest
                    .max(measure(key, budget)?)
                    .max(measure(child, budget)?);
            }
        }
        _ => return Some(0),
    }
    Some(deepest + 1)
}

/// Follows `$.name.other[0]`; names may contain escaped characters (`\-`) or stand in `['…']`.
fn lookup<'v, 'a>(root: &'v Value<'a>, path: &str, budget: &mut usize) -> Option<&'v Value<'a>> {
    let mut rest = path.strip_prefix('$')?;
    let mut value = root;
    while !rest.is_empty() {
        let step;
        if let Some(after) = rest.strip_prefix('.') {
            (step, rest) = name(after);
        } else {
            let after = rest.strip_prefix('[')?;
            let (inside, after) = after.split_once(']')?;
            (step, rest) = (inside.trim_matches(['\'', '"']).to_owned(), after);
        }
        value = child(value, &step, budget)?;
    }
    Some(value)
}

/// The name up to the next `.` or `[`, without its backslashes, and what follows.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, text.get(at..).unwrap_or_default()),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            other => name.push(other),
        }
    }
    (name, "")
}

fn child<'v, 'a>(value: &'v Value<'a>, step: &str, budget: &mut usize) -> Option<&'v Value<'a>> {
    match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        Value::Object(members) => {
            *budget = budget.checked_sub(members.len())?;
            let number = step.parse().ok().map(Value::Integer);
            let called =
                |key: &Value<'_>| key.as_text() == Some(step) || number.as_ref() == Some(key);
            members
                .iter()
                .find(|(key, _)| called(key))
                .map(|(_, child)| child)
        }
        _ => None,
    }
}
