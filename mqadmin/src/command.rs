//! A command as data: its name, options and example, and the parser made of them.

use std::pin::Pin;

use clap::{Arg, ArgAction, Command};

use crate::commands;
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

/// No letter: the option has a long name only.
const NO_LETTER: char = '\0';

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
    /// Must be given.
    Required,
    /// May be given.
    Optional,
    /// Has this value unless given.
    Default(&'static str),
    /// Takes no value.
    Flag,
    /// Stands by itself, without a name, and must be given.
    Word,
    /// Stands by itself and may be left out.
    OptionalWord,
}

pub(crate) const fn required(short: char, long: &'static str, help: &'static str) -> Opt {
    opt(short, long, Kind::Required, help)
}

pub(crate) const fn optional(short: char, long: &'static str, help: &'static str) -> Opt {
    opt(short, long, Kind::Optional, help)
}

pub(crate) const fn default(
    short: char,
    long: &'static str,
    value: &'static str,
    help: &'static str,
) -> Opt {
    opt(short, long, Kind::Default(value), help)
}

pub(crate) const fn flag(short: char, long: &'static str, help: &'static str) -> Opt {
    opt(short, long, Kind::Flag, help)
}

/// An option without a letter.
pub(crate) const fn long(long: &'static str, kind: Kind, help: &'static str) -> Opt {
    opt(NO_LETTER, long, kind, help)
}

/// A word without a name.
pub(crate) const fn word(name: &'static str, help: &'static str) -> Opt {
    opt(NO_LETTER, name, Kind::Word, help)
}

const fn opt(short: char, long: &'static str, kind: Kind, help: &'static str) -> Opt {
    Opt {
        short,
        long,
        kind,
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

/// Other names of commands, as the stock tool has them.
const ALIASES: &[(&str, &str)] = &[("deleteAccessConfig", "deleteAclConfig")];

/// The command of a name, in any case.
pub(crate) fn find(name: &str) -> Option<&'static CommandSpec> {
    let name = ALIASES
        .iter()
        .find(|(alias, _)| alias.eq_ignore_ascii_case(name))
        .map_or(name, |(_, name)| name);
    commands::all().find(|spec| spec.name.eq_ignore_ascii_case(name))
}

/// Options that every command has: long name, what stands for its value, help.
const COMMON: &[(&str, &str, &str)] = &[
    (
        "timeout",
        "SECONDS",
        "Time for one request [default: 5; those that brokers pass on: 15]",
    ),
    ("parallel", "N", "Servers asked at once [default: 16]"),
    (
        "access-key",
        "KEY",
        "Account that signs every request [default: MINIMQ_ACCESS_KEY, else accessKey of conf/tools.yml]",
    ),
    (
        "secret-key",
        "SECRET",
        "Its secret; safer in MINIMQ_SECRET_KEY or conf/tools.yml, where no list of processes shows it",
    ),
    (
        "credentials",
        "FILE",
        "File with accessKey, secretKey and securityToken [default: conf/tools.yml below ROCKETMQ_HOME]",
    ),
];

impl CommandSpec {
    pub(crate) fn to_clap(&self) -> Command {
        let taken = |letter: char| self.options.iter().any(|option| option.short == letter);
        let common = "Options of every command";
        let mut command = Command::new(self.name)
            .bin_name(format!("mqadmin {}", self.name))
            .about(self.about)
            .after_help(format!("Example:\n  mqadmin {}", self.example));
        for option in self.options {
            command = command.arg(option.to_arg());
        }
        let output = Arg::new("output")
            .long("output")
            .value_name("FORM")
            .value_parser(["text", "json"])
            .default_value("text")
            .help("Form of the output")
            .help_heading(common);
        command = command
            .arg(
                Arg::new("namesrvAddr")
                    .short('n')
                    .long("namesrvAddr")
                    .value_name("ADDRS")
                    .help("Name servers, host:port separated by ; [default: NAMESRV_ADDR, else 127.0.0.1:9876]")
                    .help_heading(common),
            )
            .arg(if taken('o') { output } else { output.short('o') })
            .arg(
                Arg::new("yes")
                    .long("yes")
                    .action(ArgAction::SetTrue)
                    .help("Does not ask before something is destroyed")
                    .help_heading(common),
            )
            .arg(
                Arg::new("dry-run")
                    .long("dry-run")
                    .action(ArgAction::SetTrue)
                    .help("Shows the requests that would change something instead of sending them")
                    .help_heading(common),
            );
        for (name, value, help) in COMMON {
            if self.options.iter().any(|option| option.long == *name) {
                continue;
            }
            let arg = Arg::new(*name)
                .long(*name)
                .value_name(*value)
                .help(*help)
                .help_heading(common);
            command = command.arg(arg);
        }
        // Surplus words are ignored, as the stock tool does.
        command.arg(Arg::new("surplus").num_args(0..).hide(true))
    }
}

impl Opt {
    fn to_arg(&self) -> Arg {
        let mut arg = Arg::new(self.long).help(self.help);
        if matches!(self.kind, Kind::Word | Kind::OptionalWord) {
            return arg.value_name(self.long).required(self.kind == Kind::Word);
        }
        arg = arg.long(self.long);
        if self.short != NO_LETTER {
            arg = arg.short(self.short);
        }
        if self.kind == Kind::Flag {
            return arg.action(ArgAction::SetTrue);
        }
        arg = arg
            .value_name("VALUE")
            .allow_hyphen_values(true)
            .required(self.kind == Kind::Required);
        match self.kind {
            Kind::Default(value) => arg.default_value(value),
            _ => arg,
        }
    }
}
