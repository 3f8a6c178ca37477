//! The changing parts of the tool's output (addresses, times, ids, figures) replaced, so that the rest can be compared.

/// Parts that are known to the test, and what stands for them.
#[derive(Default)]
pub(crate) struct Masks {
    known: Vec<(String, String)>,
}

impl Masks {
    /// `name` in angle brackets stands for the address, as wide as it, so that tables stay aligned.
    pub(crate) fn hide_address(&mut self, address: &str, name: &str) {
        let shown = format!("{:.<15}", format!("<{name}>"));
        self.replace(address, shown);
    }

    /// `name` in angle brackets stands for `text`.
    pub(crate) fn hide(&mut self, text: &str, name: &str) {
        self.replace(text, format!("<{name}>"));
    }

    fn replace(&mut self, text: &str, shown: String) {
        // A port may have been another's before.
        self.known.retain(|(known, _)| known != text);
        self.known.push((text.to_owned(), shown));
        // What holds another known part goes first.
        self.known.sort_by_key(|(text, _)| usize::MAX - text.len());
    }

    /// Without what changes from run to run.
    pub(crate) fn steady(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (text, shown) in &self.known {
            out = out.replace(text, shown);
        }
        masked_tokens(&out)
    }

    /// The same without figures, and with the blanks between columns as two.
    pub(crate) fn loose(&self, text: &str) -> String {
        let mut out = String::new();
        for line in self.steady(text).lines() {
            let line = ["DISK HIGH", "DISK FULL"]
                .iter()
                .fold(line.to_owned(), |line, health| line.replace(health, "OK"));
            out.push_str(&without_figures(&line));
            out.push('\n');
        }
        out
    }
}

/// Ids, times and ports of clients in a text.
fn masked_tokens(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (taken, shown) = token(rest);
        if taken == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.push_str(&shown);
            rest = &rest[taken..];
        }
    }
    out
}

/// How many bytes the text begins with that change from run to run, and what stands for them. A word that does not change is
/// taken as a whole.
fn token(text: &str) -> (usize, String) {
    let word = text
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(text.len());
    let is = |pattern: &str| {
        text.len() >= pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(c, p)| match p {
                b'9' => c.is_ascii_digit(),
                _ => c == p,
            })
    };
    let time = "9999-99-99 99:99:99";
    if is(time) {
        return (time.len(), "yyyy-MM-dd HH:mm:ss".to_owned());
    }
    if is(",999") && !text[4..].starts_with(|c: char| c.is_ascii_digit()) {
        return (4, ",SSS".to_owned());
    }
    if let Some(port) = text.strip_prefix("127.0.0.1:") {
        let digits = port
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(port.len());
        return (10 + digits, format!("127.0.0.1:{}", "p".repeat(digits)));
    }
    let bytes = &text.as_bytes()[..word];
    let hex = bytes.iter().all(u8::is_ascii_hexdigit);
    match word {
        32 if hex => (32, format!("{:.<32}", "<id>")),
        64 if hex => (64, format!("{:.<64}", "<hash>")),
        13 if bytes.iter().all(u8::is_ascii_digit) => (13, format!("{:.<13}", "<ms>")),
        _ => (word, text[..word].to_owned()),
    }
}

/// Each number as `N`, each run of blanks as two, each unit of sizes as `B`.
fn without_figures(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let in_word =
            out.ends_with(|last: char| last.is_alphanumeric() || last == '_' || last == '-');
        if c.is_ascii_digit() && !in_word {
            while chars.next_if(|c| c.is_ascii_digit() || *c == '.').is_some() {}
            out.push('N');
        } else if c == ' ' && chars.peek() == Some(&' ') {
            while chars.next_if_eq(&' ').is_some() {}
            out.push_str("  ");
        } else {
            out.push(c);
        }
    }
    for unit in ["KiB", "MiB", "GiB", "TiB"] {
        out = out.replace(&format!("N {unit}"), "N B");
    }
    out.trim_end().to_owned()
}

#[test]
fn what_changes_is_replaced_and_the_rest_stays() {
    let mut masks = Masks::default();
    masks.hide_address("127.0.0.1:41234", "broker-a");
    assert_eq!(
        masks.steady("a  127.0.0.1:41234  7F000001000055DF0000000000000000 2026-11-30 09:53:32,887 127.0.0.1:5000 x12"),
        "a  <broker-a>.....  <id>............................ yyyy-MM-dd HH:mm:ss,SSS 127.0.0.1:pppp x12"
    );
    assert_eq!(
        masks.loose("V4_9_8   12.5   DISK HIGH   1.5 GiB  broker-1"),
        "V4_9_8  N  OK  N B  broker-1\n"
    );
}
