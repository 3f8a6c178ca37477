//! The account that signs requests: from options, the environment, or a file in the form of the stock tool's
//! `conf/tools.yml` (mqadmin spec 1.11). Secrets are never printed.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use minimq_client::Credentials;

use crate::failure::Failure;

/// Largest file of credentials, bytes.
const MAX_FILE: u64 = 64 * 1024;

#[derive(Default)]
struct ToolsFile {
    access_key: Option<String>,
    secret_key: Option<String>,
    security_token: Option<String>,
}

/// The account to sign with, if there is one: options, then the environment, then the file.
pub(crate) fn find(matches: &ArgMatches) -> Result<Option<Credentials>, Failure> {
    let text = |long: &str| matches.try_get_one::<String>(long).ok().flatten().cloned();
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let access = text("access-key").or_else(|| variable("MINIMQ_ACCESS_KEY"));
    let secret = text("secret-key").or_else(|| variable("MINIMQ_SECRET_KEY"));
    match (access, secret) {
        (Some(access), Some(secret)) => {
            let account = Credentials::new(access, &secret);
            Ok(Some(match variable("MINIMQ_SECURITY_TOKEN") {
                Some(token) => account.security_token(token),
                None => account,
            }))
        }
        (None, None) => from_file(text("credentials").map(PathBuf::from)),
        (Some(_), None) => Err(Failure::Usage(
            "an access key needs its secret: --secret-key or MINIMQ_SECRET_KEY".to_owned(),
        )),
        (None, Some(_)) => Err(Failure::Usage(
            "a secret needs its access key: --access-key or MINIMQ_ACCESS_KEY".to_owned(),
        )),
    }
}

fn from_file(given: Option<PathBuf>) -> Result<Option<Credentials>, Failure> {
    let must_be_there = given.is_some();
    let Some(path) = given.or_else(|| {
        std::env::var_os("ROCKETMQ_HOME").map(|home| Path::new(&home).join("conf/tools.yml"))
    }) else {
        return Ok(None);
    };
    let shown = path.display();
    let length = match std::fs::metadata(&path) {
        Ok(meta) => meta.len(),
        Err(_) if !must_be_there => return Ok(None),
        Err(error) => return Err(Failure::io(format!("cannot read {shown}"), error)),
    };
    if length > MAX_FILE {
        return Err(Failure::Usage(format!(
            "{shown} has {length} bytes, a file of credentials has at most {MAX_FILE}"
        )));
    }
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure::io(format!("cannot read {shown}"), error))?;
    let file = read(&text);
    match (file.access_key, file.secret_key) {
        (Some(access), Some(secret)) if !access.is_empty() && !secret.is_empty() => {
            let account = Credentials::new(access, &secret);
            Ok(Some(match file.security_token {
                Some(token) => account.security_token(token),
                None => account,
            }))
        }
        _ if must_be_there => Err(Failure::Usage(format!(
            "{shown} has no accessKey and secretKey"
        ))),
        _ => Ok(None),
    }
}

/// The three keys, whatever else is in the file. Values stay text, also when they look like numbers.
fn read(text: &str) -> ToolsFile {
    let mut file = ToolsFile::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.split(" #").next().unwrap_or_default().trim();
        let value = ['"', '\'']
            .iter()
            .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
            .unwrap_or(value);
        let place = match key.trim() {
            "accessKey" => &mut file.access_key,
            "secretKey" => &mut file.secret_key,
            "securityToken" => &mut file.security_token,
            _ => continue,
        };
        *place = Some(value.to_owned());
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stock_file_is_read_and_an_empty_one_has_no_account() {
        let file = read("# comment\naccessKey: rocketmq2\nsecretKey: 012345678 # digits\n");
        assert_eq!(file.access_key.as_deref(), Some("rocketmq2"));
        assert_eq!(file.secret_key.as_deref(), Some("012345678"));
        let quoted = read("accessKey: \"a b\"\nsecretKey: 'x:y'\n#securityToken: no\n");
        assert_eq!(quoted.access_key.as_deref(), Some("a b"));
        assert_eq!(quoted.secret_key.as_deref(), Some("x:y"));
        assert_eq!(quoted.security_token, None);
        assert!(read("# nothing\n\n").access_key.is_none());
    }
}
