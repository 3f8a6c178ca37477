//! From arguments to an exit status.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use minimq_client::Client;

use crate::arguments::normalise;
use crate::command::{CommandSpec, find};
use crate::commands;
use crate::credentials;
use crate::failure::Failure;
use crate::given::Given;
use crate::plan;
use crate::report::{Form, Report, print};

/// Something was not done.
const PARTLY: u8 = 4;
/// Name server when none is given.
const DEFAULT_NAME_SERVER: &str = "127.0.0.1:9876";
/// Longest time for one request, s.
const MAX_TIMEOUT_S: f64 = 3600.0;

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
        return unknown(name);
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

fn unknown(name: &str) -> u8 {
    eprintln!("The sub command {name} not exist.{}", similar(name));
    eprintln!("  try: mqadmin help");
    1
}

fn list() -> u8 {
    let mut text = "The most commonly used mqadmin commands are:\n".to_owned();
    for (family, specs) in commands::families() {
        text.push_str(&format!("\n {family}\n"));
        for spec in specs {
            text.push_str(&format!("   {:<24} {}\n", spec.name, spec.about));
        }
    }
    text.push_str("\nSee 'mqadmin help <command>' for more information on a specific command.\n");
    let _ = print(&text);
    0
}

fn help_for(name: &str) -> u8 {
    match find(name) {
        Some(spec) => {
            let _ = spec.to_clap().print_help();
            0
        }
        None => unknown(name),
    }
}

/// A command with a name that is near.
fn similar(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let near = |known: &str| {
        let known = known.to_ascii_lowercase();
        let alike = known
            .bytes()
            .zip(lower.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        // The longest common beginning counts, of at least three letters; then the smallest difference of length.
        (alike >= 3 || known.contains(&lower))
            .then(|| (alike, usize::MAX - known.len().abs_diff(lower.len())))
    };
    if lower.is_empty() {
        return String::new();
    }
    let best = commands::all()
        .filter_map(|spec| Some((near(spec.name)?, spec.name)))
        .max_by_key(|(rank, _)| *rank);
    best.map(|(_, name)| format!(" Did you mean {name}?"))
        .unwrap_or_default()
}

fn perform(spec: &'static CommandSpec, matches: ArgMatches) -> u8 {
    let form = match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => Form::Json,
        _ => Form::Text,
    };
    let outcome = confirm(spec, &matches)
        .and_then(|()| execute(spec, matches, form))
        .and_then(|report| {
            print(&report.to_string_in(form, false))?;
            Ok(report)
        });
    match outcome {
        Ok(report) => {
            for missing in report.not_done() {
                eprintln!("mqadmin {}: {missing}", spec.name);
            }
            if report.not_done().is_empty() {
                0
            } else {
                PARTLY
            }
        }
        Err(failure @ Failure::ReaderGone) => failure.status(),
        Err(failure) => {
            eprintln!("mqadmin {}: {}", spec.name, failure.describe());
            if let Some(advice) = failure.advice() {
                eprintln!("  try: {advice}");
            }
            if matches!(failure, Failure::Usage(_)) {
                eprintln!("  see: mqadmin help {}", spec.name);
            }
            failure.status()
        }
    }
}

fn execute(spec: &'static CommandSpec, matches: ArgMatches, form: Form) -> Result<Report, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start", error))?;
    let outcome = runtime.block_on(async {
        let text = |long: &str| matches.get_one::<String>(long).cloned();
        let servers = text("namesrvAddr")
            .or_else(minimq_common::names::from_environment)
            .unwrap_or_else(|| DEFAULT_NAME_SERVER.to_owned());
        minimq_common::names::parse_list(&servers.replace(',', ";"))
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let timeout = timeout(text("timeout").as_deref())?;
        let mut builder = Client::builder().name_servers(servers);
        if let Some(account) = credentials::find(&matches)? {
            builder = builder.credentials(account);
        }
        if let Some(timeout) = timeout {
            builder = builder.request_timeout(timeout).connect_timeout(timeout);
        }
        let client = builder.build().await?;
        let mut admin = client.admin();
        if let Some(timeout) = timeout {
            admin = admin.timeout(timeout);
        }
        if matches.get_flag("dry-run") {
            admin = admin.dry_run();
        }
        let given = Given::new(client, admin, form, matches)?;
        let report = (spec.run)(&given).await?;
        Ok(if given.dry_run {
            plan::instead_of(report, given.admin.planned())
        } else {
            report
        })
    });
    // A thread that waits for standard input must not hold the end up.
    runtime.shutdown_background();
    outcome
}

fn timeout(given: Option<&str>) -> Result<Option<Duration>, Failure> {
    let Some(text) = given else { return Ok(None) };
    match text.trim().parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= MAX_TIMEOUT_S => {
            Ok(Some(Duration::from_secs_f64(seconds)))
        }
        _ => Err(Failure::Usage(format!(
            "--timeout is \"{text}\", it must be seconds, above 0 and up to {MAX_TIMEOUT_S}"
        ))),
    }
}

/// Asks on a terminal before something is destroyed.
fn confirm(spec: &CommandSpec, matches: &ArgMatches) -> Result<(), Failure> {
    let Some(danger) = spec.danger else {
        return Ok(());
    };
    let quiet = matches.get_flag("yes") || matches.get_flag("dry-run");
    if quiet || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    let given: Vec<String> = spec
        .options
        .iter()
        .filter_map(|option| {
            let value = matches.try_get_one::<String>(option.long).ok().flatten()?;
            Some(format!("{}={value}", option.long))
        })
        .collect();
    eprint!("This {danger} ({}). Go on? [y/N] ", given.join(", "));
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|error| Failure::io("cannot read the answer", error))?;
    if ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()) {
        Ok(())
    } else {
        Err(Failure::Declined(
            "the answer was not y (--yes answers, --dry-run only shows)".to_owned(),
        ))
    }
}
