//! Repository mode (filter server spec 10): modules by HTTP and HTTPS, hashes, what has not changed, and the rows of
//! filter server spec 8 for it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::support::*;

/// A web server with one file and its hash; counts full answers.
struct Web {
    url: String,
    sent: Arc<AtomicUsize>,
}

type Files = Vec<(&'static str, Vec<u8>)>;

fn web(files: Files) -> Web {
    serve("http", files, Some)
}

fn serve<S: Read + Write>(
    scheme: &str,
    files: Files,
    secure: impl Fn(TcpStream) -> Option<S> + Send + 'static,
) -> Web {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("{scheme}://localhost:{port}/filters");
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Some(mut stream) = stream.ok().and_then(&secure) else {
                continue;
            };
            let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(n @ 1..) => head.extend_from_slice(&buffer[..n]),
                    _ => break,
                }
            }
            let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let file = files
                .iter()
                .find(|(name, _)| path == format!("/filters/{}", name.to_ascii_lowercase()));
            let _ = match file {
                Some(_) if head.contains("if-none-match: \"v1\"") => {
                    write!(
                        stream,
                        "HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n"
                    )
                }
                Some((_, body)) => {
                    counter.fetch_add(1, Ordering::SeqCst);
                    let length = body.len();
                    write!(stream, "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
                        .and_then(|()| stream.write_all(body))
                }
                None => write!(
                    stream,
                    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                ),
            };
            let _ = stream.flush();
        }
    });
    Web { url, sent }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_repository_mode_modules_come_by_name_and_uploads_are_not_looked_at() {
    let hash = minimq_filter_engine::FilterHash::of(SEQUENCE_ID.as_bytes()).to_string();
    let web = web(vec![
        ("org.example.Good.wasm", SEQUENCE_ID.as_bytes().to_vec()),
        (
            "org.example.Good.wasm.sha256",
            format!("{hash}  org.example.Good.wasm\n").into_bytes(),
        ),
        ("org.example.Changed.wasm", modulo(2, 0).into_bytes()),
        ("org.example.Changed.wasm.sha256", hash.clone().into_bytes()),
        ("org.example.Large.wasm", vec![b'('; 100_000]),
    ]);
    let s = Setting::start(&[
        "clientUploadFilterClassEnable=false",
        &format!("filterClassRepertoryUrl={}", web.url),
        "filterClassRepertoryHashes=true",
        "filterClassRepertoryInterval=50",
        "maxFilterModuleSize=16K",
    ])
    .await;
    s.send_sequence("TopicA", 20).await;
    let good = s.member("Good", "TopicA");
    assert_eq!(
        good.upload_as("org.example.Good", 5, modulo(2, 0).as_bytes())
            .await,
        (0, String::new())
    );
    let pulled = until_some("the module has come", || async {
        let pulled = good.pull(0).await;
        (pulled.code == 0).then_some(pulled)
    })
    .await;
    assert_eq!(pulled.sequence(), [12, 15, 18]);
    for (name, why) in [
        ("org.example.Changed", "but the module has"),
        ("org.example.Large", "longer than the 32768 bytes"),
        ("org.example.Missing", "status 404"),
    ] {
        let member = s.member(name, "TopicA");
        assert_eq!(member.upload_as(name, 0, b"").await.0, 0);
        let pulled = until_some("the fault is told", || async {
            let pulled = member.pull(0).await;
            pulled.remark.contains(why).then_some(pulled)
        })
        .await;
        assert_eq!(pulled.code, 1);
        assert!(
            pulled.remark.contains("registered but no class"),
            "{}",
            pulled.remark
        );
    }
    let (code, remark) = good.upload_as("../../etc/passwd", 0, b"").await;
    assert_eq!(
        (code, remark.contains("is no name of the repository")),
        (1, true),
        "{remark}"
    );
    // What has not changed is not sent again.
    let before = web.sent.load(Ordering::SeqCst);
    s.server.stop(Duration::ZERO).await;
    assert!(before >= 2);
}

/// Over TLS, with a certificate of its own making, which is written to the file.
fn secure_web(files: Files, certificate: &Path) -> Web {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(certificate, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    serve("https", files, move |stream| {
        let connection = ServerConnection::new(config.clone()).unwrap();
        Some(StreamOwned::new(connection, stream))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn over_https_the_repository_must_show_a_certificate_that_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = folder.path().join("repository.pem");
    let files = vec![("org.example.Good.wasm", SEQUENCE_ID.as_bytes().to_vec())];
    let web = secure_web(files, &certificate);
    let url = format!("filterClassRepertoryUrl={}", web.url);
    let trust = format!(
        "filterClassRepertoryTrustCertPath={}",
        certificate.display()
    );
    let mode = "clientUploadFilterClassEnable=false";
    let broker = FakeBroker::start(|_| Some(answer(19, 0, Vec::new())));
    let trusting = filter_server(&broker.addr(), &[mode, &url, &trust]).await;
    let member = Member::new(trusting.local_addr(), "CG", "T");
    assert_eq!(member.upload_as("org.example.Good", 0, b"").await.0, 0);
    until_some("the module has come", || async {
        (member.pull(0).await.code == 19).then_some(())
    })
    .await;
    // The usual authorities do not know it.
    let wary = filter_server(&broker.addr(), &[mode, &url]).await;
    let member = Member::new(wary.local_addr(), "CG", "T");
    assert_eq!(member.upload_as("org.example.Good", 0, b"").await.0, 0);
    let pulled = until_some("the fault is told", || async {
        let pulled = member.pull(0).await;
        pulled
            .remark
            .contains("https://localhost")
            .then_some(pulled)
    })
    .await;
    assert_eq!(pulled.code, 1);
    assert!(
        pulled.remark.to_lowercase().contains("certificate"),
        "{}",
        pulled.remark
    );
}

/// The lower rows of the table of filter server spec 8.
#[tokio::test(flavor = "multi_thread")]
async fn each_row_of_the_upload_table_in_repository_mode() {
    let web = web(vec![
        ("First.wasm", modulo(1, 0).into_bytes()),
        ("Second.wasm", modulo(2, 1).into_bytes()),
    ]);
    let url = format!("filterClassRepertoryUrl={}", web.url);
    let broker = FakeBroker::start(|_| Some(answer(19, 0, Vec::new())));
    let server = filter_server(
        &broker.addr(),
        &["clientUploadFilterClassEnable=false", &url],
    )
    .await;
    let member = Member::new(server.local_addr(), "CG", "T");
    // No entry: the name is taken whatever the checksum, and the body is not looked at.
    assert_eq!(member.upload_as("First", 77, b"nonsense").await.0, 0);
    until("it is fetched", || server.figures().filters.len() == 1).await;
    // An entry: nothing changes, another name is not looked at.
    for (name, crc) in [("First", 0), ("First", 5), ("Second", 5)] {
        assert_eq!(member.upload_as(name, crc, b"").await.0, 0);
        let filters = server.figures().filters;
        assert_eq!(filters.len(), 1);
        assert_eq!(filters[0].class_name, "First");
    }
    assert_eq!(member.pull(0).await.code, 19);
    assert_eq!(web.sent.load(Ordering::SeqCst), 1);
}
