//! From arguments to an exit status.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::ArgMatches;
use minimq_client::Client;

use crate::arguments::normalise;
use crate::command::{CommandSpec, Given, find};
use crate::commands;
use crate::failure::Failure;
use crate::report::Report;

/// Something was not done.
const PARTLY: u8 = 4;
/// Name server when none is given.
const DEFAULT_NAME_SERVER: &str = "127.0.0.1:9876";

/// Runs `mqadmin` with the process's arguments; the result is its exit status.
pub fn run(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let arguments: Vec<String> = arguments.into_iter().skip(1).collect();
    ExitCode::from(main(&arguments))
}

fn main(arguments: &[String]) -> u8 {
    match arguments {
        [] => return list(),
        [first] if ["-h", "--help", "help"].contains(&first.as_str()) => return list(),
        [first] if ["-V", "--version"].contains(&first.as_str()) => {
            println!("mqadmin {}", env!("CARGO_PKG_VERSION"));
            return 0;
        }
        [help, name] if help == "help" => return help_for(name),
        _ => {}
    }
    let (arguments, spec) = normalise(arguments);
    let Some(spec) = spec else {
        let name = arguments.first().map_or("", String::as_str);
        eprintln!("The sub command {name} not exist.{}", similar(name));
        return 1;
    };
    match spec.to_clap().try_get_matches_from(&arguments) {
        Ok(matches) => perform(spec, matches),
        Err(error) => {
            // Nothing is left to do when even that cannot be printed.
            let _ = error.print();
            u8::from(error.use_stderr())
        }
    }
}

fn list() -> u8 {
    println!("The most commonly used mqadmin commands are:");
    for spec in commands::all() {
        println!("   {:<24} {}", spec.name, spec.about);
    }
    println!("\nSee 'mqadmin help <command>' for more information on a specific command.");
    0
}

fn help_for(name: &str) -> u8 {
    match find(name) {
        Some(spec) => {
            let _ = spec.to_clap().print_help();
            0
        }
        None => {
            eprintln!("The sub command {name} not exist.{}", similar(name));
            1
        }
    }
}

/// A command that begins or ends alike.
fn similar(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let close = commands::all().find(|spec| {
        let known = spec.name.to_ascii_lowercase();
        !lower.is_empty() && (known.contains(&lower) || lower.contains(&known))
    });
    close
        .map(|spec| format!(" Did you mean {}?", spec.name))
        .unwrap_or_default()
}

fn perform(spec: &'static CommandSpec, matches: ArgMatches) -> u8 {
    let json = matches
        .get_one::<String>("output")
        .is_some_and(|form| form == "json");
    let outcome = confirm(spec, &matches).and_then(|()| execute(spec, matches));
    match outcome {
        Ok(report) => {
            let text = if json {
                report.to_json()
            } else {
                report.to_text()
            };
            // A closed pipe is the reader's wish.
            let _ = std::io::stdout().write_all(text.as_bytes());
            for missing in report.missing() {
                eprintln!("mqadmin {}: {missing}", spec.name);
            }
            if report.missing().is_empty() {
                0
            } else {
                PARTLY
            }
        }
        Err(failure) => {
            eprintln!("mqadmin {}: {}", spec.name, failure.describe());
            if let Some(advice) = failure.advice() {
                eprintln!("  try: {advice}");
            }
            failure.status()
        }
    }
}

fn execute(spec: &'static CommandSpec, matches: ArgMatches) -> Result<Report, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start", error))?;
    runtime.block_on(async {
        let given_servers = matches.get_one::<String>("namesrvAddr").cloned();
        let servers = given_servers
            .or_else(minimq_common::names::from_environment)
            .unwrap_or_else(|| DEFAULT_NAME_SERVER.to_owned());
        let client = Client::builder().name_servers(servers).build().await?;
        let given = Given::new(client, matches);
        (spec.run)(&given).await
    })
}

/// Asks on a terminal before something is destroyed.
fn confirm(spec: &CommandSpec, matches: &ArgMatches) -> Result<(), Failure> {
    let Some(danger) = spec.danger else {
        return Ok(());
    };
    if matches.get_flag("yes") || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    eprint!("This {danger}. Go on? [y/N] ");
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|error| Failure::io("cannot read the answer", error))?;
    if answer.trim().eq_ignore_ascii_case("y") {
        Ok(())
    } else {
        Err(Failure::Declined("you did not say y".to_owned()))
    }
}
