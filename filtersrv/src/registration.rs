//! Telling the broker that this server filters for it (filter server spec 4): at start, every 10 s, and at once when
//! the connection is lost, with a growing pause while the broker is away. The broker forgets the server with the
//! connection, so closing it is the way to be taken off the list.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use minimq_protocol::Command;
use minimq_protocol::acl_signature::{ACCESS_KEY, SIGNATURE, SigningKey, UNIQUE_KEY_QUERY};
use minimq_protocol::code::{request, response};
use minimq_protocol::header::{
    PullMessageRequest, RegisterFilterServerRequest, RegisterFilterServerResponse,
};
use minimq_protocol::sys_flag::pull as pull_flag;
use minimq_remoting::{CallError, Client, Connection, RequestSigner};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::FiltersrvConfig;

/// Time for one registration.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Pause after a failed registration, first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The pauses after failed registrations.
#[derive(Debug)]
struct BackOff(Duration);

impl BackOff {
    fn new() -> Self {
        Self(PAUSE.0)
    }

    /// The pause after one more failure: twice the one before, up to the longest.
    fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE.1);
        pause
    }
}

/// What the broker says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerIdentity {
    pub(crate) name: String,
    pub(crate) id: i64,
}

/// The registration of this server.
pub(crate) struct Registration {
    broker: String,
    /// Set once the port is taken, before [`Registration::keep`].
    address: OnceLock<String>,
    interval: Duration,
    /// Its connection is the registration; pulls have one of their own.
    client: Client,
    known: watch::Sender<Option<BrokerIdentity>>,
}

impl Registration {
    /// Registers nothing yet.
    pub(crate) fn new(config: &FiltersrvConfig, client: Client) -> Self {
        Self {
            broker: config.connect_which_broker.clone(),
            address: OnceLock::new(),
            interval: Duration::from_millis(config.register_interval),
            client,
            known: watch::Sender::new(None),
        }
    }

    /// The address to register; the first one counts.
    pub(crate) fn set_address(&self, address: String) {
        let _ = self.address.set(address);
    }

    /// The address told to consumers.
    pub(crate) fn address(&self) -> &str {
        self.address.get().map_or("", String::as_str)
    }

    /// The broker, once it has been reached.
    pub(crate) fn broker(&self) -> Option<BrokerIdentity> {
        self.known.borrow().clone()
    }

    /// Waits for the first registration.
    pub(crate) async fn registered(&self) {
        // This end keeps the sender alive.
        let _ = self.known.subscribe().wait_for(Option::is_some).await;
    }

    /// Keeps this server registered until `stop`, and takes it off the list then.
    pub(crate) async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut back_off = BackOff::new();
        loop {
            let soonest = Instant::now() + PAUSE.0;
            let attempt = tokio::select! {
                attempt = self.register() => attempt,
                () = stop.cancelled() => break,
            };
            let (wait, connection) = match attempt {
                Ok((connection, identity)) => {
                    back_off = BackOff::new();
                    self.learn(identity, &connection).await;
                    (self.interval, Some(connection))
                }
                Err(reason) => {
                    let pause = back_off.next();
                    tracing::warn!(
                        broker = self.broker,
                        reason,
                        "registration failed, next attempt in {} s",
                        pause.as_secs()
                    );
                    (pause, None)
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(wait) => {}
                () = closed(connection.as_ref()) => {
                    tracing::warn!(broker = self.broker, "the connection to the broker was lost");
                    // At once, but not again and again to a broker that takes each registration and hangs up.
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = tokio::time::sleep_until(soonest) => {}
                    }
                }
            }
        }
        self.client.close_all();
    }

    /// The connection that is registered now, and what the broker says of itself.
    async fn register(&self) -> Result<(Connection, BrokerIdentity), String> {
        let header = RegisterFilterServerRequest {
            filter_server_addr: self.address(),
        };
        let command = Command::request_with(request::REGISTER_FILTER_SERVER, &header);
        let failed = |error: CallError| error.to_string();
        let connection = self.client.connect(&self.broker).await.map_err(failed)?;
        let answer = connection.call(command, TIMEOUT).await.map_err(failed)?;
        if answer.code != response::SUCCESS {
            return Err(format!(
                "the broker answers {}: {}",
                answer.code,
                answer.remark()
            ));
        }
        let header: RegisterFilterServerResponse<'_> =
            answer.header().map_err(|error| error.to_string())?;
        let identity = BrokerIdentity {
            name: header.broker_name.to_owned(),
            id: header.broker_id,
        };
        Ok((connection, identity))
    }

    async fn learn(&self, identity: BrokerIdentity, connection: &Connection) {
        let new = self
            .known
            .send_replace(Some(identity.clone()))
            .is_none_or(|old| old != identity);
        if new {
            tracing::info!(
                broker = identity.name,
                id = identity.id,
                address = self.address(),
                "registered"
            );
            self.check_rights(connection).await;
        }
    }

    /// A pull of the broker's own test topic: says in the log when the account may not subscribe.
    async fn check_rights(&self, connection: &Connection) {
        let header = PullMessageRequest {
            consumer_group: "FILTERSRV_CONSUMER",
            topic: "SELF_TEST_TOPIC",
            max_msg_nums: 1,
            sys_flag: pull_flag::build(false, false, true, false, false),
            subscription: Some("*"),
            ..PullMessageRequest::default()
        };
        let command = Command::request_with(request::PULL_MESSAGE, &header);
        if let Ok(answer) = connection.call(command, TIMEOUT).await
            && answer.remark().contains("AclException")
        {
            tracing::error!(
                remark = answer.remark(),
                "the account accessKey of this filter server may not subscribe at the broker: give it SUB on the topics and groups it filters for"
            );
        }
    }
}

/// The registration's connection has ended; never, if there is none.
async fn closed(connection: Option<&Connection>) {
    match connection {
        Some(connection) => connection.closed().await,
        None => std::future::pending().await,
    }
}

/// Signs requests to the broker.
pub(crate) struct Signer {
    access_key: String,
    key: SigningKey,
}

impl Signer {
    /// The configured account.
    pub(crate) fn of(config: &FiltersrvConfig) -> Option<Arc<dyn RequestSigner>> {
        let (access_key, secret) = (config.access_key.clone()?, config.secret_key.as_deref()?);
        Some(Arc::new(Self {
            access_key,
            key: SigningKey::new(secret),
        }))
    }
}

impl RequestSigner for Signer {
    fn sign(&self, request: &mut Command) {
        request.ext.push(ACCESS_KEY, &self.access_key);
        let signed = request
            .ext
            .iter()
            .filter(|(key, _)| *key != UNIQUE_KEY_QUERY && *key != SIGNATURE);
        let signature = self.key.sign(signed, &request.body);
        request.ext.push(SIGNATURE, &signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_minute() {
        let mut back_off = BackOff::new();
        let pauses: Vec<u64> = (0..7).map(|_| back_off.next().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }
}
