//! The commands, one file a family.

mod access;
mod brokers;
mod groups;
mod messages;
mod name_servers;
mod offsets;
mod topics;

use std::collections::BTreeMap;

use crate::command::CommandSpec;

/// All commands, in the order of the list.
pub(crate) fn all() -> impl Iterator<Item = &'static CommandSpec> {
    [
        topics::COMMANDS,
        groups::COMMANDS,
        offsets::COMMANDS,
        brokers::COMMANDS,
        messages::COMMANDS,
        name_servers::COMMANDS,
        access::COMMANDS,
    ]
    .into_iter()
    .flatten()
}

/// The pairs of a properties text.
fn pairs(properties: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        line.split_once('=')
            .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
    };
    properties
        .lines()
        .filter(|text| !text.starts_with('#'))
        .filter_map(line)
        .collect()
}

/// `key : value` lines, sorted by key.
fn key_lines(values: &BTreeMap<String, String>) -> impl Iterator<Item = String> + '_ {
    let width = values.keys().map(String::len).max().unwrap_or(0);
    values
        .iter()
        .map(move |(key, value)| format!("{key:<width$} : {value}"))
}

#[cfg(test)]
mod tests {
    use super::all;

    #[test]
    fn names_and_letters_are_unique_and_every_command_has_an_example() {
        let mut names: Vec<_> = all().map(|spec| spec.name.to_ascii_lowercase()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        for spec in all() {
            assert!(spec.example.starts_with(spec.name), "{}", spec.name);
            spec.to_clap().debug_assert();
        }
    }
}
