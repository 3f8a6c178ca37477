//! ABI 1 between the host and a filter module: names, selectors and error codes. A selector may be
//! added within ABI 1; a new import needs a new marker.

/// A module exports this function to say which ABI it was made for; it is never called.
pub const MARKER: &str = "minimq_filter_abi_1";
/// The export called for each message: `() -> i32`, 1 keep, 0 drop, negative the guest's own error.
pub const FILTER: &str = "filter";
/// The optional export called once for each instance: `() -> i32`, negative refuses to start.
pub const INIT: &str = "init";
/// The memory's export name.
pub const MEMORY: &str = "memory";
/// Module name of the host's functions.
pub const HOST: &str = "minimq";
/// AssemblyScript's abort: `env.abort(message, file, line, column)`.
pub const ABORT: (&str, &str) = ("env", "abort");

/// The host's functions with the number of their `i32` parameters and whether they answer an `i32`.
pub const FUNCTIONS: [(&str, usize, bool); 9] = [
    ("property", 4, true),
    ("property_i64", 3, true),
    ("property_f64", 3, true),
    ("property_count", 0, true),
    ("property_name", 3, true),
    ("text", 3, true),
    ("number", 2, true),
    ("body", 3, true),
    ("log", 3, false),
];

/// The property or text is absent.
pub const ABSENT: i32 = -1;
/// A pointer or length lies outside the guest's memory, or a name is no UTF-8.
pub const BAD_POINTER: i32 = -2;
/// The property's text is not a number of the asked kind.
pub const NOT_A_NUMBER: i32 = -3;
/// The selector is not known.
pub const UNKNOWN_SELECTOR: i32 = -4;
/// The body is compressed and does not decode, or is too large when it does.
pub const BODY_NOT_DECODABLE: i32 = -5;

/// Selectors of `text`.
pub mod text {
    /// The message's topic.
    pub const TOPIC: i32 = 0;
    /// The consumer group that the filter serves.
    pub const GROUP: i32 = 1;
    /// Property `TAGS`.
    pub const TAGS: i32 = 2;
    /// Property `KEYS`.
    pub const KEYS: i32 = 3;
    /// The unique key if there is one, else the offset id.
    pub const MESSAGE_ID: i32 = 4;
    /// `ip:port` of the producer.
    pub const BORN_HOST: i32 = 5;
    /// `ip:port` of the broker that stored it.
    pub const STORE_HOST: i32 = 6;
    /// The broker's id of the record.
    pub const OFFSET_MESSAGE_ID: i32 = 7;
    /// The class name the consumer subscribed with.
    pub const CLASS_NAME: i32 = 8;
}

/// Selectors of `number`.
pub mod number {
    /// Queue of the topic.
    pub const QUEUE_ID: i32 = 0;
    /// Position in the queue.
    pub const QUEUE_OFFSET: i32 = 1;
    /// Position in the commit log.
    pub const PHYSICAL_OFFSET: i32 = 2;
    /// ms since 1970.
    pub const BORN_MS: i32 = 3;
    /// ms since 1970.
    pub const STORED_MS: i32 = 4;
    /// The application's flag.
    pub const FLAG: i32 = 5;
    /// The flag word as stored.
    pub const SYS_FLAG: i32 = 6;
    /// Failed deliveries so far.
    pub const RECONSUME_TIMES: i32 = 7;
    /// Bytes of the body, decompressed.
    pub const BODY_LEN: i32 = 8;
    /// Bytes of the body as stored.
    pub const STORED_BODY_LEN: i32 = 9;
    /// Checksum of the stored body.
    pub const BODY_CRC: i32 = 10;
    /// Offset of the half message of a transaction.
    pub const PREPARED_OFFSET: i32 = 11;
    /// Bytes of the whole record.
    pub const RECORD_SIZE: i32 = 12;
}
