//! What a command has to say: lines and tables for people, a JSON value for scripts, and what was not done.

use std::io::{ErrorKind, IsTerminal, Write};

use serde_json::Value;

use crate::failure::Failure;
use crate::text;

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// For scripts.
    Json,
}

/// A colour that says how something is; shown on a terminal only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    /// As it should be.
    Green,
    /// To be looked at.
    Yellow,
    /// Wrong.
    Red,
    /// A heading.
    Bold,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Red => "31",
            Self::Bold => "1",
        }
    }

    /// The text in this colour.
    pub(crate) fn paint(self, text: &str) -> String {
        format!("\x1b[{}m{text}\x1b[0m", self.code())
    }
}

/// A row of a table.
#[derive(Debug, Default, Clone)]
pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    pub(crate) colour: Option<Colour>,
}

impl From<Vec<String>> for Row {
    fn from(cells: Vec<String>) -> Self {
        Self {
            cells,
            colour: None,
        }
    }
}

/// A piece of the text form.
#[derive(Debug)]
enum Block {
    Line(Option<Colour>, String),
    Table {
        headings: Vec<&'static str>,
        rows: Vec<Row>,
    },
}

/// The outcome of a command.
#[derive(Debug, Default)]
pub(crate) struct Report {
    blocks: Vec<Block>,
    json: Value,
    partly: Vec<String>,
    /// Everything has been shown already.
    quiet: bool,
}

impl Report {
    /// With its JSON form.
    pub(crate) fn new(json: Value) -> Self {
        Self {
            json,
            ..Self::default()
        }
    }

    /// Nothing more to say: the command has shown everything by itself.
    pub(crate) fn shown() -> Self {
        Self {
            quiet: true,
            ..Self::default()
        }
    }

    /// One line of text and the same as JSON `{"done": line}`.
    pub(crate) fn done(line: impl Into<String>) -> Self {
        let line = line.into();
        Self::new(serde_json::json!({ "done": line })).line(line)
    }

    pub(crate) fn with_json(mut self, json: Value) -> Self {
        self.json = json;
        self
    }

    pub(crate) fn line(mut self, line: impl Into<String>) -> Self {
        self.blocks.push(Block::Line(None, line.into()));
        self
    }

    pub(crate) fn lines(self, lines: impl IntoIterator<Item = String>) -> Self {
        lines.into_iter().fold(self, Self::line)
    }

    pub(crate) fn painted(mut self, colour: Colour, line: impl Into<String>) -> Self {
        self.blocks.push(Block::Line(Some(colour), line.into()));
        self
    }

    pub(crate) fn table<R: Into<Row>>(
        mut self,
        headings: &[&'static str],
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        self.blocks.push(Block::Table {
            headings: headings.to_vec(),
            rows: rows.into_iter().map(Into::into).collect(),
        });
        self
    }

    /// Something was not done: the status will be 4.
    pub(crate) fn partly(mut self, what: impl Into<String>) -> Self {
        self.partly.push(what.into());
        self
    }

    pub(crate) fn missing(mut self, what: impl IntoIterator<Item = String>) -> Self {
        self.partly.extend(what);
        self
    }

    /// What was not done.
    pub(crate) fn not_done(&self) -> &[String] {
        &self.partly
    }

    /// `one_line`: JSON without line ends, for commands that print many documents.
    pub(crate) fn to_string_in(&self, form: Form, one_line: bool) -> String {
        if self.quiet {
            return String::new();
        }
        match form {
            Form::Text => self.to_text(is_coloured()),
            Form::Json if one_line => format!("{}\n", self.json),
            Form::Json => format!(
                "{}\n",
                serde_json::to_string_pretty(&self.json).unwrap_or_default()
            ),
        }
    }

    fn to_text(&self, coloured: bool) -> String {
        let mut out = String::new();
        for block in &self.blocks {
            match block {
                Block::Line(Some(colour), line) if coloured => {
                    out.push_str(&colour.paint(line));
                    out.push('\n');
                }
                Block::Line(_, line) => {
                    out.push_str(line);
                    out.push('\n');
                }
                Block::Table { headings, rows } => text::table(&mut out, headings, rows, coloured),
            }
        }
        out
    }
}

/// Colour is for terminals whose user has not set NO_COLOR.
fn is_coloured() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Prints to standard output. A closed pipe is the reader's wish and no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
        other => other.map_err(|error| Failure::io("cannot write to standard output", error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn colour_is_there_only_where_it_is_wanted() {
        let row = Row {
            cells: vec!["broker-a".to_owned()],
            colour: Some(Colour::Red),
        };
        let report = Report::new(json!({ "a": 1 }))
            .painted(Colour::Green, "well")
            .table(&["#Broker"], [row]);
        assert_eq!(report.to_text(false), "well\n#Broker\nbroker-a\n");
        let coloured = report.to_text(true);
        assert!(coloured.contains("\x1b[32mwell\x1b[0m\n"), "{coloured:?}");
        assert!(
            coloured.contains("\x1b[31mbroker-a\x1b[0m\n"),
            "{coloured:?}"
        );
        assert_eq!(report.to_string_in(Form::Json, true), "{\"a\":1}\n");
        assert_eq!(Report::shown().to_string_in(Form::Json, true), "");
    }
}
