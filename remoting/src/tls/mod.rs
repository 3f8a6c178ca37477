//! TLS as RocketMQ configures it (wire spec 9): settings of both sides, by their usual keys, and the PEM files.
//! Certificates are checked in `verify`; which connection is encrypted is decided in `server` and `client`.

mod client;
mod server;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

pub(crate) use client::Connector;
pub(crate) use server::Acceptor;

/// Which connections a server encrypts; clients may always be told to encrypt theirs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// None; one that begins with a TLS handshake is closed.
    Disabled,
    /// Those that begin with a TLS handshake.
    #[default]
    Permissive,
    /// All; a plain one is closed.
    Enforcing,
}

/// Whether clients have to show a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked for one.
    #[default]
    None,
    /// They are asked for one and may do without.
    Optional,
    /// Without one there is no connection.
    Require,
}

/// TLS of a server. The default is RocketMQ's: both plain and TLS on each port, with a certificate made up at
/// start that clients cannot check.
#[derive(Debug, Clone)]
pub struct ServerTls {
    /// `tls.server.mode`
    pub mode: TlsMode,
    /// `tls.test.mode.enable`: a made-up certificate; all settings below are ignored.
    pub test_mode: bool,
    /// `tls.server.need.client.auth`
    pub client_auth: ClientAuth,
    /// `tls.server.keyPath`: private key, PEM.
    pub key_path: Option<PathBuf>,
    /// `tls.server.keyPassword`: of an encrypted private key (PKCS #8).
    pub key_password: Option<String>,
    /// `tls.server.certPath`: certificate chain, PEM.
    pub cert_path: Option<PathBuf>,
    /// `tls.server.authClient`: are certificates of clients checked? If not, any will do.
    pub auth_client: bool,
    /// `tls.server.trustCertPath`: whose certificates of clients are trusted, PEM.
    pub trust_cert_path: Option<PathBuf>,
}

impl Default for ServerTls {
    fn default() -> Self {
        Self {
            mode: TlsMode::Permissive,
            test_mode: true,
            client_auth: ClientAuth::None,
            key_path: None,
            key_password: None,
            cert_path: None,
            auth_client: false,
            trust_cert_path: None,
        }
    }
}

/// TLS of a client. The default is RocketMQ's: off.
#[derive(Debug, Clone)]
pub struct ClientTls {
    /// `tls.enable`
    pub enable: bool,
    /// `tls.test.mode.enable`: any server is trusted; all settings below are ignored.
    pub test_mode: bool,
    /// `tls.client.keyPath`: private key, PEM.
    pub key_path: Option<PathBuf>,
    /// `tls.client.keyPassword`: of an encrypted private key (PKCS #8).
    pub key_password: Option<String>,
    /// `tls.client.certPath`: certificate chain to show to servers, PEM.
    pub cert_path: Option<PathBuf>,
    /// `tls.client.authServer`: is the server's certificate checked? If not, any will do.
    pub auth_server: bool,
    /// `tls.client.trustCertPath`: whose server certificates are trusted, PEM.
    pub trust_cert_path: Option<PathBuf>,
    /// Must the certificate be made out for the host connected to? Java clients do not ask that, and
    /// certificates made for RocketMQ seldom are.
    pub verify_host: bool,
}

impl Default for ClientTls {
    fn default() -> Self {
        Self {
            enable: false,
            test_mode: true,
            key_path: None,
            key_password: None,
            cert_path: None,
            auth_server: false,
            trust_cert_path: None,
            verify_host: false,
        }
    }
}

impl ServerTls {
    /// Reads the usual keys; `value` gives a key's value. Unknown words count as Java counts them: an unknown mode
    /// is permissive, an unknown client authentication none, everything but `true` is false.
    pub fn from_keys(value: impl Fn(&str) -> Option<String>) -> Self {
        let path = |key| {
            value(key)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        };
        Self {
            mode: match value("tls.server.mode").as_deref() {
                Some("disabled") => TlsMode::Disabled,
                Some("enforcing") => TlsMode::Enforcing,
                _ => TlsMode::Permissive,
            },
            test_mode: flag(&value, "tls.test.mode.enable", true),
            client_auth: match value("tls.server.need.client.auth").as_deref() {
                Some("optional") => ClientAuth::Optional,
                Some("require") => ClientAuth::Require,
                _ => ClientAuth::None,
            },
            key_path: path("tls.server.keyPath"),
            key_password: value("tls.server.keyPassword").filter(|word| !word.is_empty()),
            cert_path: path("tls.server.certPath"),
            auth_client: flag(&value, "tls.server.authClient", false),
            trust_cert_path: path("tls.server.trustCertPath"),
        }
    }
}

impl ClientTls {
    /// Reads the usual keys; `value` gives a key's value.
    pub fn from_keys(value: impl Fn(&str) -> Option<String>) -> Self {
        let path = |key| {
            value(key)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        };
        Self {
            enable: flag(&value, "tls.enable", false),
            test_mode: flag(&value, "tls.test.mode.enable", true),
            key_path: path("tls.client.keyPath"),
            key_password: value("tls.client.keyPassword").filter(|word| !word.is_empty()),
            cert_path: path("tls.client.certPath"),
            auth_server: flag(&value, "tls.client.authServer", false),
            trust_cert_path: path("tls.client.trustCertPath"),
            verify_host: false,
        }
    }
}

fn flag(value: &impl Fn(&str) -> Option<String>, key: &str, default: bool) -> bool {
    value(key).map_or(default, |word| word.eq_ignore_ascii_case("true"))
}

/// What is wrong with the TLS settings.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TlsError {
    /// A setting is missing.
    #[error("{key} is not set: {why}")]
    Missing {
        /// Its key.
        key: &'static str,
        /// Why it is needed.
        why: &'static str,
    },
    /// A file cannot be used.
    #[error("{path} ({key}): {reason}", path = .path.display())]
    File {
        /// Key of the setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: Arc<str>,
    },
    /// Key and certificate are readable but do not work.
    #[error("{what}: {reason}")]
    Unusable {
        /// Which.
        what: &'static str,
        /// What is wrong.
        reason: Arc<str>,
    },
}

impl TlsError {
    fn file(key: &'static str, path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::File {
            key,
            path: path.to_owned(),
            reason: reason.to_string().into(),
        }
    }

    fn unusable(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Unusable {
            what,
            reason: reason.to_string().into(),
        }
    }
}

type Chain = Vec<CertificateDer<'static>>;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn needed<'a>(
    key: &'static str,
    why: &'static str,
    path: &'a Option<PathBuf>,
) -> Result<&'a Path, TlsError> {
    path.as_deref().ok_or(TlsError::Missing { key, why })
}

fn read_certificates(key: &'static str, path: &Path) -> Result<Chain, TlsError> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(|iter| iter.collect::<Result<Chain, _>>())
        .map_err(|error| TlsError::file(key, path, error))?;
    if certificates.is_empty() {
        return Err(TlsError::file(key, path, "no certificate in it"));
    }
    Ok(certificates)
}

fn read_roots(key: &'static str, path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(key, path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::file(key, path, error))?;
    }
    Ok(Arc::new(roots))
}

fn read_key(
    key: &'static str,
    path: &Path,
    password: Option<&str>,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let wrong = |error: &dyn std::fmt::Display| TlsError::file(key, path, error);
    let pem = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    if !pem.contains("BEGIN ENCRYPTED PRIVATE KEY") {
        return PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| wrong(&error));
    }
    let Some(password) = password else {
        return Err(wrong(&"the key is encrypted and no password is set"));
    };
    let (_, encrypted) = pkcs8::SecretDocument::from_pem(&pem).map_err(|error| wrong(&error))?;
    let encrypted = pkcs8::EncryptedPrivateKeyInfo::try_from(encrypted.as_bytes())
        .map_err(|error| wrong(&error))?;
    let plain = encrypted.decrypt(password).map_err(|error| wrong(&error))?;
    Ok(PrivatePkcs8KeyDer::from(plain.as_bytes().to_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_java_reads_them() {
        let given = [
            ("tls.server.mode", "enforcing"),
            ("tls.test.mode.enable", "FALSE"),
            ("tls.server.need.client.auth", "require"),
            ("tls.server.authClient", "True"),
            ("tls.server.keyPath", "/k"),
            ("tls.server.keyPassword", ""),
            ("tls.enable", "yes"),
            ("tls.client.certPath", ""),
        ];
        let value = |key: &str| {
            given
                .iter()
                .find(|(k, _)| *k == key)
                .map(|(_, v)| v.to_string())
        };
        let server = ServerTls::from_keys(value);
        assert_eq!(server.mode, TlsMode::Enforcing);
        assert_eq!(server.client_auth, ClientAuth::Require);
        assert!(!server.test_mode && server.auth_client);
        assert_eq!(server.key_path.as_deref(), Some(Path::new("/k")));
        assert_eq!(server.key_password, None);
        let client = ClientTls::from_keys(value);
        assert!(!client.enable && !client.test_mode);
        assert_eq!(client.cert_path, None);

        let nothing = ServerTls::from_keys(|_| None);
        assert_eq!(nothing.mode, TlsMode::Permissive);
        assert!(nothing.test_mode && !ClientTls::from_keys(|_| None).enable);
        let odd =
            ServerTls::from_keys(|key| (key == "tls.server.mode").then(|| "Enforcing".into()));
        assert_eq!(odd.mode, TlsMode::Permissive);
    }
}
