//! The JSON that `mqadmin/JSON.md` documents, compared with what is printed: names and types, in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::Value;

/// What a value may be.
#[derive(Debug, Clone)]
enum Shape {
    Text,
    Int,
    Number,
    Bool,
    Any,
    List(Box<Shape>),
    Map(Box<Shape>),
    Object(Vec<Field>),
    OrNull(Box<Shape>),
    Named(String),
}

#[derive(Debug, Clone)]
struct Field {
    name: String,
    may_miss: bool,
    shape: Shape,
}

/// The documented shapes: of each command, and those that have a name of their own.
pub(crate) struct Shapes {
    rows: BTreeMap<String, Vec<Shape>>,
}

/// Fields that were there, as `row: path`.
pub(crate) type Seen = BTreeSet<String>;

struct Parser<'t> {
    rest: &'t str,
}

impl Parser<'_> {
    fn skip(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn must(&mut self, token: &str) {
        assert!(self.skip(token), "{token} expected at: {}", self.rest);
    }

    fn word(&mut self) -> String {
        self.rest = self.rest.trim_start();
        let end = self
            .rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(self.rest.len());
        assert!(end > 0, "a name expected at: {}", self.rest);
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.to_owned()
    }

    fn shape(&mut self) -> Shape {
        let shape = if self.skip("[") {
            let inner = self.shape();
            self.must("]");
            Shape::List(Box::new(inner))
        } else if self.skip("{*:") {
            let inner = self.shape();
            self.must("}");
            Shape::Map(Box::new(inner))
        } else if self.skip("{") {
            let mut fields = Vec::new();
            while !self.skip("}") {
                let name = self.word();
                let may_miss = self.skip("?");
                self.must(":");
                let shape = self.shape();
                fields.push(Field {
                    name,
                    may_miss,
                    shape,
                });
                self.skip(",");
            }
            Shape::Object(fields)
        } else {
            match self.word().as_str() {
                "text" => Shape::Text,
                "int" => Shape::Int,
                "number" => Shape::Number,
                "bool" => Shape::Bool,
                "any" => Shape::Any,
                name => Shape::Named(name.to_owned()),
            }
        };
        if self.skip("?") {
            Shape::OrNull(Box::new(shape))
        } else {
            shape
        }
    }
}

impl Shapes {
    /// Those of the document.
    pub(crate) fn documented() -> &'static Self {
        static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/mqadmin/JSON.md");
            Shapes::read(&std::fs::read_to_string(path).unwrap())
        });
        &SHAPES
    }

    fn read(document: &str) -> Self {
        let mut rows: BTreeMap<String, Vec<Shape>> = BTreeMap::new();
        for line in document.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.split('`').collect();
            let [_, name, _, text, _] = cells.as_slice() else {
                panic!("no row of name and shape: {line}")
            };
            let mut parser = Parser { rest: text };
            let shape = parser.shape();
            assert_eq!(parser.rest.trim(), "", "{line}");
            rows.entry((*name).to_owned()).or_default().push(shape);
        }
        Self { rows }
    }

    pub(crate) fn has(&self, command: &str) -> bool {
        self.rows.contains_key(command)
    }

    /// Compares what a command has printed: one document, or one a line.
    pub(crate) fn check(&self, command: &str, printed: &str, seen: &mut Seen) {
        // A command may stand in any case.
        let same = |name: &&String| name.eq_ignore_ascii_case(command);
        let command = self.rows.keys().find(same).map_or(command, String::as_str);
        let documents: Vec<Value> = match serde_json::from_str(printed) {
            Ok(one) => vec![one],
            Err(_) => printed
                .lines()
                .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
                .collect(),
        };
        let forms = self
            .rows
            .get(command)
            .unwrap_or_else(|| panic!("JSON.md has no {command}"));
        for document in documents {
            // What a dry run would change has one shape for all commands.
            let planned = document["dryRun"] == true && document["requests"].is_array();
            let (command, forms) = match planned {
                true => ("dryRun", &self.rows["dryRun"]),
                false => (command, forms),
            };
            let mut wrong = Vec::new();
            let fits = forms.iter().enumerate().any(|(at, shape)| {
                let mut own = Seen::new();
                match self.fits(shape, &document, &format!("{command}/{at}: "), &mut own) {
                    Ok(()) => seen.extend(own),
                    Err(why) => {
                        wrong.push(why);
                        return false;
                    }
                }
                true
            });
            assert!(
                fits,
                "{command} is not as JSON.md says: {}\n{document:#}",
                wrong.join("; ")
            );
        }
    }

    fn fits(&self, shape: &Shape, value: &Value, at: &str, seen: &mut Seen) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{at} is {value}, not {what}"));
        match (shape, value) {
            (Shape::Any, _) | (Shape::OrNull(_), Value::Null) => Ok(()),
            (Shape::OrNull(inner), _) => self.fits(inner, value, at, seen),
            (Shape::Text, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => Ok(()),
            (Shape::Int, Value::Number(number)) if !number.is_f64() => Ok(()),
            (Shape::Number, Value::Number(_)) => Ok(()),
            (Shape::Named(name), _) => {
                let [inner] = self.rows[name].as_slice() else {
                    return wrong("a shape with one form");
                };
                self.fits(inner, value, &format!("{name}/0: "), seen)
            }
            (Shape::List(inner), Value::Array(items)) => items
                .iter()
                .try_for_each(|item| self.fits(inner, item, &format!("{at}[]"), seen)),
            (Shape::Map(inner), Value::Object(table)) => table
                .values()
                .try_for_each(|item| self.fits(inner, item, &format!("{at}*"), seen)),
            (Shape::Object(fields), Value::Object(table)) => {
                for field in fields {
                    let place = format!("{at}.{}", field.name);
                    match table.get(&field.name) {
                        None if field.may_miss => {}
                        None => return Err(format!("{place} is missing")),
                        Some(item) => {
                            self.fits(&field.shape, item, &place, seen)?;
                            seen.insert(place);
                        }
                    }
                }
                let known = |name: &String| fields.iter().any(|field| field.name == *name);
                match table.keys().find(|name| !known(name)) {
                    Some(name) => Err(format!("{at}.{name} is not documented")),
                    None => Ok(()),
                }
            }
            _ => wrong(&format!("{shape:?}")),
        }
    }

    /// Every field of every row.
    pub(crate) fn all_fields(&self) -> Seen {
        let mut all = Seen::new();
        for (name, forms) in &self.rows {
            for (at, shape) in forms.iter().enumerate() {
                fields_of(shape, &format!("{name}/{at}: "), &mut all);
            }
        }
        all
    }
}

fn fields_of(shape: &Shape, at: &str, all: &mut Seen) {
    match shape {
        Shape::List(inner) => fields_of(inner, &format!("{at}[]"), all),
        Shape::Map(inner) => fields_of(inner, &format!("{at}*"), all),
        Shape::OrNull(inner) => fields_of(inner, at, all),
        Shape::Object(fields) => {
            for field in fields {
                let place = format!("{at}.{}", field.name);
                fields_of(&field.shape, &place, all);
                all.insert(place);
            }
        }
        _ => {}
    }
}

#[test]
fn a_name_or_type_that_is_not_documented_is_found() {
    let shapes = Shapes::read(
        "| `c` | `[{a: int, b?: text?, q: {*: place}}]` |\n| `place` | `{x: number}` |\n",
    );
    let mut seen = Seen::new();
    shapes.check("c", r#"[{"a":1,"b":null,"q":{"k":{"x":1.5}}}]"#, &mut seen);
    assert_eq!(seen, shapes.all_fields());
    for other in [
        r#"[{"a":1.5,"q":{}}]"#,
        r#"[{"a":1}]"#,
        r#"[{"a":1,"q":{},"z":1}]"#,
        r#"[{"a":1,"b":2,"q":{}}]"#,
        r#"[{"a":1,"q":{"k":{"y":1}}}]"#,
    ] {
        let value: Value = serde_json::from_str(other).unwrap();
        let [shape] = shapes.rows["c"].as_slice() else {
            panic!()
        };
        assert!(
            shapes.fits(shape, &value, "c", &mut Seen::new()).is_err(),
            "{other}"
        );
    }
}
