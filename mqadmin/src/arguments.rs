//! The stock tool's liberties with arguments, turned into the usual form before they are parsed: `-topic X` for
//! `--topic X`, names of commands in any case, and a flag's surplus word (mqadmin spec 1.12).

use crate::command::{CommandSpec, find};

/// The arguments behind the program's name in the usual form, and the command they call, if there is one.
pub(crate) fn normalise(arguments: &[String]) -> (Vec<String>, Option<&'static CommandSpec>) {
    let Some((name, rest)) = arguments.split_first() else {
        return (Vec::new(), None);
    };
    let Some(spec) = find(name) else {
        return (arguments.to_vec(), None);
    };
    let mut out = vec![spec.name.to_owned()];
    out.extend(rest.iter().map(|word| long_option(word, spec)));
    (out, Some(spec))
}

/// `-topic` is `--topic`: one dash before a long name that is no bundle of letters.
fn long_option(word: &str, spec: &CommandSpec) -> String {
    let Some(name) = word
        .strip_prefix('-')
        .filter(|name| !name.starts_with('-') && name.len() > 1)
    else {
        return word.to_owned();
    };
    let bare = name.split('=').next().unwrap_or(name);
    let known = spec.options.iter().any(|option| option.long == bare);
    if known || bare == "namesrvAddr" {
        format!("-{word}")
    } else {
        word.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(words: &[&str]) -> Vec<String> {
        normalise(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()).0
    }

    #[test]
    fn case_and_single_dashes_are_accepted() {
        assert_eq!(
            normal(&["TOPICROUTE", "-topic", "T", "-n", "a:1"]),
            ["topicRoute", "--topic", "T", "-n", "a:1"]
        );
        assert_eq!(
            normal(&["topicRoute", "-tT", "-topic=T"]),
            ["topicRoute", "-tT", "--topic=T"]
        );
        assert_eq!(normal(&["nonsense", "-topic"]), ["nonsense", "-topic"]);
    }
}
