//! The list of name servers: where it comes from, which one is asked, and fail-over (client spec 1.7).

use std::sync::Arc;
use std::time::Duration;

use minimq_protocol::Command;
use minimq_remoting::{CallError, Client as Remoting};
use parking_lot::RwLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{Error, Result};
use crate::random;

/// Longest answer of an address endpoint, bytes.
const MAX_ENDPOINT_ANSWER: u64 = 64 * 1024;

/// The name servers known.
#[derive(Debug, Default)]
pub(crate) struct NameServers {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    list: Vec<Arc<str>>,
    chosen: usize,
}

impl NameServers {
    /// From `host:port` items joined by `;` (or `,`).
    pub(crate) fn new(text: &str) -> Self {
        let servers = Self::default();
        servers.replace(text);
        servers
    }

    /// Takes over a new list, begins at a random place. An empty one is ignored.
    pub(crate) fn replace(&self, text: &str) -> bool {
        let list = parse(text);
        let mut state = self.state.write();
        if list.is_empty() || list == state.list {
            return false;
        }
        state.chosen = random::below(list.len());
        state.list = list;
        true
    }

    pub(crate) fn list(&self) -> Vec<Arc<str>> {
        self.state.read().list.clone()
    }

    /// Asks the chosen name server; if it does not answer the next one, each at most once.
    pub(crate) async fn call(
        &self,
        remoting: &Remoting,
        request: &Command,
        timeout: Duration,
    ) -> Result<(Arc<str>, Command)> {
        let (list, first) = {
            let state = self.state.read();
            (state.list.clone(), state.chosen)
        };
        let mut failed = None;
        for step in 0..list.len() {
            let at = (first + step) % list.len();
            let Some(addr) = list.get(at) else { break };
            match remoting.call(addr, request.clone(), timeout).await {
                Ok(answer) => {
                    if step > 0 {
                        self.choose(addr);
                    }
                    return Ok((addr.clone(), answer));
                }
                Err(error) => {
                    tracing::debug!(%addr, %error, "name server does not answer");
                    if matches!(error, CallError::Timeout { .. }) {
                        // Perhaps the connection alone is dead, and nobody else would notice.
                        remoting.close(addr);
                    }
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(source) => Err(Error::NameServers {
                tried: list.join(";"),
                source,
            }),
            None => Err(Error::NoNameServer),
        }
    }

    fn choose(&self, addr: &Arc<str>) {
        let mut state = self.state.write();
        if let Some(at) = state.list.iter().position(|one| one == addr) {
            state.chosen = at;
        }
    }
}

fn parse(text: &str) -> Vec<Arc<str>> {
    let mut list: Vec<Arc<str>> = Vec::new();
    for item in text.split([';', ',']) {
        let item = item.trim();
        let item = item.strip_prefix("http://").unwrap_or(item);
        let item = item.rsplit('/').next().unwrap_or(item);
        if !item.is_empty() && !list.iter().any(|known| &**known == item) {
            list.push(item.into());
        }
    }
    list
}

/// Fetches a list from an HTTP endpoint: `GET` of the URL, status 200, first line of the body.
pub(crate) async fn fetch_endpoint(url: &str, timeout: Duration) -> Result<String> {
    let rest = url.strip_prefix("http://").ok_or_else(|| {
        Error::invalid("name server endpoint", format!("{url} is no http:// URL"))
    })?;
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    let addr = if has_port {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let io = |source| Error::io(format!("asking {url} for name servers"), source);
    let exchange = async {
        let mut stream = TcpStream::connect(&addr).await.map_err(io)?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(io)?;
        let mut answer = Vec::new();
        let mut limited = stream.take(MAX_ENDPOINT_ANSWER);
        limited.read_to_end(&mut answer).await.map_err(io)?;
        Ok::<_, Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(timeout, exchange)
        .await
        .map_err(|_| Error::Timeout {
            what: format!("no answer from {url}"),
            after: timeout,
        })??;
    endpoint_list(&answer)
        .ok_or_else(|| Error::bad_answer(url, answer.lines().next().unwrap_or("it is empty")))
}

fn endpoint_list(answer: &str) -> Option<String> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?;
    let line = body.trim().lines().next()?.trim();
    (status == "200" && !line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_java_reads_it() {
        let texts = |text| {
            parse(text)
                .iter()
                .map(|one| one.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(texts("a:1;b:2; a:1;"), ["a:1", "b:2"]);
        assert_eq!(texts("http://x.y/z/host:9876"), ["host:9876"]);
        assert!(texts(" ; ").is_empty());
    }

    #[test]
    fn an_empty_list_replaces_nothing() {
        let servers = NameServers::new("a:1");
        assert!(!servers.replace(""));
        assert!(!servers.replace("a:1"));
        assert!(servers.replace("b:1;a:1"));
        assert_eq!(servers.list().len(), 2);
    }

    #[test]
    fn only_a_good_http_answer_gives_a_list() {
        assert_eq!(
            endpoint_list("HTTP/1.1 200 OK\r\nA: b\r\n\r\n h:1;h:2\nmore").as_deref(),
            Some("h:1;h:2")
        );
        assert_eq!(endpoint_list("HTTP/1.1 404 No\r\n\r\nh:1"), None);
        assert_eq!(endpoint_list("HTTP/1.1 200 OK\r\n\r\n  "), None);
    }

    #[tokio::test]
    async fn a_dead_name_server_is_left_for_the_next_one() {
        use minimq_remoting::{Answers, ClientConfig, Connection, Server, ServerConfig, Service};
        struct Ok200;
        impl Service for Ok200 {
            type Session = ();
            fn open(&self, _: &Connection) {}
            fn request(&self, _: &mut (), request: Command, answers: &mut Answers<'_>) {
                answers.refuse(request.id(), 0, "here");
            }
        }
        let server = Server::bind(
            ServerConfig::new("127.0.0.1:0".parse().unwrap()),
            Arc::new(Ok200),
        )
        .unwrap()
        .spawn();
        let live = server.local_addr().to_string();
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dead = probe.local_addr().unwrap().to_string();
        drop(probe);
        let servers = NameServers::new(&format!("{dead};{live}"));
        let remoting = Remoting::new(ClientConfig::default()).unwrap();
        for _ in 0..2 {
            let (addr, answer) = servers
                .call(&remoting, &Command::request(105), Duration::from_secs(3))
                .await
                .unwrap();
            assert_eq!((&*addr, answer.remark()), (live.as_str(), "here"));
        }
        assert_eq!(
            servers.state.read().list[servers.state.read().chosen].as_ref(),
            live
        );
    }
}
