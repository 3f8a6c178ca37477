//! TLS on the same ports and with the same frames: modes, certificates of both sides, files that change.

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::*;
use minimq_protocol::Command;
use minimq_remoting::{
    CallError, Client, ClientAuth, ClientConfig, ClientTls, CloseReason, Limits, ServerConfig,
    ServerHandle, ServerTls, TlsMode,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

const TIMEOUT: Duration = Duration::from_secs(10);

fn client(tls: ClientTls) -> Client {
    let config = ClientConfig {
        tls,
        backoff_min: Duration::ZERO,
        ..Default::default()
    };
    Client::new(config).unwrap()
}

fn trusting_anybody() -> ClientTls {
    ClientTls {
        enable: true,
        ..Default::default()
    }
}

fn server(tls: ServerTls) -> (std::sync::Arc<Probe>, ServerHandle) {
    serve_with(ServerConfig { tls, ..local() })
}

async fn echoes(client: &Client, server: &ServerHandle) -> Result<(), CallError> {
    let request = Command::request(ECHO).with_body("over the wire");
    let answer = client
        .call(&server.local_addr().to_string(), request, TIMEOUT)
        .await?;
    assert_eq!(answer.body, "over the wire");
    Ok(())
}

/// An authority and what it signs, as PEM files in a folder.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let this = Self {
            folder: tempfile::tempdir().unwrap(),
            issuer,
        };
        std::fs::write(this.trust(), this.issuer.pem()).unwrap();
        this
    }

    fn trust(&self) -> PathBuf {
        self.folder.path().join("trust.pem")
    }

    /// Key and certificate for `name`.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new([name.to_owned()])
            .unwrap()
            .signed_by(&key, &self.issuer)
            .unwrap();
        let [key_path, cert_path] =
            ["key", "cert"].map(|kind| self.folder.path().join(format!("{name}.{kind}")));
        std::fs::write(&cert_path, cert.pem()).unwrap();
        std::fs::write(&key_path, key.serialize_pem()).unwrap();
        (key_path, cert_path)
    }

    fn server(&self, name: &str) -> ServerTls {
        let (key, cert) = self.sign(name);
        ServerTls {
            test_mode: false,
            key_path: Some(key),
            cert_path: Some(cert),
            ..Default::default()
        }
    }

    fn client(&self, name: &str) -> ClientTls {
        let (key, cert) = self.sign(name);
        ClientTls {
            key_path: Some(key),
            cert_path: Some(cert),
            ..self.trusting()
        }
    }

    fn trusting(&self) -> ClientTls {
        ClientTls {
            enable: true,
            test_mode: false,
            auth_server: true,
            trust_cert_path: Some(self.trust()),
            ..Default::default()
        }
    }
}

#[tokio::test]
async fn the_default_serves_plain_and_tls_on_one_port() {
    let (probe, server) = serve(Limits::default());
    echoes(&client(trusting_anybody()), &server).await.unwrap();
    echoes(&client(ClientTls::default()), &server)
        .await
        .unwrap();
    let secure: Vec<_> = probe
        .opened
        .lock()
        .iter()
        .map(|connection| connection.is_secure())
        .collect();
    assert_eq!(secure, [true, false]);
}

#[tokio::test]
async fn enforcing_closes_plain_connections_without_a_byte() {
    let (probe, server) = server(ServerTls {
        mode: TlsMode::Enforcing,
        ..Default::default()
    });
    let mut raw = Raw::connect(server.local_addr()).await;
    raw.send(&request(ECHO, 1, b"plain")).await;
    assert_eq!(raw.rest().await, 0);
    assert!(probe.opened.lock().is_empty());
    echoes(&client(trusting_anybody()), &server).await.unwrap();
}

#[tokio::test]
async fn disabled_closes_connections_that_begin_with_a_handshake() {
    let (_, server) = server(ServerTls {
        mode: TlsMode::Disabled,
        ..Default::default()
    });
    let error = echoes(&client(trusting_anybody()), &server)
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::Connect { .. }), "{error}");
    echoes(&client(ClientTls::default()), &server)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_and_many_frames_pass_through_tls() {
    let (_, server) = serve(Limits::default());
    let client = client(trusting_anybody());
    let connection = client
        .connect(&server.local_addr().to_string())
        .await
        .unwrap();
    assert!(connection.is_secure());
    let body: Vec<u8> = (0..3 << 20)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let large = connection
        .start_call(Command::request(ECHO).with_body(body.clone()), TIMEOUT)
        .unwrap();
    let slices = connection
        .start_call(Command::request(LARGE), TIMEOUT)
        .unwrap();
    let mut calls = Vec::new();
    for i in 0..1000 {
        let request = Command::request(ECHO).with_body(i.to_string());
        calls.push(connection.start_call(request, TIMEOUT).unwrap());
    }
    assert!(large.await.unwrap().body == body);
    assert!(slices.await.unwrap().body == vec![7; 1 << 20]);
    for (i, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().body, i.to_string());
    }
}

#[tokio::test]
async fn the_servers_certificate_is_checked_when_asked_for() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (_probe, good) = server(ours.server("broker.example"));
    let (_probe, bad) = server(theirs.server("broker.example"));
    echoes(&client(ours.trusting()), &good).await.unwrap();
    let error = echoes(&client(ours.trusting()), &bad).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    echoes(
        &client(ClientTls {
            auth_server: false,
            ..ours.trusting()
        }),
        &bad,
    )
    .await
    .unwrap();

    // The host's name counts only when asked for.
    let named = client(ClientTls {
        verify_host: true,
        ..ours.trusting()
    });
    let error = echoes(&named, &good).await.unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    let (_probe, local) = server(ours.server("127.0.0.1"));
    echoes(&named, &local).await.unwrap();
}

#[tokio::test]
async fn certificates_of_clients_are_asked_for_and_checked_as_configured() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let base = ServerTls {
        trust_cert_path: Some(ours.trust()),
        ..ours.server("127.0.0.1")
    };
    let without = ours.trusting();
    let with_ours = ours.client("client");
    let with_theirs = ClientTls {
        trust_cert_path: Some(ours.trust()),
        ..theirs.client("client")
    };
    for (client_auth, auth_client, admitted) in [
        (ClientAuth::None, true, [true, true, true]),
        (ClientAuth::Optional, false, [true, true, true]),
        (ClientAuth::Require, false, [false, true, true]),
        (ClientAuth::Optional, true, [true, true, false]),
        (ClientAuth::Require, true, [false, true, false]),
    ] {
        let (_probe, server) = server(ServerTls {
            client_auth,
            auth_client,
            ..base.clone()
        });
        for (tls, admitted) in [&without, &with_ours, &with_theirs]
            .into_iter()
            .zip(admitted)
        {
            let outcome = echoes(&client(tls.clone()), &server).await;
            assert_eq!(
                outcome.is_ok(),
                admitted,
                "{client_auth:?} {auth_client} {outcome:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_encrypted_key_needs_its_password() {
    let ours = Authority::new();
    let plain = ours.server("127.0.0.1");
    let key_path = plain.key_path.clone().unwrap();
    encrypt(&key_path, "secret");
    let error = |tls| {
        let config = ServerConfig { tls, ..local() };
        let bound = minimq_remoting::Server::bind(config, std::sync::Arc::new(Probe::default()));
        bound.err().expect("refused").to_string()
    };
    let text = error(plain.clone());
    assert!(
        text.contains("tls.server.keyPath") && text.contains("password"),
        "{text}"
    );
    let text = error(ServerTls {
        key_password: Some("wrong".into()),
        ..plain.clone()
    });
    assert!(text.contains(key_path.to_str().unwrap()), "{text}");
    let (_probe, server) = server(ServerTls {
        key_password: Some("secret".into()),
        ..plain
    });
    echoes(&client(ours.trusting()), &server).await.unwrap();
}

fn encrypt(path: &Path, password: &str) {
    let (_, plain) =
        pkcs8::SecretDocument::from_pem(&std::fs::read_to_string(path).unwrap()).unwrap();
    let parameters = pkcs8::pkcs5::pbes2::Parameters::pbkdf2_sha256_aes256cbc(
        1000,
        b"salt and pepper",
        &[9; 16],
    );
    let encrypted = pkcs8::PrivateKeyInfo::try_from(plain.as_bytes())
        .unwrap()
        .encrypt_with_params(parameters.unwrap(), password)
        .unwrap();
    let pem = encrypted
        .to_pem("ENCRYPTED PRIVATE KEY", pkcs8::LineEnding::LF)
        .unwrap();
    std::fs::write(path, pem.as_bytes()).unwrap();
}

#[tokio::test]
async fn wrong_settings_are_refused_by_name_at_start() {
    let ours = Authority::new();
    let good = ours.server("127.0.0.1");
    let nonsense = ours.folder.path().join("nonsense.pem");
    std::fs::write(&nonsense, "nothing of use").unwrap();
    let (other_key, _) = ours.sign("other");
    let auth = ServerTls {
        client_auth: ClientAuth::Require,
        auth_client: true,
        ..good.clone()
    };
    for (tls, named) in [
        (
            ServerTls {
                key_path: None,
                ..good.clone()
            },
            "tls.server.keyPath",
        ),
        (
            ServerTls {
                cert_path: None,
                ..good.clone()
            },
            "tls.server.certPath",
        ),
        (
            ServerTls {
                cert_path: Some("/no/such/file".into()),
                ..good.clone()
            },
            "/no/such/file",
        ),
        (
            ServerTls {
                cert_path: Some(nonsense.clone()),
                ..good.clone()
            },
            "nonsense.pem",
        ),
        (
            ServerTls {
                key_path: Some(nonsense.clone()),
                ..good.clone()
            },
            "nonsense.pem",
        ),
        (
            ServerTls {
                key_path: Some(other_key),
                ..good.clone()
            },
            "tls.server.keyPath",
        ),
        (auth.clone(), "tls.server.trustCertPath"),
        (
            ServerTls {
                trust_cert_path: Some(nonsense.clone()),
                ..auth
            },
            "nonsense.pem",
        ),
    ] {
        let config = ServerConfig { tls, ..local() };
        let bound = minimq_remoting::Server::bind(config, std::sync::Arc::new(Probe::default()));
        let error = bound
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(error.contains(named), "{named}: {error}");
    }
    let tls = ClientTls {
        trust_cert_path: None,
        ..ours.trusting()
    };
    let error = Client::new(ClientConfig {
        tls,
        ..Default::default()
    })
    .err()
    .unwrap();
    assert!(
        error.to_string().contains("tls.client.trustCertPath"),
        "{error}"
    );
}

#[tokio::test]
async fn changed_files_are_read_again_and_broken_ones_are_not_used() {
    let (before, after) = (Authority::new(), Authority::new());
    let settings = before.server("127.0.0.1");
    let (_probe, server) = server(settings.clone());
    echoes(&client(before.trusting()), &server).await.unwrap();

    let cert_path = settings.cert_path.unwrap();
    std::fs::write(&cert_path, "half writ").unwrap();
    // Longer than the server goes without looking.
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(2500) {
        echoes(&client(before.trusting()), &server).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let (key, cert) = after.sign("127.0.0.1");
    std::fs::copy(key, settings.key_path.unwrap()).unwrap();
    std::fs::copy(cert, &cert_path).unwrap();
    let trusting = client(after.trusting());
    let start = std::time::Instant::now();
    while echoes(&trusting, &server).await.is_err() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "the new certificate is not shown"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_handshake_that_does_not_go_on_is_given_up() {
    let limits = Limits {
        handshake: Duration::from_millis(100),
        ..Default::default()
    };
    let (probe, server) = serve(limits);
    let mut raw = Raw::connect(server.local_addr()).await;
    raw.write(&[0x16, 3, 1]).await;
    assert_eq!(raw.rest().await, 0);
    until("it is forgotten", || server.connection_count() == 0).await;
    assert!(probe.opened.lock().is_empty());
}

#[tokio::test]
async fn the_end_of_a_tls_connection_is_seen_as_an_ordinary_one() {
    let (probe, server) = serve(Limits::default());
    let client = client(trusting_anybody());
    echoes(&client, &server).await.unwrap();
    client.close_all();
    until("the server has noticed", || probe.closed.lock().len() == 1).await;
    assert!(
        matches!(probe.closed.lock()[0].1, CloseReason::Peer),
        "{:?}",
        probe.closed.lock()
    );
}
