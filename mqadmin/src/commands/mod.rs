//! The commands, one file a family.

mod access;
mod allocation;
mod brokers;
mod completion;
mod configuration;
mod diagnosis;
mod exports;
mod filters;
mod groups;
mod housekeeping;
mod internals;
mod listing;
mod members;
mod message_files;
mod message_queries;
mod monitoring;
mod name_servers;
mod offline;
mod offsets;
mod overview;
mod printing;
mod probes;
mod progress;
mod queues;
mod sending;
mod shape;
mod statistics;
mod tail;
mod topics;
mod traces;
mod transfer;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::command::{CommandSpec, Outcome};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

/// Longest pause between two rounds, s.
const MAX_INTERVAL_S: f64 = 86_400.0;

/// All commands by family, in the order of the list.
pub(crate) fn families() -> Vec<(&'static str, Vec<&'static CommandSpec>)> {
    let family =
        |name, parts: &[&'static [CommandSpec]]| (name, parts.iter().copied().flatten().collect());
    vec![
        family(
            "The whole cluster",
            &[
                overview::COMMANDS,
                diagnosis::COMMANDS,
                configuration::COMMANDS,
            ],
        ),
        family("Topics", &[topics::COMMANDS, allocation::COMMANDS]),
        family(
            "Consumer and producer groups",
            &[
                groups::COMMANDS,
                members::COMMANDS,
                progress::COMMANDS,
                offsets::COMMANDS,
            ],
        ),
        family(
            "Messages",
            &[
                message_queries::COMMANDS,
                traces::COMMANDS,
                printing::COMMANDS,
                tail::COMMANDS,
                transfer::COMMANDS,
                sending::COMMANDS,
                queues::COMMANDS,
            ],
        ),
        family(
            "Clusters and brokers",
            &[
                brokers::COMMANDS,
                housekeeping::COMMANDS,
                internals::COMMANDS,
                listing::COMMANDS,
            ],
        ),
        family(
            "Figures and probes",
            &[
                statistics::COMMANDS,
                probes::COMMANDS,
                monitoring::COMMANDS,
                exports::COMMANDS,
            ],
        ),
        family("Stores on disk", &[offline::COMMANDS]),
        family("Filters", &[filters::COMMANDS]),
        family("Name servers", &[name_servers::COMMANDS]),
        family("Access control", &[access::COMMANDS]),
        family("The shell", &[completion::COMMANDS]),
    ]
}

/// All commands.
pub(crate) fn all() -> impl Iterator<Item = &'static CommandSpec> {
    families().into_iter().flat_map(|(_, specs)| specs)
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

/// Does it once; or, if the option with that name gives seconds, again and again, showing each report: `--times` says how often.
async fn repeat<F>(given: &Given, interval: &str, act: impl Fn() -> F) -> Outcome
where
    F: Future<Output = Outcome>,
{
    let Some(seconds) = given.optional_number::<f64>(interval)? else {
        return act().await;
    };
    if !(0.0..=MAX_INTERVAL_S).contains(&seconds) {
        return Err(Failure::Usage(format!(
            "--{interval} is {seconds}, it must be from 0 to {MAX_INTERVAL_S} seconds"
        )));
    }
    let times: Option<u64> = given.optional_number("times")?;
    let mut done = 0;
    loop {
        let report = act().await?;
        given.show(&report)?;
        for missing in report.not_done() {
            eprintln!("mqadmin: {missing}");
        }
        done += 1;
        if times.is_some_and(|times| done >= times) {
            return Ok(Report::shown());
        }
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::all;
    use crate::command::{Kind, find};

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

    fn golden(file: &str) -> String {
        let path = format!(
            "{}/../tests/golden/mqadmin/{file}",
            env!("CARGO_MANIFEST_DIR")
        );
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn every_stock_command_is_here_with_its_letters_names_and_kinds() {
        let mut commands: BTreeMap<String, usize> = BTreeMap::new();
        for line in golden("options.tsv").lines().skip(1) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [command, _, short, long, has_value] = fields.as_slice() else {
                panic!("{line}")
            };
            let spec = find(command).unwrap_or_else(|| panic!("{command} is missing"));
            *commands.entry((*command).to_owned()).or_default() += 1;
            if ["h", "n"].contains(short) {
                continue;
            }
            let option = spec
                .options
                .iter()
                .find(|option| option.short.to_string() == *short)
                .unwrap_or_else(|| panic!("{command} lacks -{short}"));
            let readable: String = long.split_whitespace().collect::<Vec<_>>().join(" ");
            let own = option.long.to_ascii_lowercase();
            assert_eq!(
                own,
                readable.to_ascii_lowercase().replace(' ', "-"),
                "{command} -{short}"
            );
            assert_eq!(
                option.kind != Kind::Flag,
                *has_value == "True",
                "{command} -{short}"
            );
        }
        assert_eq!(commands.len(), 56, "{commands:?}");
    }

    #[test]
    fn the_stock_list_of_commands_has_the_same_names_and_descriptions() {
        let text: serde_json::Value = serde_json::from_str(&golden("no-arguments.json")).unwrap();
        let list = text[0]["stdout"].as_str().unwrap();
        let mut count = 0;
        for line in list.lines().filter(|line| line.starts_with("   ")) {
            let (name, about) = line.trim().split_once(' ').unwrap();
            let spec = find(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!((spec.name, spec.about), (name, about.trim()));
            count += 1;
        }
        assert_eq!(count, 56);
    }
}
