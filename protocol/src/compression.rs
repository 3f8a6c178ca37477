//! Compression of message bodies (wire spec 7.7): by the producer, undone by the consumer, untouched by the broker.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::str::FromStr;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::message::MessageView;
use crate::sys_flag;

/// Body size in bytes from which clients compress by default.
pub const DEFAULT_THRESHOLD: usize = 4096;
/// Level that clients compress with by default.
pub const DEFAULT_LEVEL: i32 = 5;

/// Zstandard windows up to 8 MiB are accepted even if the body may not be that long: a stream compressor writes the window
/// of its level, whatever the body.
const MIN_ZSTD_WINDOW_LOG: u32 = 23;
const MAX_ZSTD_WINDOW_LOG: u32 = 27;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionType {
    /// LZ4 frame format; 4.9.4 and later.
    Lz4,
    /// Zstandard; 4.9.4 and later.
    Zstd,
    /// RFC 1950: what every client reads.
    #[default]
    Zlib,
}

/// Why a body cannot be compressed or decompressed.
#[derive(Debug, thiserror::Error)]
pub enum CompressionError {
    /// Bits of the flag word that mean nothing. The text is RocketMQ's.
    #[error("Unknown compress type value: {value}")]
    UnknownValue {
        /// The three bits.
        value: i32,
    },
    /// A name that is not LZ4, ZSTD or ZLIB. The text is RocketMQ's.
    #[error("Unsupported compress type name: {name}")]
    UnknownName {
        /// The name.
        name: String,
    },
    /// The body would be larger than what the caller takes.
    #[error("the body inflates to more than the {limit} bytes allowed")]
    TooLarge {
        /// The caller's limit in bytes.
        limit: usize,
    },
    /// The body is not what its flag word says, or is cut.
    #[error("the body of {len} bytes is no whole {kind:?} data: {reason}")]
    Broken {
        /// What the flag word says.
        kind: CompressionType,
        /// Bytes of the compressed body.
        len: usize,
        /// What the decompressor says.
        reason: String,
    },
    /// Compression failed.
    #[error("a body of {len} bytes cannot be compressed as {kind:?}: {reason}")]
    Compress {
        /// The kind wanted.
        kind: CompressionType,
        /// Bytes of the plain body.
        len: usize,
        /// What the compressor says.
        reason: String,
    },
}

impl CompressionType {
    /// The kind that a message's flag word tells; 0 there means zlib, written before kinds existed.
    pub fn of_sys_flag(flag: i32) -> Result<Self, CompressionError> {
        match (flag & sys_flag::message::COMPRESSION_MASK) >> 8 {
            0 | 3 => Ok(Self::Zlib),
            1 => Ok(Self::Lz4),
            2 => Ok(Self::Zstd),
            value => Err(CompressionError::UnknownValue { value }),
        }
    }

    /// Number of the kind.
    #[must_use]
    pub fn value(self) -> i32 {
        match self {
            Self::Lz4 => 1,
            Self::Zstd => 2,
            Self::Zlib => 3,
        }
    }

    /// Bits of the flag word that tell the kind, without the one that says "compressed".
    #[must_use]
    pub fn sys_flag(self) -> i32 {
        self.value() << 8
    }

    /// Name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "LZ4",
            Self::Zstd => "ZSTD",
            Self::Zlib => "ZLIB",
        }
    }

    /// Compresses a body. Level 1 (fast) to 9 (small); LZ4 has no levels here.
    pub fn compress(self, body: &[u8], level: i32) -> Result<Vec<u8>, CompressionError> {
        let failed = |reason: String| CompressionError::Compress {
            kind: self,
            len: body.len(),
            reason,
        };
        match self {
            Self::Zlib => deflate(body, level).map_err(|error| failed(error.to_string())),
            Self::Zstd => {
                zstd::stream::encode_all(body, level).map_err(|error| failed(error.to_string()))
            }
            Self::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder
                    .write_all(body)
                    .map_err(|error| failed(error.to_string()))?;
                encoder.finish().map_err(|error| failed(error.to_string()))
            }
        }
    }

    /// Decompresses a body that may grow to at most `limit` bytes.
    pub fn decompress(self, body: &[u8], limit: usize) -> Result<Vec<u8>, CompressionError> {
        let broken = |reason: String| CompressionError::Broken {
            kind: self,
            len: body.len(),
            reason,
        };
        let plain = match self {
            Self::Zlib => inflate(body, limit).map_err(|reason| broken(reason.to_owned()))?,
            Self::Lz4 => {
                let mut decoder = lz4_flex::frame::FrameDecoder::new(Source {
                    rest: body,
                    starved: false,
                });
                let plain = read_limited(&mut decoder, body.len(), limit)
                    .map_err(|error| broken(error.to_string()))?;
                // The decoder takes a frame without its end mark for a whole one.
                if decoder.get_ref().starved {
                    return Err(broken("it ends too early".to_owned()));
                }
                plain
            }
            Self::Zstd => {
                let window = usize::BITS - limit.saturating_sub(1).leading_zeros();
                let mut decoder = zstd::stream::read::Decoder::with_buffer(body)
                    .map_err(|error| broken(error.to_string()))?;
                decoder
                    .window_log_max(window.clamp(MIN_ZSTD_WINDOW_LOG, MAX_ZSTD_WINDOW_LOG))
                    .map_err(|error| broken(error.to_string()))?;
                read_limited(decoder, body.len(), limit)
                    .map_err(|error| broken(error.to_string()))?
            }
        };
        if plain.len() > limit {
            return Err(CompressionError::TooLarge { limit });
        }
        Ok(plain)
    }
}

impl FromStr for CompressionType {
    type Err = CompressionError;

    /// Reads a name, in any case and with white space around it.
    fn from_str(name: &str) -> Result<Self, CompressionError> {
        [Self::Lz4, Self::Zstd, Self::Zlib]
            .into_iter()
            .find(|kind| name.trim().eq_ignore_ascii_case(kind.name()))
            .ok_or_else(|| CompressionError::UnknownName {
                name: name.to_owned(),
            })
    }
}

impl<B: AsRef<[u8]>> MessageView<B> {
    /// The body as the producer gave it: decompressed if the flag word says that it is compressed, to at most `limit` bytes.
    pub fn plain_body(&self, limit: usize) -> Result<Cow<'_, [u8]>, CompressionError> {
        let flag = self.sys_flag();
        if !sys_flag::message::is_compressed(flag) {
            return Ok(self.body().into());
        }
        CompressionType::of_sys_flag(flag)?
            .decompress(self.body(), limit)
            .map(Cow::Owned)
    }
}

/// The compressed bytes, which notices when more are asked for than there are.
struct Source<'a> {
    rest: &'a [u8],
    starved: bool,
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.starved |= self.rest.len() < buffer.len();
        self.rest.read(buffer)
    }
}

/// At most one byte more than `limit`, so that the caller sees whether there was more.
fn read_limited(
    decoder: impl Read,
    compressed_len: usize,
    limit: usize,
) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::with_capacity(first_capacity(compressed_len, limit));
    decoder.take(limit as u64 + 1).read_to_end(&mut plain)?;
    Ok(plain)
}

fn deflate(body: &[u8], level: i32) -> Result<Vec<u8>, flate2::CompressError> {
    let level = Compression::new(u32::try_from(level.clamp(0, 9)).unwrap_or(5));
    let mut compressor = Compress::new(level, true);
    // Data that does not shrink grows by a few bytes a block.
    let mut out = Vec::with_capacity(body.len() / 2 + 64);
    loop {
        let rest = body.get(taken(compressor.total_in())..).unwrap_or_default();
        if compressor.compress_vec(rest, &mut out, FlushCompress::Finish)? == Status::StreamEnd {
            return Ok(out);
        }
        out.reserve(body.len() / 2 + 64);
    }
}

/// At most one byte more than `limit`. Unlike a reader over the stream this tells a cut stream from a whole one.
fn inflate(body: &[u8], limit: usize) -> Result<Vec<u8>, &'static str> {
    let most = limit.saturating_add(1);
    let mut inflater = Decompress::new(true);
    let mut out = Vec::with_capacity(first_capacity(body.len(), limit));
    loop {
        let rest = body.get(taken(inflater.total_in())..).unwrap_or_default();
        let status = inflater
            .decompress_vec(rest, &mut out, FlushDecompress::None)
            .map_err(|_| "corrupt data")?;
        if status == Status::StreamEnd || out.len() >= most {
            out.truncate(most);
            return Ok(out);
        }
        if out.len() < out.capacity() {
            return Err("it ends too early");
        }
        out.reserve_exact(out.len().min(most - out.len()));
    }
}

/// A guess at the size of a plain body that a small bomb cannot drive far.
fn first_capacity(compressed_len: usize, limit: usize) -> usize {
    compressed_len
        .saturating_mul(4)
        .clamp(4096, 64 * 1024)
        .min(limit.saturating_add(1))
}

fn taken(total: u64) -> usize {
    usize::try_from(total).unwrap_or(usize::MAX)
}
