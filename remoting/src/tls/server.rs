//! The server's side: is a new connection plain or TLS, the handshake, and certificate files that change.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::verify::AnyClient;
use super::{
    Chain, ClientAuth, ServerTls, TlsError, TlsMode, needed, provider, read_certificates, read_key,
    read_roots,
};
use crate::stream::Stream;

/// First byte of a TLS connection; a plain frame begins with 0.
const HANDSHAKE: u8 = 0x16;
/// How often the files are looked at.
const RELOAD: Duration = Duration::from_secs(2);

/// Turns new connections into streams.
pub(crate) struct Acceptor {
    settings: ServerTls,
    config: RwLock<Arc<ServerConfig>>,
}

impl Acceptor {
    /// Reads the files, so that wrong ones are noticed at start.
    pub(crate) fn new(settings: ServerTls) -> Result<Option<Arc<Self>>, TlsError> {
        if settings.mode == TlsMode::Disabled {
            return Ok(None);
        }
        let config = RwLock::new(configure(&settings)?);
        Ok(Some(Arc::new(Self { settings, config })))
    }

    /// Looks at the first byte, which may take the peer as long as it likes; a handshake follows or not.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        handshake: Duration,
    ) -> io::Result<Stream> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first == [HANDSHAKE] {
            let config = self.config.read().clone();
            // Boxed: connections that have not said anything yet are many and should be small.
            let accept = Box::pin(TlsAcceptor::from(config).accept(stream));
            return match tokio::time::timeout(handshake, accept).await {
                Ok(stream) => Ok(Stream::Tls(Box::new(stream?.into()))),
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the handshake took too long",
                )),
            };
        }
        if self.settings.mode == TlsMode::Enforcing {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a plain connection where only TLS is allowed",
            ));
        }
        Ok(Stream::Plain(stream))
    }

    /// Reads the files again whenever one has changed. What cannot be used is reported and the old certificates stay.
    pub(crate) async fn reload(acceptor: Weak<Self>) {
        let mut seen = acceptor.upgrade().map(|acceptor| acceptor.changed());
        loop {
            tokio::time::sleep(RELOAD).await;
            let Some(acceptor) = acceptor.upgrade() else {
                return;
            };
            let now = Some(acceptor.changed());
            if now == seen {
                continue;
            }
            seen = now;
            match configure(&acceptor.settings) {
                Ok(config) => {
                    *acceptor.config.write() = config;
                    tracing::info!("TLS certificates read again");
                }
                Err(error) => {
                    tracing::warn!(%error, "TLS certificates changed and cannot be used; the old ones stay")
                }
            }
        }
    }

    /// When each file was changed last.
    fn changed(&self) -> Vec<Option<SystemTime>> {
        if self.settings.test_mode {
            return Vec::new();
        }
        let ServerTls {
            key_path,
            cert_path,
            trust_cert_path,
            ..
        } = &self.settings;
        let changed = |path: &PathBuf| {
            std::fs::metadata(path)
                .and_then(|file| file.modified())
                .ok()
        };
        [key_path, cert_path, trust_cert_path]
            .into_iter()
            .flatten()
            .map(changed)
            .collect()
    }
}

fn configure(settings: &ServerTls) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = if settings.test_mode {
        made_up()?
    } else {
        from_files(settings)?
    };
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::unusable("TLS versions", error))?
        .with_client_cert_verifier(clients(settings)?)
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::unusable("tls.server.keyPath and tls.server.certPath", error))?;
    Ok(Arc::new(config))
}

fn from_files(settings: &ServerTls) -> Result<(Chain, PrivateKeyDer<'static>), TlsError> {
    let why = "with tls.test.mode.enable=false a TLS server needs its own certificate";
    let key = needed("tls.server.keyPath", why, &settings.key_path)?;
    let cert = needed("tls.server.certPath", why, &settings.cert_path)?;
    Ok((
        read_certificates("tls.server.certPath", cert)?,
        read_key("tls.server.keyPath", key, settings.key_password.as_deref())?,
    ))
}

/// A certificate that nobody can check.
fn made_up() -> Result<(Chain, PrivateKeyDer<'static>), TlsError> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])
        .map_err(|error| TlsError::unusable("certificate for the test mode", error))?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
        .map_err(|error| TlsError::unusable("key for the test mode", error))?;
    Ok((vec![made.cert.der().clone()], key))
}

fn clients(settings: &ServerTls) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let auth = if settings.test_mode {
        ClientAuth::Optional
    } else {
        settings.client_auth
    };
    if auth == ClientAuth::None {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let required = auth == ClientAuth::Require;
    if settings.test_mode || !settings.auth_client {
        return Ok(AnyClient::new(required));
    }
    let why = "with tls.server.authClient=true certificates of clients are checked against it";
    let path = needed("tls.server.trustCertPath", why, &settings.trust_cert_path)?;
    let roots = read_roots("tls.server.trustCertPath", path)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
    let verifier = if required {
        verifier
    } else {
        verifier.allow_unauthenticated()
    };
    verifier
        .build()
        .map(|verifier| verifier as _)
        .map_err(|error| TlsError::file("tls.server.trustCertPath", path, error))
}
