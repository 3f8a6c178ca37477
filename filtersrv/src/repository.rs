//! Repository mode (filter server spec 10): groups register names only, and the modules come by HTTP from a configured
//! place, so that nobody but its owner decides what runs here. Asked at once for a new name and then again and again;
//! unchanged modules are not sent again.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_filter_engine::FilterHash;
use tokio::sync::Notify;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::active_filter::Key;
use crate::config::FiltersrvConfig;
use crate::filter_registry::UploadHead;
use crate::server::State;

/// Time to connect and between two bytes of an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time for one module.
const WHOLE: Duration = Duration::from_secs(30);

/// Fetches modules.
pub(crate) struct Repository {
    url: String,
    hashes: bool,
    interval: Duration,
    most: u64,
    agent: ureq::Agent,
    /// A new name was registered.
    pub(crate) wanted: Notify,
}

/// What is known of a module's last fetch.
#[derive(Debug, Default, Clone)]
struct Known {
    tag: Option<String>,
    modified: Option<String>,
}

/// One answer of the repository.
enum Fetched {
    Same,
    Module(Bytes, Known),
}

impl Repository {
    pub(crate) fn new(config: &FiltersrvConfig) -> io::Result<Self> {
        let mut tls = TlsConfig::builder();
        if let Some(path) = &config.filter_class_repertory_trust {
            tls = tls.root_certs(RootCerts::new_with_certs(&certificates(path)?));
        }
        let agent = ureq::Agent::config_builder()
            .tls_config(tls.build())
            .timeout_connect(Some(TIMEOUT))
            .timeout_recv_response(Some(TIMEOUT))
            .timeout_global(Some(WHOLE))
            .http_status_as_error(false)
            .user_agent(concat!("mqfiltersrv/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(Self {
            url: config
                .filter_class_repertory_url
                .trim()
                .trim_end_matches('/')
                .to_owned(),
            hashes: config.filter_class_repertory_hashes,
            interval: Duration::from_millis(config.filter_class_repertory_interval),
            // Text and base64 are longer than the module they stand for.
            most: config.max_filter_module_size.0.saturating_mul(2),
            agent,
            wanted: Notify::new(),
        })
    }

    /// Asks until the server stops.
    pub(crate) async fn keep(self: Arc<Self>, state: Arc<State>) {
        let mut known: HashMap<Arc<str>, Known> = HashMap::new();
        loop {
            let classes = state.registry.lock().classes();
            known.retain(|name, _| classes.contains_key(name));
            for (name, keys) in classes {
                if state.stop.is_cancelled() {
                    return;
                }
                // What somebody lacks is not asked for conditionally.
                let lacking = keys.iter().any(|key| state.lacks_filter(key));
                let before = known
                    .get(&name)
                    .filter(|_| !lacking)
                    .cloned()
                    .unwrap_or_default();
                match self.take(&state, &name, &keys, before).await {
                    Ok(Some(now)) => drop(known.insert(name, now)),
                    Ok(None) => {}
                    Err(reason) => {
                        tracing::warn!(%name, reason, "the repository gave no filter");
                        let mut registry = state.registry.lock();
                        for key in &keys {
                            registry.refused(key, reason.clone(), Instant::now());
                        }
                    }
                }
            }
            tokio::select! {
                () = state.stop.cancelled() => return,
                () = tokio::time::sleep(self.interval) => {}
                () = self.wanted.notified() => {}
            }
        }
    }

    async fn take(
        self: &Arc<Self>,
        state: &State,
        name: &Arc<str>,
        keys: &[Key],
        before: Known,
    ) -> Result<Option<Known>, String> {
        let (this, class) = (self.clone(), name.clone());
        let fetched = tokio::task::spawn_blocking(move || this.fetch(&class, &before))
            .await
            .map_err(|error| error.to_string())??;
        let Fetched::Module(module, known) = fetched else {
            return Ok(None);
        };
        let hash = FilterHash::of(&module);
        let mut flight = state
            .compiler
            .compile(hash, module)
            .map_err(|busy| busy.to_string())?;
        let filter = flight.land().await.map_err(|error| error.to_string())?;
        for key in keys {
            let head = UploadHead {
                key: key.clone(),
                class_name: name.clone(),
                crc: 0,
                hash,
                connection: None,
            };
            state
                .registry
                .lock()
                .replace(&head, &filter, Instant::now())
                .map_err(|error| error.to_string())?;
        }
        tracing::info!(%name, %hash, "filter of the repository in use");
        state.uploaded.notify_waiters();
        Ok(Some(known))
    }

    /// One request, or two. Waits for the network.
    fn fetch(&self, name: &str, before: &Known) -> Result<Fetched, String> {
        let url = format!("{}/{name}.wasm", self.url);
        let mut request = self.agent.get(&url);
        if let Some(tag) = &before.tag {
            request = request.header("If-None-Match", tag);
        }
        if let Some(modified) = &before.modified {
            request = request.header("If-Modified-Since", modified);
        }
        let answer = request
            .call()
            .map_err(|error| format!("GET {url}: {error}"))?;
        let header = |name| {
            answer
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let known = Known {
            tag: header("ETag"),
            modified: header("Last-Modified"),
        };
        match answer.status().as_u16() {
            304 => return Ok(Fetched::Same),
            200 => {}
            status => return Err(format!("GET {url}: status {status}")),
        }
        let module = self.read(&url, answer, self.most)?;
        if self.hashes {
            self.check_hash(&url, &module)?;
        }
        Ok(Fetched::Module(module.into(), known))
    }

    fn read(
        &self,
        url: &str,
        answer: ureq::http::Response<ureq::Body>,
        most: u64,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut reader = answer
            .into_body()
            .into_reader()
            .take(most.saturating_add(1));
        reader
            .read_to_end(&mut bytes)
            .map_err(|error| format!("GET {url}: {error}"))?;
        if bytes.len() as u64 > most {
            return Err(format!(
                "GET {url}: longer than the {most} bytes that are accepted"
            ));
        }
        Ok(bytes)
    }

    /// The file beside the module: its SHA-256 in hexadecimal, perhaps with more behind it, as sha256sum writes.
    fn check_hash(&self, url: &str, module: &[u8]) -> Result<(), String> {
        let url = format!("{url}.sha256");
        let answer = self
            .agent
            .get(&url)
            .call()
            .map_err(|error| format!("GET {url}: {error}"))?;
        if answer.status().as_u16() != 200 {
            return Err(format!("GET {url}: status {}", answer.status().as_u16()));
        }
        let text = self.read(&url, answer, 4096)?;
        let text = String::from_utf8_lossy(&text);
        let wanted = text.split_whitespace().next().unwrap_or_default();
        let hash = FilterHash::of(module).to_string();
        if wanted.eq_ignore_ascii_case(&hash) {
            Ok(())
        } else {
            Err(format!(
                "{url} says {wanted:.64}, but the module has {hash}"
            ))
        }
    }
}

/// The certificates of a PEM file.
fn certificates(path: &Path) -> io::Result<Vec<Certificate<'static>>> {
    let fault = |what: String| {
        let key = "filterClassRepertoryTrustCertPath";
        io::Error::other(format!("{key} {}: {what}", path.display()))
    };
    let text = std::fs::read(path).map_err(|error| fault(error.to_string()))?;
    let mut all = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| fault(error.to_string()))? {
            all.push(certificate);
        }
    }
    if all.is_empty() {
        return Err(fault("there is no certificate in it".to_owned()));
    }
    Ok(all)
}

/// Whether a name may be part of a URL's path.
pub(crate) fn is_class_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '$');
    name.chars().all(plain) && !name.split('.').any(str::is_empty)
}

#[cfg(test)]
mod tests {
    use super::is_class_name;

    #[test]
    fn names_stay_inside_the_repository() {
        for good in ["MyFilter", "org.example.My_Filter-2", "a$b"] {
            assert!(is_class_name(good), "{good}");
        }
        for bad in [
            "", "..", "../x", "a/b", "a..b", ".a", "a?b", "a b", "a%2fb", "ä",
        ] {
            assert!(!is_class_name(bad), "{bad}");
        }
    }
}
