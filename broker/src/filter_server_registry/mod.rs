//! Filter servers beside this broker: code 301 (broker spec 11). A connection registers one address and keeps it
//! by repeating itself; the list goes to the name servers with the next registration, which a change brings on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use minimq_protocol::Command;
use minimq_protocol::header::{RegisterFilterServerRequest, RegisterFilterServerResponse};
use minimq_remoting::{CloseReason, Connection};
use parking_lot::Mutex;

use crate::broker::Broker;
use crate::request::{Handled, Refusal, RequestContext, success};

/// Silent ones are looked for at least so often.
const SCAN: Duration = Duration::from_secs(10);
/// Filter servers at most.
const LIMIT: usize = 1024;

#[derive(Debug)]
struct Entry {
    connection: Connection,
    address: String,
    seen: Instant,
}

/// The filter servers, one a connection, in the order they came.
#[derive(Debug, Default)]
pub struct FilterServerRegistry {
    entries: Mutex<Vec<Entry>>,
}

impl FilterServerRegistry {
    /// Their addresses, each once.
    pub fn addresses(&self) -> Vec<String> {
        let mut addresses: Vec<String> = Vec::new();
        for entry in self.entries.lock().iter() {
            if !addresses.contains(&entry.address) {
                addresses.push(entry.address.clone());
            }
        }
        addresses
    }

    /// Adds or refreshes the entry of a connection; its first address stays. Whether the list changed.
    fn register(
        &self,
        connection: &Connection,
        address: &str,
        now: Instant,
    ) -> Result<bool, Refusal> {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries
            .iter_mut()
            .find(|entry| entry.connection.id() == connection.id())
        {
            entry.seen = now;
            return Ok(false);
        }
        if entries.len() >= LIMIT {
            return Err(Refusal::error(format!(
                "{LIMIT} filter servers are registered, no more are allowed"
            )));
        }
        entries.push(Entry {
            connection: connection.clone(),
            address: address.to_owned(),
            seen: now,
        });
        Ok(true)
    }

    /// Removes the entry of a connection; its address if there was one.
    pub fn connection_closed(&self, connection: &Connection) -> Option<String> {
        let mut entries = self.entries.lock();
        let at = entries
            .iter()
            .position(|entry| entry.connection.id() == connection.id())?;
        Some(entries.remove(at).address)
    }

    /// Takes out those not seen for `expiry`; their connections are to be closed.
    fn expire(&self, expiry: Duration, now: Instant) -> Vec<(Connection, String)> {
        let mut gone = Vec::new();
        self.entries.lock().retain(|entry| {
            let alive = now.duration_since(entry.seen) <= expiry;
            if !alive {
                gone.push((entry.connection.clone(), entry.address.clone()));
            }
            alive
        });
        gone
    }
}

/// Code 301.
pub fn register(cx: &mut RequestContext<'_, '_>, request: &Command) {
    let handled = register_from(cx.broker, cx.connection(), request);
    cx.reply(request.id(), handled);
}

fn register_from(broker: &Arc<Broker>, connection: &Connection, request: &Command) -> Handled {
    let header: RegisterFilterServerRequest<'_> = request.header()?;
    if !header.filter_server_addr.contains(':') {
        return Err(Refusal::error(format!(
            "filterServerAddr \"{}\" is not host:port",
            header.filter_server_addr
        )));
    }
    if broker
        .filter_servers
        .register(connection, header.filter_server_addr, Instant::now())?
    {
        tracing::info!(
            address = header.filter_server_addr,
            "filter server registered"
        );
        broker.registration.changed();
    }
    let identity = &broker.identity;
    let answer = RegisterFilterServerResponse {
        broker_name: &identity.name,
        broker_id: identity.id,
    };
    Ok(success(request).with_header(&answer))
}

impl Broker {
    /// Forgets the filter server of a closed connection at once.
    pub(crate) fn filter_server_connection_closed(&self, connection: &Connection) {
        if let Some(address) = self.filter_servers.connection_closed(connection) {
            tracing::info!(address, "filter server gone");
            self.registration.changed();
        }
    }

    /// The periodic scan for silent filter servers; ends when the broker stops.
    pub(crate) async fn expire_filter_servers(self: Arc<Self>) {
        let expiry = Duration::from_millis(self.config.get().filter_server_expiry);
        loop {
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = tokio::time::sleep(SCAN.min(expiry / 3)) => {}
            }
            for (connection, address) in self.filter_servers.expire(expiry, Instant::now()) {
                tracing::warn!(address, ?expiry, "filter server silent, forgotten");
                connection.close(CloseReason::Requested("silent for too long"));
                self.registration.changed();
            }
        }
    }
}
