//! An account file, a way to ask, and the recorded values, for the tests of each part.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use minimq_protocol::acl_signature;
use minimq_protocol::code::request;
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use super::*;

mod addresses;
mod checks;
mod files;

const FILE: &str = "
globalWhiteRemoteAddresses:
  - 10.1.2.*
  - 10.1.3.4
accounts:
  - accessKey: exampleUser
    secretKey: exampleSecret
    whiteRemoteAddress: 10.9.0.1-20
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - TPUB=PUB
      - TSUB=SUB
      - TBOTH=PUB|SUB
      - TDENY=DENY
    groupPerms:
      - GDENY=DENY
  - accessKey: exampleAdmin
    secretKey: 12345678
    admin: true
  - accessKey: boundAdmin
    secretKey: boundSecret
    admin: true
    topicPerms:
      - TPUB=PUB
";

struct Acl {
    folder: TempDir,
    control: AccessControl,
}

fn settings(folder: &Path) -> AclSettings {
    AclSettings {
        default_file: folder.join("plain_acl.yml"),
        folder: Some(folder.join("acl")),
        admin_codes: BROKER_ADMIN_CODES.to_vec(),
        grants: vec![(request::REGISTER_FILTER_SERVER, "exampleUser".into())],
    }
}

fn open_in(folder: &Path) -> Result<AccessControl, AclFileError> {
    AccessControl::open(settings(folder), Clock::manual(5000).0)
}

fn acl(text: &str) -> Acl {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("plain_acl.yml"), text).unwrap();
    let control = open_in(folder.path()).unwrap();
    Acl { folder, control }
}

impl Acl {
    fn file(&self) -> PathBuf {
        self.folder.path().join("plain_acl.yml")
    }

    fn write(&self, text: &str) {
        // By rename, as editors do, so that the file is another one.
        let new = self.folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    /// Signs with this account and asks from an address in no list.
    fn ask(
        &self,
        key: &str,
        secret: &str,
        code: i32,
        fields: &[(&str, &str)],
    ) -> Result<Pass, AclError> {
        let mut fields = fields.to_vec();
        fields.push((acl_signature::ACCESS_KEY, key));
        let signature = acl_signature::sign(secret, fields.iter().copied(), b"body");
        fields.push((acl_signature::SIGNATURE, &signature));
        self.send("192.168.7.7", code, &fields, b"body")
    }

    fn send(
        &self,
        peer: &str,
        code: i32,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Pass, AclError> {
        let field = |name: &str| {
            fields
                .iter()
                .rev()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| *value)
        };
        let needs = needs_of(code, field).unwrap_or_default();
        let request = Request {
            code,
            fields: || fields.iter().copied(),
            body,
            peer: peer.parse().unwrap(),
        };
        self.control.check(&request, needs)
    }

    fn user(&self, code: i32, fields: &[(&str, &str)]) -> Result<Pass, AclError> {
        self.ask("exampleUser", "exampleSecret", code, fields)
    }
}

fn golden(name: &str) -> Vec<Vec<String>> {
    let path = format!(
        "{}/../tests/golden/values/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let rows: Vec<Vec<String>> = text
        .lines()
        .skip(1)
        .map(|row| row.split('\t').map(str::to_owned).collect())
        .collect();
    assert!(!rows.is_empty(), "{path}");
    rows
}

/// A cell that is a JSON string literal without escapes, or another literal.
fn text(cell: &str) -> &str {
    assert!(!cell.contains('\\'), "{cell}");
    cell.strip_prefix('"')
        .and_then(|cell| cell.strip_suffix('"'))
        .unwrap_or(cell)
}
