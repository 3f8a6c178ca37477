//! The yardstick, append-echo: one thread and epoll; takes the same frames as a broker, appends their bodies to a file
//! with `write(2)`, answers each with a small fixed frame. It checks nothing, indexes nothing, and finds nothing again.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use minimq_protocol::SerializeType;
use minimq_protocol::code::request;

use crate::frames::{self, Glance, Template, glance};
use crate::options::EchoOptions;
use crate::peer::{Peer, Poller};

/// Number of the listener among the sockets watched; connections have their place plus one.
const LISTENER: usize = 0;

/// The yardstick, bound.
#[derive(Debug)]
pub struct AppendEcho {
    listener: TcpListener,
    file: File,
    fdatasync: bool,
    /// What sends and pulls are answered with, in both encodings.
    json: [Template; 2],
    binary: [Template; 2],
}

impl AppendEcho {
    /// Binds the socket and opens the file.
    pub fn bind(options: &EchoOptions) -> anyhow::Result<Self> {
        let path = &options.file;
        let file = File::create(path).with_context(|| path.display().to_string())?;
        std::fs::remove_file(path)?;
        let listener = TcpListener::bind(options.listen)
            .with_context(|| format!("cannot listen on {}", options.listen))?;
        listener.set_nonblocking(true)?;
        let answers = |serialize| -> anyhow::Result<[Template; 2]> {
            Ok([
                frames::send_answer(serialize)?,
                frames::pull_answer(serialize, options.record)?,
            ])
        };
        Ok(Self {
            listener,
            file,
            fdatasync: options.fdatasync,
            json: answers(SerializeType::Json)?,
            binary: answers(SerializeType::Rocketmq)?,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener
            .local_addr()
            .unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    fn answer(&self, request: &Glance<'_>, out: &mut Vec<u8>) {
        let [send, pull] = match request.serialize {
            SerializeType::Json => &self.json,
            SerializeType::Rocketmq => &self.binary,
        };
        let template = if request.code == request::PULL_MESSAGE {
            pull
        } else {
            send
        };
        template.put_with(request.opaque, out);
    }

    /// Serves until `stop`.
    pub fn run(self, stop: &AtomicBool) -> anyhow::Result<()> {
        let mut poller = Poller::new()?;
        poller.add(&self.listener, LISTENER)?;
        let mut peers: Vec<Option<Peer>> = Vec::new();
        let mut ready = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            ready.clear();
            ready.extend(poller.wait(Duration::from_millis(100))?);
            let mut appended = false;
            for number in &ready {
                if *number == LISTENER {
                    while let Ok((stream, _)) = self.listener.accept() {
                        let peer = Peer::new(stream)?;
                        peers.push(Some(peer));
                        if let Some(Some(peer)) = peers.last() {
                            poller.add_peer(peer, peers.len())?;
                        }
                    }
                    continue;
                }
                let Some(place) = peers.get_mut(number - 1) else {
                    continue;
                };
                if let Some(peer) = place {
                    // A connection that fails is a connection that has ended.
                    match self.serve(peer) {
                        Ok(Some(bytes)) => appended |= bytes > 0,
                        Ok(None) | Err(_) => *place = None,
                    }
                }
            }
            if appended && self.fdatasync {
                self.file.sync_data()?;
            }
            for number in ready.iter().filter(|number| **number != LISTENER) {
                if let Some(place) = peers.get_mut(number - 1)
                    && let Some(peer) = place
                    && peer.flush().is_err()
                {
                    *place = None;
                }
            }
        }
        Ok(())
    }

    /// Takes what came on a connection; gives the bytes appended, `None` at its end.
    fn serve(&self, peer: &mut Peer) -> anyhow::Result<Option<usize>> {
        let mut appended = 0;
        let open = peer.read_batches(|frames, out| {
            // Bodies of one read go in one write.
            let mut bodies = Vec::new();
            for frame in frames {
                let request = glance(frame)?;
                if !request.body.is_empty() {
                    bodies.push(IoSlice::new(request.body));
                    appended += request.body.len();
                }
                self.answer(&request, out);
            }
            append(&self.file, &mut bodies)
        })?;
        Ok(open.then_some(appended))
    }
}

fn append(mut file: &File, mut bodies: &mut [IoSlice<'_>]) -> anyhow::Result<()> {
    /// Most slices of one `writev`.
    const SLICES: usize = 1024;
    while !bodies.is_empty() {
        let few = bodies.len().min(SLICES);
        let written = file.write_vectored(bodies.get(..few).unwrap_or_default())?;
        IoSlice::advance_slices(&mut bodies, written);
    }
    Ok(())
}
