//! Scripts with which a shell completes commands and options.

use clap::Command;
use clap_complete::{Shell, generate};

use crate::command::{CommandSpec, Outcome, word};
use crate::failure::Failure;
use crate::given::Given;
use crate::report::Report;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "completion",
    about: "Script that completes commands and options in a shell",
    example: "completion bash > /etc/bash_completion.d/mqadmin",
    options: &[word("SHELL", "bash, zsh or fish")],
    danger: None,
    run: |given| Box::pin(async move { script(given) }),
}];

fn script(given: &Given) -> Outcome {
    let name = given.text("SHELL")?;
    let shell = match name.to_ascii_lowercase().as_str() {
        "bash" => Shell::Bash,
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => {
            return Err(Failure::Usage(format!(
                "\"{name}\" is no shell with completion here, there is bash, zsh and fish"
            )));
        }
    };
    let mut whole = Command::new("mqadmin").subcommands(super::all().map(CommandSpec::to_clap));
    let mut text = Vec::new();
    generate(shell, &mut whole, "mqadmin", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(
        Report::new(serde_json::json!({ "shell": name, "script": text }))
            .line(text.trim_end().to_owned()),
    )
}
