//! Ways to look at certificates that rustls does not bring: any will do (RocketMQ's test mode, and what it calls
//! "no authentication"), and a chain that is checked without the host's name. Signatures are always checked.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Any server.
#[derive(Debug)]
pub(super) struct AnyServer(Arc<CryptoProvider>);

/// Any certificate of a client, or none unless one is required.
#[derive(Debug)]
pub(super) struct AnyClient {
    provider: Arc<CryptoProvider>,
    required: bool,
}

/// A server whose chain is trusted, whatever names are in its certificate.
#[derive(Debug)]
pub(super) struct ChainOnly(Arc<WebPkiServerVerifier>);

impl AnyServer {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(super::provider()))
    }
}

impl AnyClient {
    pub(super) fn new(required: bool) -> Arc<Self> {
        Arc::new(Self {
            provider: super::provider(),
            required,
        })
    }
}

impl ChainOnly {
    pub(super) fn new(verifier: Arc<WebPkiServerVerifier>) -> Arc<Self> {
        Arc::new(Self(verifier))
    }
}

/// The signature checks of a verifier, by a provider.
macro_rules! signatures {
    ($provider:ident: $get:expr) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let $provider = self;
            verify_tls12_signature(
                message,
                cert,
                signed,
                &$get.signature_verification_algorithms,
            )
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let $provider = self;
            verify_tls13_signature(
                message,
                cert,
                signed,
                &$get.signature_verification_algorithms,
            )
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            let $provider = self;
            $get.signature_verification_algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    signatures!(this: this.0);
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    signatures!(this: this.provider);
}

impl ServerCertVerifier for ChainOnly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The chain is checked before the name: a wrong name means that all else is right.
        match self
            .0
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
