//! [`Client`]: the connections, routes and heartbeats that producers, consumers and administration share; and its builder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use minimq_protocol::acl_signature::{
    ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, SigningKey, UNIQUE_KEY_QUERY,
};
use minimq_protocol::{Command, SerializeType};
use minimq_remoting::{ClientConfig, ClientTls, RequestSigner};

use crate::admin::Admin;
use crate::consumer::{PullConsumerBuilder, PushConsumerBuilder};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::name_servers::{NameServers, fetch_endpoint};
use crate::producer::ProducerBuilder;
use crate::{address, random};

/// An account of a cluster with access control.
#[derive(Clone)]
pub struct Credentials {
    access_key: String,
    key: SigningKey,
    security_token: Option<String>,
}

impl Credentials {
    /// Access key and secret key.
    pub fn new(access_key: impl Into<String>, secret_key: &str) -> Self {
        Self {
            access_key: access_key.into(),
            key: SigningKey::new(secret_key),
            security_token: None,
        }
    }

    /// Adds a security token.
    pub fn security_token(mut self, token: impl Into<String>) -> Self {
        self.security_token = Some(token.into());
        self
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key", &self.access_key)
            .finish_non_exhaustive()
    }
}

impl RequestSigner for Credentials {
    fn sign(&self, request: &mut Command) {
        request.ext.push(ACCESS_KEY, &self.access_key);
        if let Some(token) = &self.security_token {
            request.ext.push(SECURITY_TOKEN, token);
        }
        // Brokers differ in whether they sign this field; all accept a signature without it (client spec 9.1).
        let signed = request
            .ext
            .iter()
            .filter(|(key, _)| *key != UNIQUE_KEY_QUERY && *key != SIGNATURE);
        let signature = self.key.sign(signed, &request.body);
        request.ext.push(SIGNATURE, &signature);
    }
}

/// What all users of a client share.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    pub(crate) request_timeout: Duration,
    pub(crate) route_refresh: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) endpoint: Option<String>,
    pub(crate) endpoint_period: Duration,
    pub(crate) offset_dir: PathBuf,
    pub(crate) max_plain_body: usize,
}

/// Builder of a [`Client`].
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    name_servers: Option<String>,
    instance: Option<String>,
    credentials: Option<Credentials>,
    tls: ClientTls,
    serialize: Option<SerializeType>,
    connect_timeout: Duration,
    settings: Settings,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
        Self {
            name_servers: None,
            instance: None,
            credentials: None,
            tls: ClientTls::default(),
            serialize: None,
            connect_timeout: Duration::from_secs(3),
            settings: Settings {
                namespace: String::new(),
                request_timeout: Duration::from_secs(3),
                route_refresh: Duration::from_secs(30),
                heartbeat: Duration::from_secs(30),
                endpoint: None,
                endpoint_period: Duration::from_secs(120),
                offset_dir: home.join(".rocketmq_offsets"),
                max_plain_body: 64 << 20,
            },
        }
    }
}

impl ClientBuilder {
    /// Name servers, `host:port` joined by `;`. Without them `NAMESRV_ADDR` counts.
    pub fn name_servers(mut self, addrs: impl Into<String>) -> Self {
        self.name_servers = Some(addrs.into());
        self
    }

    /// URL that answers with the list of name servers; asked at the start and every two minutes.
    pub fn name_server_endpoint(mut self, url: impl Into<String>) -> Self {
        self.settings.endpoint = Some(url.into());
        self
    }

    /// Second part of the client id. The default is the process id and a random number, which cannot collide, not even
    /// between containers. Two running clients must never share one.
    pub fn instance(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// Prefix of all topics and groups.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.settings.namespace = namespace.into();
        self
    }

    /// Account that every request is signed with.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// TLS of all connections.
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = tls;
        self
    }

    /// Encoding of request headers; JSON by default.
    pub fn header_encoding(mut self, encoding: SerializeType) -> Self {
        self.serialize = Some(encoding);
        self
    }

    /// Time for requests that have no time-out of their own: 3 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.settings.request_timeout = timeout;
        self
    }

    /// Time to connect: 3 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How often routes are refreshed beside errors: 30 s.
    pub fn route_refresh(mut self, period: Duration) -> Self {
        self.settings.route_refresh = period;
        self
    }

    /// How often heartbeats are sent: 30 s. Brokers forget a client after 120 s without one.
    pub fn heartbeat(mut self, period: Duration) -> Self {
        self.settings.heartbeat = period;
        self
    }

    /// Folder for the offsets of broadcast consumers: `~/.rocketmq_offsets`.
    pub fn offset_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.settings.offset_dir = dir.into();
        self
    }

    /// Largest body that a compressed message may inflate to: 64 MiB.
    pub fn max_plain_body(mut self, bytes: usize) -> Self {
        self.settings.max_plain_body = bytes;
        self
    }

    /// Makes the client. Nothing is contacted yet, except an endpoint. Needs a running tokio runtime.
    pub async fn build(self) -> Result<Client> {
        let mut addrs = self.name_servers.unwrap_or_default();
        if addrs.trim().is_empty() {
            addrs = std::env::var("NAMESRV_ADDR").unwrap_or_default();
        }
        if let Some(url) = &self.settings.endpoint {
            addrs = fetch_endpoint(url, Duration::from_secs(3)).await?;
        }
        let name_servers = NameServers::new(&addrs);
        if name_servers.list().is_empty() {
            return Err(Error::NoNameServer);
        }
        let ip = address::own();
        let instance = self
            .instance
            .unwrap_or_else(|| format!("{}#{:016x}", std::process::id(), random::bits()));
        let shown = if ip.is_ipv6() {
            format!("[{ip}]")
        } else {
            ip.to_string()
        };
        let remoting = ClientConfig {
            connect_timeout: self.connect_timeout,
            serialize: self.serialize,
            tls: self.tls,
            signer: self
                .credentials
                .map(|account| Arc::new(account) as Arc<dyn RequestSigner>),
            ..ClientConfig::default()
        };
        let core = Core::start(
            self.settings,
            name_servers,
            format!("{shown}@{instance}"),
            ip,
            remoting,
        )?;
        Ok(Client { core })
    }
}

/// Connections, routes and heartbeats, shared by all producers and consumers made from it. A cheap clone; everything ends
/// when the last clone and the last producer and consumer are gone.
#[derive(Clone)]
pub struct Client {
    pub(crate) core: Arc<Core>,
}

impl Client {
    /// All settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A client with the default settings. `name_servers`: `host:port` joined by `;`; empty means `NAMESRV_ADDR`.
    pub async fn connect(name_servers: impl Into<String>) -> Result<Self> {
        Self::builder().name_servers(name_servers).build().await
    }

    /// A producer of `group`.
    pub fn producer(&self, group: impl Into<String>) -> ProducerBuilder {
        ProducerBuilder::new(self.core.clone(), group.into())
    }

    /// A consumer of `group` that hands messages to a handler.
    pub fn push_consumer(&self, group: impl Into<String>) -> PushConsumerBuilder {
        PushConsumerBuilder::new(self.core.clone(), group.into())
    }

    /// A consumer of `group` that the application polls, or reads as a stream.
    pub fn pull_consumer(&self, group: impl Into<String>) -> PullConsumerBuilder {
        PullConsumerBuilder::new(self.core.clone(), group.into())
    }

    /// Administration of the cluster.
    pub fn admin(&self) -> Admin {
        Admin::new(self.core.clone())
    }

    /// `ip@instance`, by which brokers know this client.
    pub fn client_id(&self) -> &str {
        &self.core.client_id
    }

    /// The name servers known now.
    pub fn name_servers(&self) -> Vec<String> {
        self.core
            .name_servers
            .list()
            .iter()
            .map(|addr| addr.to_string())
            .collect()
    }

    /// Replaces the name servers.
    pub fn set_name_servers(&self, addrs: &str) {
        self.core.name_servers.replace(addrs);
    }

    /// The queues of a topic, as the name servers know it now.
    pub async fn route(&self, topic: &str) -> Result<crate::route::Route> {
        self.core.fetch_route(&self.core.wrap(topic)).await
    }

    /// Shuts down the consumers and producers that are still there, then closes all connections.
    pub async fn shutdown(&self) {
        self.core.shutdown().await;
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("client_id", &self.core.client_id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_request_verifies_and_leaves_the_contested_field_out() {
        let account = Credentials::new("user", "12345678");
        let mut request = Command::request(12)
            .with_ext("topic", "t")
            .with_ext(UNIQUE_KEY_QUERY, "true");
        account.sign(&mut request);
        let signature = request.ext.get(SIGNATURE).unwrap().to_owned();
        let key = SigningKey::new("12345678");
        assert!(key.verify(request.ext.iter(), &request.body, &signature));
        assert_eq!(
            key.sign([(ACCESS_KEY, "user"), ("topic", "t")], b""),
            signature
        );
    }

    #[test]
    fn a_security_token_is_sent_and_signed() {
        let account = Credentials::new("user", "12345678").security_token("token");
        let mut request = Command::request(12);
        account.sign(&mut request);
        assert_eq!(request.ext.get(SECURITY_TOKEN), Some("token"));
        let key = SigningKey::new("12345678");
        let signed = key.sign([(ACCESS_KEY, "user"), (SECURITY_TOKEN, "token")], b"");
        assert_eq!(request.ext.get(SIGNATURE), Some(&*signed));
        assert!(!format!("{account:?}").contains("12345678"), "a secret");
    }

    /// An endpoint that gives each of these answers in turn, and the last one from then on.
    async fn endpoint(answers: &'static [&'static str]) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/nsaddr", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut turn = 0;
            while let Ok((mut stream, _)) = listener.accept().await {
                let answer = answers[turn.min(answers.len() - 1)];
                turn += 1;
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        url
    }

    #[tokio::test]
    async fn an_endpoint_is_asked_again_and_a_bad_answer_changes_nothing() {
        assert_eq!(
            ClientBuilder::default().settings.endpoint_period,
            Duration::from_secs(120)
        );
        let url = endpoint(&[
            "HTTP/1.1 200 OK\r\n\r\n127.0.0.1:1",
            "HTTP/1.1 500 No\r\n\r\n127.0.0.1:2",
            "",
            "HTTP/1.1 200 OK\r\n\r\n127.0.0.1:3;127.0.0.1:1",
        ]);
        let mut builder = Client::builder().name_server_endpoint(url.await);
        builder.settings.endpoint_period = Duration::from_millis(5);
        let client = builder.build().await.unwrap();
        loop {
            match &*client.name_servers() {
                [one] => assert_eq!(one, "127.0.0.1:1"),
                many => break assert_eq!(many, ["127.0.0.1:3", "127.0.0.1:1"]),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let nobody = Client::builder().name_server_endpoint("http://127.0.0.1:1/x");
        let error = nobody.build().await.unwrap_err();
        assert!(
            error.to_string().contains("http://127.0.0.1:1/x"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_client_is_known_by_its_instance_and_its_name_servers_can_be_replaced() {
        let client = Client::builder()
            .name_servers("127.0.0.1:1")
            .instance("one");
        let client = client.build().await.unwrap();
        assert!(client.client_id().ends_with("@one"));
        client.set_name_servers("127.0.0.1:2;127.0.0.1:3");
        assert_eq!(client.name_servers(), ["127.0.0.1:2", "127.0.0.1:3"]);
    }

    #[tokio::test]
    async fn without_a_name_server_there_is_no_client() {
        if std::env::var_os("NAMESRV_ADDR").is_none() {
            assert!(matches!(
                Client::connect("").await,
                Err(Error::NoNameServer)
            ));
        }
    }

    #[tokio::test]
    async fn client_ids_of_one_process_differ() {
        let one = Client::connect("127.0.0.1:1").await.unwrap();
        let two = Client::connect("127.0.0.1:1").await.unwrap();
        assert_ne!(one.client_id(), two.client_id());
        assert!(one.client_id().contains('@'));
    }
}
