//! Options whose effect only the server sees: how often something is done, how long an answer is awaited, and with which
//! certificates the two sides meet.

mod support;

use std::path::PathBuf;
use std::time::Duration;

use minimq_client::{Client, ClientTls, Error, Message};
use minimq_protocol::code::request;
use minimq_remoting::{CallError, ClientAuth, ServerTls, TlsMode};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::applications::{reading, writing};
use support::fake::{Fake, Reply};
use support::{Seen, eventually};

/// Far longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(20);
const TOPIC: &str = "topic";

/// The pulls of queue 0 so far.
fn pulls(fake: &Fake) -> usize {
    let all = fake.requests(request::PULL_MESSAGE).into_iter();
    all.filter(|pull| pull.ext.get("topic") == Some(TOPIC) && pull.ext.get("queueId") == Some("0"))
        .count()
}

/// Waits until ten requests of that code have come: with the period that is the default, minutes would pass.
async fn ten(fake: &Fake, code: i32) {
    eventually("it is done again and again", async || {
        fake.requests(code).len() >= 10
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_messages_the_next_pull_waits_for_the_pause() {
    for pause in [LONG, SHORT] {
        let fake = Fake::start("broker-a").await;
        let client = fake.client_of(fake.client_builder()).await;
        let seen = Seen::default();
        let consumer = reading(&client, "pausing", TOPIC)
            .pull_pause(pause)
            .drain(SHORT)
            .run(writing(&seen))
            .await
            .unwrap();
        fake.deliver(TOPIC, &["first"]).await;
        eventually("it is handled", async || seen.len() == 1).await;
        if pause == SHORT {
            eventually("it is pulled again", async || pulls(&fake) == 2).await;
        } else {
            // As many requests as would bring the next pull, were it not paused.
            for _ in 0..30 {
                client.route(TOPIC).await.unwrap();
            }
            assert_eq!(pulls(&fake), 1);
        }
        consumer.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_shared_out_as_often_as_is_set_without_any_notice() {
    let fake = Fake::start("broker-a").await;
    let client = fake.client_of(fake.client_builder()).await;
    let consumer = reading(&client, "balancing", TOPIC)
        .rebalance_every(SHORT)
        .run(|_| async {})
        .await
        .unwrap();
    ten(&fake, request::GET_CONSUMER_LIST_BY_GROUP).await;
    // What a round finds counts: another member takes half of the queues.
    let own = client.client_id().to_owned();
    let most = || consumer.assignment().len();
    eventually("all are here", async || most() == 5).await;
    fake.members(&[&own, "z"]);
    eventually("half is given away", async || most() < 5).await;
    consumer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_hear_of_a_client_as_often_as_is_set() {
    let fake = Fake::start("broker-a").await;
    let client = fake.client_of(fake.client_builder().heartbeat(SHORT)).await;
    let producer = client.producer("beating").build().await.unwrap();
    producer.warm_up(&[TOPIC]).await.unwrap();
    ten(&fake, request::HEART_BEAT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_are_asked_for_as_often_as_is_set() {
    let fake = Fake::start("broker-a").await;
    let builder = fake.client_builder().route_refresh(SHORT);
    let client = fake.client_of(builder).await;
    let producer = client.producer("refreshing").build().await.unwrap();
    producer.send(Message::new(TOPIC, "x")).await.unwrap();
    ten(&fake, request::GET_ROUTEINFO_BY_TOPIC).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_awaited_for_the_time_set() {
    let fake = Fake::start("broker-a").await;
    fake.script(request::GET_ROUTEINFO_BY_TOPIC, |_| Reply::Wait);
    let builder = fake.client_builder();
    let time = Duration::from_millis(500);
    let builder = builder.request_timeout(time);
    let error = fake.client_of(builder).await.route(TOPIC).await;
    let error = error.unwrap_err();
    // What connecting took is taken off.
    let awaited = match &error {
        Error::NameServers {
            source: CallError::Timeout { timeout, .. },
            ..
        } => *timeout,
        _ => panic!("{error}"),
    };
    assert!(awaited <= time, "{error}");
}

/// Signs keys of servers and clients; all are PEM files in a folder.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("trust.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    fn trust(&self) -> Option<PathBuf> {
        Some(self.folder.path().join("trust.pem"))
    }

    /// Key and certificate of `name`.
    fn sign(&self, name: &str) -> [Option<PathBuf>; 2] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        [("key", key.serialize_pem()), ("cert", cert.pem())].map(|(kind, pem)| {
            let path = self.folder.path().join(format!("{name}.{kind}"));
            std::fs::write(&path, pem).unwrap();
            Some(path)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_show_certificates_of_an_authority_of_ones_own() {
    let (own, other) = (Authority::new(), Authority::new());
    let [key_path, cert_path] = own.sign("server");
    let tls = ServerTls {
        mode: TlsMode::Enforcing,
        test_mode: false,
        client_auth: ClientAuth::Require,
        auth_client: true,
        trust_cert_path: own.trust(),
        key_path,
        cert_path,
        ..ServerTls::default()
    };
    let fake = Fake::start_with("broker-a", tls).await;
    let client = async |trust: &Authority, shown: Option<&Authority>| -> Client {
        let [key_path, cert_path] = shown.map_or([None, None], |shown| shown.sign("client"));
        let tls = ClientTls {
            enable: true,
            test_mode: false,
            auth_server: true,
            trust_cert_path: trust.trust(),
            key_path,
            cert_path,
            ..ClientTls::default()
        };
        let builder = fake.client_builder().tls(tls);
        builder.build().await.unwrap()
    };
    let good = client(&own, Some(&own)).await;
    good.route(TOPIC).await.unwrap();
    let producer = good.producer("certified").build().await.unwrap();
    producer.send(Message::new(TOPIC, "hidden")).await.unwrap();
    for (trust, shown) in [(&own, None), (&own, Some(&other)), (&other, Some(&own))] {
        let refused = client(trust, shown).await.route(TOPIC).await;
        assert!(refused.is_err());
    }
}
