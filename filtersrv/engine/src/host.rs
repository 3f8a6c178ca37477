//! The host's side of the ABI: what a guest may ask of the message it is looking at. Every pointer is
//! checked; nothing here traps but `abort`, and nothing grows with what the guest passes.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use minimq_protocol::compression::CompressionType;
use minimq_protocol::message::MessageView;
use minimq_protocol::message_id::MAX_ID_LEN;
use minimq_protocol::properties::name;
use minimq_protocol::sys_flag::message as message_flag;
use parking_lot::Mutex;
use wasmtime::{Caller, Linker, Memory, ResourceLimiter};

use crate::abi;
use crate::budget::Share;
use crate::engine::EngineConfig;
use crate::instance::FilterContext;
use crate::property_index::PropertyIndex;
use crate::time_limit::TimeLimit;

/// Longest text of one log line or abort, in bytes.
const LOG_LINE: usize = 1024;
/// Log lines a second of one filter.
const LOG_LINES: u32 = 10;

/// The guest called `abort`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Aborted(pub(crate) String);

/// Lines logged in the current second, shared by all instances of a filter.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<Option<(Instant, u32)>>);

impl LogLimit {
    fn allows(&self) -> bool {
        let mut window = self.0.lock();
        let now = Instant::now();
        match &mut *window {
            Some((begin, lines)) if now.duration_since(*begin) < Duration::from_secs(1) => {
                *lines = lines.saturating_add(1);
                *lines <= LOG_LINES
            }
            other => {
                *other = Some((now, 1));
                true
            }
        }
    }
}

/// The store's data of one instance.
pub(crate) struct Host {
    context: FilterContext,
    message: Option<MessageView<Bytes>>,
    properties: PropertyIndex,
    /// The decompressed body, once asked for.
    plain: Option<Option<Bytes>>,
    pub(crate) memory: Option<Memory>,
    pub(crate) limits: Limits,
    pub(crate) time: TimeLimit,
    log_limit: Arc<LogLimit>,
    max_body_size: usize,
}

impl Host {
    pub(crate) fn new(
        context: FilterContext,
        log_limit: Arc<LogLimit>,
        share: Share,
        config: &EngineConfig,
    ) -> Self {
        Self {
            context,
            message: None,
            properties: PropertyIndex::default(),
            plain: None,
            memory: None,
            limits: Limits {
                share,
                max_memory: config.max_memory,
                max_table_elements: config.max_table_elements,
            },
            time: TimeLimit::begin(config.start_timeout),
            log_limit,
            max_body_size: config.max_body_size,
        }
    }

    pub(crate) fn begin(&mut self, message: &MessageView<Bytes>) {
        self.message = Some(message.clone());
    }

    pub(crate) fn end(&mut self) {
        self.message = None;
        self.properties.forget();
        self.plain = None;
    }

    /// The message's properties text and what is known of it.
    fn properties(&mut self) -> Option<(&[u8], &mut PropertyIndex)> {
        let text = self.message.as_ref()?.properties().as_bytes();
        Some((text, &mut self.properties))
    }

    /// The body as the producer gave it.
    fn plain_body(&mut self) -> Option<&[u8]> {
        let message = self.message.as_ref()?;
        if !message_flag::is_compressed(message.sys_flag()) {
            return Some(message.body());
        }
        let limit = self.max_body_size;
        self.plain
            .get_or_insert_with(|| {
                CompressionType::of_sys_flag(message.sys_flag())
                    .and_then(|kind| kind.decompress(message.body(), limit))
                    .ok()
                    .map(Bytes::from)
            })
            .as_deref()
    }

    fn number(&mut self, which: i32) -> Result<i64, i32> {
        use abi::number as n;
        if which == n::BODY_LEN {
            return self
                .plain_body()
                .map(|b| b.len() as i64)
                .ok_or(abi::BODY_NOT_DECODABLE);
        }
        let message = self.message.as_ref().ok_or(abi::ABSENT)?;
        Ok(match which {
            n::QUEUE_ID => message.queue_id().into(),
            n::QUEUE_OFFSET => message.queue_offset(),
            n::PHYSICAL_OFFSET => message.physical_offset(),
            n::BORN_MS => message.born_timestamp(),
            n::STORED_MS => message.store_timestamp(),
            n::FLAG => message.flag().into(),
            n::SYS_FLAG => message.sys_flag().into(),
            n::RECONSUME_TIMES => message.reconsume_times().into(),
            n::STORED_BODY_LEN => message.body().len() as i64,
            n::BODY_CRC => message.body_crc().into(),
            n::PREPARED_OFFSET => message.prepared_transaction_offset(),
            n::RECORD_SIZE => message.size() as i64,
            _ => return Err(abi::UNKNOWN_SELECTOR),
        })
    }
}

/// Growth limits of one instance.
pub(crate) struct Limits {
    pub(crate) share: Share,
    max_memory: usize,
    max_table_elements: usize,
}

impl ResourceLimiter for Limits {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired <= self.max_memory && self.share.grow_to(desired))
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired <= self.max_table_elements)
    }
}

/// `length` bytes of guest memory at `at`.
fn slice(memory: &[u8], at: i32, length: i32) -> Option<&[u8]> {
    let (at, length) = (at as u32 as usize, usize::try_from(length).ok()?);
    memory.get(at..at.checked_add(length)?)
}

fn slice_mut(memory: &mut [u8], at: i32, length: i32) -> Option<&mut [u8]> {
    let (at, length) = (at as u32 as usize, usize::try_from(length).ok()?);
    memory.get_mut(at..at.checked_add(length)?)
}

/// Copies what fits of `value` to the guest; the answer is the whole length.
fn give(memory: &mut [u8], out: i32, capacity: i32, value: &[u8]) -> i32 {
    let Some(out) = slice_mut(memory, out, capacity) else {
        return abi::BAD_POINTER;
    };
    let length = out.len().min(value.len());
    if let (Some(out), Some(value)) = (out.get_mut(..length), value.get(..length)) {
        out.copy_from_slice(value);
    }
    i32::try_from(value.len()).unwrap_or(i32::MAX)
}

fn give_number(memory: &mut [u8], out: i32, value: [u8; 8]) -> i32 {
    match slice_mut(memory, out, 8) {
        Some(out) => {
            out.copy_from_slice(&value);
            0
        }
        None => abi::BAD_POINTER,
    }
}

type Guest<'c> = Caller<'c, Host>;

/// The guest's memory and the host's data at once.
fn split<'c>(caller: &'c mut Guest<'_>) -> Option<(&'c mut [u8], &'c mut Host)> {
    let memory = caller.data().memory?;
    Some(memory.data_and_store_mut(caller))
}

fn with(caller: &mut Guest<'_>, action: impl FnOnce(&mut [u8], &mut Host) -> i32) -> i32 {
    split(caller).map_or(abi::BAD_POINTER, |(memory, host)| action(memory, host))
}

/// The property whose name stands at `name`.
fn property<'h>(
    memory: &[u8],
    host: &'h mut Host,
    name: i32,
    length: i32,
) -> Result<&'h [u8], i32> {
    let name = slice(memory, name, length)
        .filter(|name| name.is_ascii() || std::str::from_utf8(name).is_ok())
        .ok_or(abi::BAD_POINTER)?;
    let (text, index) = host.properties().ok_or(abi::ABSENT)?;
    index.value(text, name).ok_or(abi::ABSENT)
}

fn parsed_property<T: std::str::FromStr>(
    memory: &mut [u8],
    host: &mut Host,
    (name, length, out): (i32, i32, i32),
    bytes: fn(T) -> [u8; 8],
) -> i32 {
    let value = match property(memory, host, name, length) {
        Ok(value) => value,
        Err(code) => return code,
    };
    // Most have no white space around them.
    let parse = |text: &str| text.parse().or_else(|_| text.trim().parse()).ok();
    match std::str::from_utf8(value).ok().and_then(parse) {
        Some(number) => give_number(memory, out, bytes(number)),
        None => abi::NOT_A_NUMBER,
    }
}

fn text(memory: &mut [u8], host: &mut Host, which: i32, out: i32, capacity: i32) -> i32 {
    use abi::text as t;
    let context = &host.context;
    match which {
        t::GROUP => return give(memory, out, capacity, context.group.as_bytes()),
        t::CLASS_NAME => return give(memory, out, capacity, context.class_name.as_bytes()),
        _ => {}
    }
    let Some(message) = &host.message else {
        return abi::ABSENT;
    };
    let index = &mut host.properties;
    let mut property = |name: &str| {
        let value = index.value(message.properties().as_bytes(), name.as_bytes())?;
        std::str::from_utf8(value).ok()
    };
    let mut id = [0; MAX_ID_LEN];
    let mut address = String::new();
    let value = match which {
        t::TOPIC => Some(message.topic()),
        t::TAGS => property(name::TAGS),
        t::KEYS => property(name::KEYS),
        t::MESSAGE_ID => Some(match property(name::UNIQ_KEY) {
            Some(key) => key,
            None => message.message_id().write(&mut id),
        }),
        t::OFFSET_MESSAGE_ID => Some(message.message_id().write(&mut id)),
        t::BORN_HOST | t::STORE_HOST => {
            let host = if which == t::BORN_HOST {
                message.born_host()
            } else {
                message.store_host()
            };
            // Writing to a String does not fail.
            let _ = write!(address, "{host}");
            Some(address.as_str())
        }
        _ => return abi::UNKNOWN_SELECTOR,
    };
    value.map_or(abi::ABSENT, |value| {
        give(memory, out, capacity, value.as_bytes())
    })
}

fn body(memory: &mut [u8], host: &mut Host, from: i32, out: i32, length: i32) -> i32 {
    let Some(out) = slice_mut(memory, out, length) else {
        return abi::BAD_POINTER;
    };
    let Ok(from) = usize::try_from(from) else {
        return abi::BAD_POINTER;
    };
    let Some(body) = host.plain_body() else {
        return abi::BODY_NOT_DECODABLE;
    };
    let rest = body.get(from..).unwrap_or_default();
    let copied = rest.len().min(out.len());
    if let (Some(out), Some(rest)) = (out.get_mut(..copied), rest.get(..copied)) {
        out.copy_from_slice(rest);
    }
    copied as i32
}

fn log(memory: &[u8], host: &Host, level: i32, at: i32, length: i32) {
    let Some(bytes) = slice(memory, at, length) else {
        return;
    };
    if !host.log_limit.allows() {
        return;
    }
    let bytes = bytes.get(..LOG_LINE).unwrap_or(bytes);
    let line = String::from_utf8_lossy(bytes);
    // Debug form: a guest cannot forge a second line or terminal commands.
    let (topic, group) = (&*host.context.topic, &*host.context.group);
    match level {
        ..=0 => tracing::error!(topic, group, "filter says {line:?}"),
        1 => tracing::warn!(topic, group, "filter says {line:?}"),
        2 => tracing::info!(topic, group, "filter says {line:?}"),
        _ => tracing::debug!(topic, group, "filter says {line:?}"),
    }
}

/// AssemblyScript's strings: UTF-16, their length in bytes in the word before them.
fn utf16(memory: &[u8], at: i32) -> Option<String> {
    let length = slice(memory, at.checked_sub(4)?, 4)?;
    let length = u32::from_le_bytes(length.try_into().ok()?).min(LOG_LINE as u32);
    let units = slice(memory, at, length as i32)?;
    let units = units
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    Some(
        char::decode_utf16(units)
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect(),
    )
}

fn abort(memory: &[u8], message: i32, file: i32, line: i32, column: i32) -> Aborted {
    let text = utf16(memory, message).unwrap_or_default();
    let file = utf16(memory, file).unwrap_or_default();
    Aborted(format!("{text} ({file}:{line}:{column})"))
}

/// Defines the host's functions.
pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let host = abi::HOST;
    linker.func_wrap(
        host,
        "property",
        |mut c: Guest<'_>, name: i32, length: i32, out: i32, cap: i32| {
            with(&mut c, |memory, host| {
                match property(memory, host, name, length) {
                    Ok(value) => give(memory, out, cap, value),
                    Err(code) => code,
                }
            })
        },
    )?;
    linker.func_wrap(
        host,
        "property_i64",
        |mut c: Guest<'_>, name: i32, length: i32, out: i32| {
            with(&mut c, |memory, host| {
                parsed_property::<i64>(memory, host, (name, length, out), i64::to_le_bytes)
            })
        },
    )?;
    linker.func_wrap(
        host,
        "property_f64",
        |mut c: Guest<'_>, name: i32, length: i32, out: i32| {
            with(&mut c, |memory, host| {
                parsed_property::<f64>(memory, host, (name, length, out), f64::to_le_bytes)
            })
        },
    )?;
    linker.func_wrap(host, "property_count", |mut c: Guest<'_>| {
        let properties = c.data_mut().properties();
        properties.map_or(0, |(text, index)| index.count(text) as i32)
    })?;
    linker.func_wrap(
        host,
        "property_name",
        |mut c: Guest<'_>, index: i32, out: i32, cap: i32| {
            with(&mut c, |memory, host| {
                let name = host.properties().and_then(|(text, properties)| {
                    properties.name(text, usize::try_from(index).ok()?)
                });
                name.map_or(abi::ABSENT, |name| give(memory, out, cap, name))
            })
        },
    )?;
    linker.func_wrap(
        host,
        "text",
        |mut c: Guest<'_>, which: i32, out: i32, cap: i32| {
            with(&mut c, |memory, host| text(memory, host, which, out, cap))
        },
    )?;
    linker.func_wrap(host, "number", |mut c: Guest<'_>, which: i32, out: i32| {
        with(&mut c, |memory, host| match host.number(which) {
            Ok(value) => give_number(memory, out, value.to_le_bytes()),
            Err(code) => code,
        })
    })?;
    linker.func_wrap(
        host,
        "body",
        |mut c: Guest<'_>, from: i32, out: i32, length: i32| {
            with(&mut c, |memory, host| body(memory, host, from, out, length))
        },
    )?;
    linker.func_wrap(
        host,
        "log",
        |mut c: Guest<'_>, level: i32, at: i32, length: i32| {
            if let Some((memory, host)) = split(&mut c) {
                log(memory, host, level, at, length);
            }
        },
    )?;
    let (module, name) = abi::ABORT;
    linker.func_wrap(
        module,
        name,
        |mut c: Guest<'_>,
         message: i32,
         file: i32,
         line: i32,
         column: i32|
         -> wasmtime::Result<()> {
            let aborted = match split(&mut c) {
                Some((memory, _)) => abort(memory, message, file, line, column),
                None => Aborted(String::new()),
            };
            Err(wasmtime::Error::new(aborted))
        },
    )?;
    Ok(())
}
