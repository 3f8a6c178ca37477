//! A command as data, and what was given to it.

use std::pin::Pin;

use clap::{Arg, ArgAction, ArgMatches, Command};
use minimq_client::Admin;

use crate::commands;
use crate::failure::Failure;
use crate::report::Report;

/// One option of a command.
#[derive(Debug)]
pub(crate) struct Opt {
    pub(crate) short: char,
    pub(crate) long: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
}

/// How an option takes its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Required,
    Optional,
    Default(&'static str),
    Flag,
}

pub(crate) const fn required(short: char, long: &'static str, help: &'static str) -> Opt {
    Opt {
        short,
        long,
        kind: Kind::Required,
        help,
    }
}

pub(crate) const fn optional(short: char, long: &'static str, help: &'static str) -> Opt {
    Opt {
        short,
        long,
        kind: Kind::Optional,
        help,
    }
}

pub(crate) const fn default(
    short: char,
    long: &'static str,
    value: &'static str,
    help: &'static str,
) -> Opt {
    Opt {
        short,
        long,
        kind: Kind::Default(value),
        help,
    }
}

pub(crate) const fn flag(short: char, long: &'static str, help: &'static str) -> Opt {
    Opt {
        short,
        long,
        kind: Kind::Flag,
        help,
    }
}

pub(crate) type Outcome = Result<Report, Failure>;
pub(crate) type Running<'c> = Pin<Box<dyn Future<Output = Outcome> + 'c>>;

/// A command.
pub(crate) struct CommandSpec {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) example: &'static str,
    pub(crate) options: &'static [Opt],
    /// What it destroys; asked about on a terminal.
    pub(crate) danger: Option<&'static str>,
    pub(crate) run: for<'c> fn(&'c Given) -> Running<'c>,
}

/// The command of a name, in any case.
pub(crate) fn find(name: &str) -> Option<&'static CommandSpec> {
    commands::all().find(|spec| spec.name.eq_ignore_ascii_case(name))
}

impl CommandSpec {
    pub(crate) fn to_clap(&self) -> Command {
        let mut command = Command::new(self.name)
            .about(self.about)
            .after_help(format!("Example:\n  mqadmin {}", self.example))
            .arg(
                Arg::new("namesrvAddr")
                    .short('n')
                    .long("namesrvAddr")
                    .value_name("ADDRS")
                    .help("Name servers, host:port separated by ; [default: NAMESRV_ADDR, else 127.0.0.1:9876]"),
            )
            .arg(Arg::new("yes").long("yes").action(ArgAction::SetTrue).help("Does not ask"))
            .arg(
                Arg::new("output")
                    .long("output")
                    .value_name("FORM")
                    .value_parser(["text", "json"])
                    .default_value("text")
                    .help("Form of the output"),
            )
            // Surplus words are ignored, as the stock tool does.
            .arg(Arg::new("surplus").num_args(0..).hide(true));
        if self.options.iter().all(|option| option.short != 'o') {
            command = command.mut_arg("output", |arg| arg.short('o'));
        }
        for option in self.options {
            let mut arg = Arg::new(option.long)
                .short(option.short)
                .long(option.long)
                .help(option.help);
            arg = match option.kind {
                Kind::Flag => arg.action(ArgAction::SetTrue),
                kind => {
                    arg = arg
                        .value_name("VALUE")
                        .allow_hyphen_values(true)
                        .required(kind == Kind::Required);
                    match kind {
                        Kind::Default(value) => arg.default_value(value),
                        _ => arg,
                    }
                }
            };
            command = command.arg(arg);
        }
        command
    }
}

/// What a command works with.
pub(crate) struct Given {
    pub(crate) admin: Admin,
    pub(crate) client: minimq_client::Client,
    matches: ArgMatches,
}

impl Given {
    pub(crate) fn new(client: minimq_client::Client, matches: ArgMatches) -> Self {
        Self {
            admin: client.admin(),
            client,
            matches,
        }
    }

    /// An option's value, trimmed; empty counts as not given.
    pub(crate) fn optional(&self, long: &str) -> Option<&str> {
        let value: &String = self.matches.get_one(long)?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }

    /// The value of a required option, or of one with a default.
    pub(crate) fn text(&self, long: &str) -> Result<&str, Failure> {
        self.optional(long)
            .ok_or_else(|| Failure::Usage(format!("--{long} must not be empty")))
    }

    pub(crate) fn flag(&self, long: &str) -> bool {
        self.matches.get_flag(long)
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, long: &str) -> Result<T, Failure> {
        let text = self.text(long)?;
        text.parse().map_err(|_| {
            Failure::Usage(format!("--{long} is \"{text}\", it must be a whole number"))
        })
    }

    pub(crate) fn boolean(&self, long: &str) -> Result<bool, Failure> {
        let text = self.text(long)?;
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Failure::Usage(format!(
                "--{long} is \"{text}\", it must be true or false"
            ))),
        }
    }

    /// The brokers meant by `-b` (an address) or `-c` (a cluster): the masters.
    pub(crate) async fn brokers(&self) -> Result<Vec<String>, Failure> {
        let cluster = self
            .optional("clusterName")
            .or_else(|| self.cluster_option());
        match (self.optional("brokerAddr"), cluster) {
            (Some(addr), _) => Ok(vec![addr.to_owned()]),
            (None, Some(cluster)) => {
                let masters = self.admin.masters_of_cluster(cluster).await?;
                if masters.is_empty() {
                    return Err(no_cluster(cluster));
                }
                Ok(masters.into_iter().map(|(_, addr)| addr).collect())
            }
            (None, None) => Err(Failure::Usage(
                "give a broker with -b host:port, or a cluster with -c NAME (mqadmin clusterList shows them)".to_owned(),
            )),
        }
    }

    fn cluster_option(&self) -> Option<&str> {
        let value = self
            .matches
            .try_get_one::<String>("cluster")
            .ok()
            .flatten()?;
        Some(value.trim()).filter(|value| !value.is_empty())
    }
}

/// The stock tool's words for a cluster that is not there.
pub(crate) fn no_cluster(cluster: &str) -> Failure {
    Failure::NotFound(format!(
        "[error] Make sure the specified clusterName exists or the name server connected to is correct: no cluster {cluster} with a master"
    ))
}
