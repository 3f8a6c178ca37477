//! [`Command`]: one request or answer, and its encoders. The two header encodings are read in `json` and `binary`
//! and written in `write`.
//!
//! A command from the wire owns nothing but references to its frame; one that the program builds owns its fields.
//! Answers of the hot path skip it: [`encode_answer_head`] writes a typed header straight into the output buffer.

pub(crate) mod binary;
pub(crate) mod json;
mod json_text;
mod write;

pub use write::{EncodedFields, FieldName};

use bytes::{Bytes, BytesMut};

use crate::byte_str::ByteStr;
use crate::ext_fields::ExtFields;
use crate::header::{Header, HeaderError};
use crate::language::Language;
use crate::version;

/// Flag bit 0: an answer (wire spec 2.2).
pub const FLAG_RESPONSE: i32 = 1;
/// Flag bit 1: a request that wants no answer.
pub const FLAG_ONEWAY: i32 = 2;

/// Encoding of a header, named in each frame (wire spec 1.1). Answer in the encoding of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SerializeType {
    /// 0: a JSON object; what everybody sends by default.
    #[default]
    Json,
    /// 1: the compact binary form.
    Rocketmq,
}

impl SerializeType {
    /// From the top byte of the header word.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Json),
            1 => Some(Self::Rocketmq),
            _ => None,
        }
    }

    /// The top byte of the header word.
    pub fn byte(self) -> u8 {
        match self {
            Self::Json => 0,
            Self::Rocketmq => 1,
        }
    }

    /// `JSON` or `ROCKETMQ`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Rocketmq => "ROCKETMQ",
        }
    }

    /// The header word: this type and a header length below 2²⁴.
    pub fn header_word(self, header_len: u32) -> u32 {
        u32::from(self.byte()) << 24 | header_len & 0xFF_FFFF
    }
}

/// One request or answer (wire spec 2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Request code or result code ([`crate::code`]). 16 bits in a binary header.
    pub code: i32,
    /// Language of the sender.
    pub language: Language,
    /// Version of the sender ([`crate::version`]).
    pub version: i32,
    /// Correlation id: chosen by the requester, echoed in the answer. 0 until the transport sets it.
    pub opaque: i32,
    /// [`FLAG_RESPONSE`], [`FLAG_ONEWAY`].
    pub flag: i32,
    /// Reason for people; `None` and empty are the same in a binary header.
    pub remark: Option<ByteStr>,
    /// Header fields.
    pub ext: ExtFields,
    /// What follows the header; empty for none.
    pub body: Bytes,
    /// Encoding of the header it came in, or goes out in.
    pub serialize: SerializeType,
}

/// What an answer needs of its request, for answers given later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// To be echoed.
    pub opaque: i32,
    /// To be answered in.
    pub serialize: SerializeType,
    /// Whether no answer is wanted.
    pub oneway: bool,
}

impl Command {
    /// A request without fields: our language and version, JSON, opaque 0 (the transport sets it).
    pub fn request(code: i32) -> Self {
        Self {
            code,
            language: Language::SENT,
            version: version::CURRENT,
            ..Self::default()
        }
    }

    /// A request with the fields of `header`.
    pub fn request_with<'h>(code: i32, header: &impl Header<'h>) -> Self {
        Self::request(code).with_header(header)
    }

    /// An answer: opaque and encoding of the request, flag rebuilt.
    pub fn response_to(request: &Command, code: i32) -> Self {
        Self::response(request.id(), code)
    }

    /// An answer to the request of that id.
    pub fn response(id: RequestId, code: i32) -> Self {
        let mut response = Self::request(code);
        response.flag = FLAG_RESPONSE;
        response.opaque = id.opaque;
        response.serialize = id.serialize;
        response
    }

    /// Adds the fields of `header`.
    pub fn with_header<'h>(mut self, header: &impl Header<'h>) -> Self {
        header.write(&mut self.ext);
        self
    }

    /// Adds one ext field.
    pub fn with_ext(mut self, key: &str, value: &str) -> Self {
        self.ext.push(key, value);
        self
    }

    /// Sets the body.
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the remark.
    pub fn with_remark(mut self, remark: impl AsRef<str>) -> Self {
        self.remark = Some(ByteStr::from(remark.as_ref()));
        self
    }

    /// Sets the encoding of the header.
    pub fn with_serialize(mut self, serialize: SerializeType) -> Self {
        self.serialize = serialize;
        self
    }

    /// What an answer to this request needs.
    pub fn id(&self) -> RequestId {
        RequestId {
            opaque: self.opaque,
            serialize: self.serialize,
            oneway: self.is_oneway(),
        }
    }

    /// Whether this is an answer.
    pub fn is_response(&self) -> bool {
        self.flag & FLAG_RESPONSE != 0
    }

    /// Whether no answer is wanted.
    pub fn is_oneway(&self) -> bool {
        self.flag & FLAG_ONEWAY != 0
    }

    /// Says that no answer is wanted.
    pub fn mark_oneway(&mut self) {
        self.flag |= FLAG_ONEWAY;
    }

    /// The remark, or an empty text.
    pub fn remark(&self) -> &str {
        self.remark.as_deref().unwrap_or_default()
    }

    /// The fields as a typed header, in one pass. The error's text is the remark of the answer.
    pub fn header<'a, H: Header<'a>>(&'a self) -> Result<H, HeaderError> {
        H::decode(&self.ext)
    }

    /// Appends the whole frame.
    pub fn encode(&self, out: &mut BytesMut) {
        self.encode_head(out);
        out.extend_from_slice(&self.body);
    }

    /// Appends length word, header word and header; the length word counts [`Command::body`], which is not appended.
    ///
    /// A header over 16 MiB, or a key over 32 767 bytes in a binary header, cannot be sent: then the fields are left out
    /// and the remark says so (an answer's code becomes 1). The length of the whole frame is for the sender to check.
    pub fn encode_head(&self, out: &mut BytesMut) {
        self.encode_head_for(out, self.body.len());
    }

    /// As [`encode_head`](Self::encode_head) for a body of `body_len` bytes kept elsewhere.
    pub fn encode_head_for(&self, out: &mut BytesMut, body_len: usize) {
        let head = write::Head {
            serialize: self.serialize,
            code: self.code,
            language: self.language,
            version: self.version,
            opaque: self.opaque,
            flag: self.flag,
            remark: self.remark.as_deref(),
            body_len,
        };
        write::head_with_ext(out, &head, &self.ext);
    }

    /// The whole frame in a buffer of its own.
    pub fn to_frame(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(256 + self.body.len());
        self.encode(&mut out);
        out.freeze()
    }
}

/// Appends length word, header word and header of an answer without building a [`Command`]; `body_len` bytes must
/// follow. Allocates nothing but the growth of `out`. For an answer without fields give `None::<&NoHeader>`.
pub fn encode_answer_head<'h>(
    out: &mut BytesMut,
    serialize: SerializeType,
    opaque: i32,
    code: i32,
    remark: Option<&str>,
    header: Option<&impl Header<'h>>,
    body_len: usize,
) {
    let head = write::Head {
        serialize,
        code,
        language: Language::SENT,
        version: version::CURRENT,
        opaque,
        flag: FLAG_RESPONSE,
        remark,
        body_len,
    };
    write::head_with_header(out, &head, header);
}

/// As [`encode_answer_head`] for a request that wants an answer.
pub fn encode_request_head<'h>(
    out: &mut BytesMut,
    serialize: SerializeType,
    code: i32,
    opaque: i32,
    header: &impl Header<'h>,
    body_len: usize,
) {
    let head = write::Head {
        serialize,
        code,
        language: Language::SENT,
        version: version::CURRENT,
        opaque,
        flag: 0,
        remark: None,
        body_len,
    };
    write::head_with_header(out, &head, Some(header));
}
