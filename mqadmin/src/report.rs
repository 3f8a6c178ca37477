//! What a command has to say: lines and tables for people, a JSON value for scripts, and what was not done.

use serde_json::Value;

use crate::text;

/// A piece of the text form.
#[derive(Debug)]
enum Block {
    Line(String),
    Table {
        headings: Vec<&'static str>,
        rows: Vec<Vec<String>>,
    },
}

/// The outcome of a command.
#[derive(Debug, Default)]
pub(crate) struct Report {
    blocks: Vec<Block>,
    json: Value,
    partly: Vec<String>,
}

impl Report {
    /// With its JSON form.
    pub(crate) fn new(json: Value) -> Self {
        Self {
            json,
            ..Self::default()
        }
    }

    /// One line of text and the same as JSON `{"done": line}`.
    pub(crate) fn done(line: impl Into<String>) -> Self {
        let line = line.into();
        Self::new(serde_json::json!({ "done": line })).line(line)
    }

    pub(crate) fn line(mut self, line: impl Into<String>) -> Self {
        self.blocks.push(Block::Line(line.into()));
        self
    }

    pub(crate) fn table(mut self, headings: &[&'static str], rows: Vec<Vec<String>>) -> Self {
        self.blocks.push(Block::Table {
            headings: headings.to_vec(),
            rows,
        });
        self
    }

    /// Something was not done: the status will be 4.
    pub(crate) fn partly(mut self, what: impl Into<String>) -> Self {
        self.partly.push(what.into());
        self
    }

    /// What was not done.
    pub(crate) fn missing(&self) -> &[String] {
        &self.partly
    }

    pub(crate) fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.json).unwrap_or_default();
        text.push('\n');
        text
    }

    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        for block in &self.blocks {
            match block {
                Block::Line(line) => {
                    out.push_str(line);
                    out.push('\n');
                }
                Block::Table { headings, rows } => text::table(&mut out, headings, rows),
            }
        }
        out
    }
}
