//! REGISTER_MESSAGE_FILTER_CLASS (filter server spec 8): a consumer uploads its filter, or, in repository mode, names it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_filter_engine::FilterHash;
use minimq_protocol::Command;
use minimq_protocol::code::response;
use minimq_protocol::crc::body_crc;
use minimq_protocol::header::RegisterMessageFilterClassRequest;
use minimq_remoting::{Answers, Connection, Responder};
use tokio::sync::OwnedSemaphorePermit;

use crate::active_filter::Key;
use crate::compiler::Flight;
use crate::filter_registry::UploadHead;
use crate::server::State;

/// Longest remark, in characters.
const REMARK: usize = 500;
/// Longest class name, topic and group, in bytes.
const NAME: usize = 255;
/// A body up to this size is hashed on the task.
const SMALL_BODY: usize = 64 * 1024;
/// Uploads under way take permits of this many bytes.
const PERMIT_BYTES: usize = 1024;
/// Uploads under way may have so many bytes together.
pub(crate) const PERMITS: usize = 128 * 1024;

/// One upload.
struct Upload {
    key: Key,
    class_name: Arc<str>,
    crc: i32,
    body: Bytes,
    connection: Connection,
    _permit: OwnedSemaphorePermit,
}

/// Code 302.
pub(crate) fn upload(state: &Arc<State>, command: &Command, answers: &mut Answers<'_>) {
    let id = command.id();
    let header: RegisterMessageFilterClassRequest<'_> = match command.header() {
        Ok(header) => header,
        Err(error) => return answers.refuse(id, response::SYSTEM_ERROR, &error.to_string()),
    };
    let names = [
        ("consumerGroup", header.consumer_group),
        ("topic", header.topic),
        ("className", header.class_name),
    ];
    for (field, name) in names {
        if name.trim().is_empty() || name.len() > NAME {
            let remark = format!("{field} must have 1 to {NAME} bytes");
            return answers.refuse(id, response::SYSTEM_ERROR, &remark);
        }
    }
    let key = Key {
        topic: header.topic.into(),
        group: header.consumer_group.into(),
    };
    if !state.config.client_upload_filter_class_enable {
        return match state.want_class(&key, header.class_name) {
            Ok(()) => answers.answer(id, Command::response(id, response::SUCCESS)),
            Err(remark) => answers.refuse(id, response::SYSTEM_ERROR, &remark),
        };
    }
    if let Err(remark) = check_body(&header, &command.body) {
        return answers.refuse(id, response::SYSTEM_ERROR, &remark);
    }
    let weight = command.body.len().div_ceil(PERMIT_BYTES).clamp(1, PERMITS) as u32;
    let Ok(permit) = state.uploads.clone().try_acquire_many_owned(weight) else {
        let remark = "[OVERLOAD]system busy: too many bytes of modules wait to be compiled; upload again later";
        return answers.refuse(id, response::SYSTEM_BUSY, remark);
    };
    let upload = Upload {
        key,
        class_name: header.class_name.into(),
        crc: header.class_crc,
        // The read buffer is not kept alive by a module that waits.
        body: Bytes::copy_from_slice(&command.body),
        connection: answers.connection().clone(),
        _permit: permit,
    };
    let responder = answers.later(id);
    let state = state.clone();
    tokio::spawn(async move { take(&state, upload, responder).await });
}

fn check_body(header: &RegisterMessageFilterClassRequest<'_>, body: &[u8]) -> Result<(), String> {
    if body.is_empty() {
        return Err(
            "registerFilterClass error: the body is empty; it must be a WebAssembly module"
                .to_owned(),
        );
    }
    let crc = body_crc(body);
    if header.class_crc != 0 && header.class_crc != crc {
        return Err(format!(
            "registerFilterClass error: classCRC is {}, but that of the body is {crc}",
            header.class_crc
        ));
    }
    Ok(())
}

async fn take(state: &State, upload: Upload, responder: Responder) {
    let hash = hash_of(&upload.body).await;
    let head = UploadHead {
        key: upload.key.clone(),
        class_name: upload.class_name.clone(),
        crc: upload.crc,
        hash,
        connection: Some(upload.connection.id()),
    };
    let known = {
        let mut registry = state.registry.lock();
        // Looked at under the lock: the closing connection takes it after saying so.
        !upload.connection.is_closed() && registry.repeat(&head, Instant::now())
    };
    if known {
        state.uploaded.notify_waiters();
        return done(responder);
    }
    let mut flight = match state.compiler.compile(hash, upload.body.clone()) {
        Ok(flight) => flight,
        Err(busy) => return responder.refuse(response::SYSTEM_BUSY, &busy.to_string()),
    };
    let wait = Duration::from_millis(state.config.filter_compile_wait);
    match tokio::time::timeout(wait, land(state, &upload, head.clone(), &mut flight)).await {
        Ok(Ok(())) => done(responder),
        Ok(Err(remark)) => responder.refuse(response::SYSTEM_ERROR, &remark),
        Err(_) => {
            let remark = format!(
                "compiling, upload again: the module {hash} is not compiled after {wait:?}"
            );
            responder.refuse(response::SYSTEM_ERROR, &remark);
            // It is put in use all the same when it is done.
            let _ = land(state, &upload, head, &mut flight).await;
        }
    }
}

fn done(responder: Responder) {
    responder.respond_head(
        response::SUCCESS,
        None,
        None::<&minimq_protocol::NoHeader>,
        &[],
    );
}

async fn hash_of(body: &Bytes) -> FilterHash {
    if body.len() <= SMALL_BODY {
        return FilterHash::of(body);
    }
    let shared = body.clone();
    match tokio::task::spawn_blocking(move || FilterHash::of(&shared)).await {
        Ok(hash) => hash,
        Err(_) => FilterHash::of(body),
    }
}

/// Waits for the compilation and puts the filter in use. The error is the remark.
async fn land(
    state: &State,
    upload: &Upload,
    mut head: UploadHead,
    flight: &mut Flight,
) -> Result<(), String> {
    let compiled = flight.land().await;
    let (key, class_name) = (&upload.key, &upload.class_name);
    let now = Instant::now();
    let mut registry = state.registry.lock();
    let installed = match &compiled {
        Ok(filter) => {
            if upload.connection.is_closed() {
                head.connection = None;
            }
            registry
                .install(&head, filter, now)
                .map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    if let Err(reason) = installed {
        registry.refused(key, reason.clone(), now);
        drop(registry);
        tracing::warn!(%key, %class_name, reason, "upload refused");
        let remark = format!("registerFilterClass error: {reason}, {key} ClassName: {class_name}");
        return Err(remark.chars().take(REMARK).collect());
    }
    let hashes = registry.differing(key, now);
    drop(registry);
    state.uploaded.notify_waiters();
    tracing::info!(%key, %class_name, hash = %head.hash, bytes = upload.body.len(), "filter in use");
    if hashes.len() > 1 {
        tracing::warn!(%key, ?hashes, "members of the group use different filters: in clustering a message that one of them drops is lost to all");
    }
    Ok(())
}
