//! The client's side: the handshake with a server.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::verify::{AnyServer, ChainOnly};
use super::{ClientTls, TlsError, needed, provider, read_certificates, read_key, read_roots};
use crate::stream::Stream;

/// Encrypts new connections.
pub(crate) struct Connector(TlsConnector);

impl Connector {
    /// `None` when TLS is off.
    pub(crate) fn new(settings: &ClientTls) -> Result<Option<Self>, TlsError> {
        if !settings.enable {
            return Ok(None);
        }
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::unusable("TLS versions", error))?
            .dangerous()
            .with_custom_certificate_verifier(servers(settings)?);
        let config = match (&settings.cert_path, settings.test_mode) {
            (Some(cert), false) => {
                let why = "tls.client.certPath is of no use without its private key";
                let key = needed("tls.client.keyPath", why, &settings.key_path)?;
                let key = read_key("tls.client.keyPath", key, settings.key_password.as_deref())?;
                config
                    .with_client_auth_cert(read_certificates("tls.client.certPath", cert)?, key)
                    .map_err(|error| {
                        TlsError::unusable("tls.client.keyPath and tls.client.certPath", error)
                    })?
            }
            _ => config.with_no_client_auth(),
        };
        Ok(Some(Self(Arc::new(config).into())))
    }

    /// Agrees on TLS with the server at `addr` (`host:port`).
    pub(crate) async fn connect(&self, addr: &str, stream: TcpStream) -> io::Result<Stream> {
        let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let name = ServerName::try_from(host)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let stream = self.0.connect(name, stream).await?;
        Ok(Stream::Tls(Box::new(stream.into())))
    }
}

fn servers(settings: &ClientTls) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    if settings.test_mode || !settings.auth_server {
        return Ok(AnyServer::new());
    }
    let why = "with tls.client.authServer=true certificates of servers are checked against it";
    let path = needed("tls.client.trustCertPath", why, &settings.trust_cert_path)?;
    let roots = read_roots("tls.client.trustCertPath", path)?;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
        .build()
        .map_err(|error| TlsError::file("tls.client.trustCertPath", path, error))?;
    Ok(if settings.verify_host {
        verifier
    } else {
        ChainOnly::new(verifier)
    })
}
