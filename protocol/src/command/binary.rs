//! Reader of the ROCKETMQ binary header (wire spec 1.3).

use bytes::{Buf, Bytes};

use super::{Command, SerializeType};
use crate::byte_str::ByteStr;
use crate::ext_fields::{ExtFields, Span};
use crate::frame::FrameError;
use crate::language::Language;

/// Everything but remark and ext fields.
const FIXED_LEN: usize = 21;

/// Reads a whole header into a command that holds nothing yet. Bytes behind the ext fields are
/// ignored: the body is placed by the header length.
pub(crate) fn read(head: Bytes, command: &mut Command) -> Result<(), FrameError> {
    if head.len() < FIXED_LEN {
        return Err(FrameError::Binary {
            at: head.len(),
            what: "shorter than 21 bytes",
        });
    }
    let mut fixed = &head[..];
    command.code = i32::from(fixed.get_i16());
    command.language = Language::from_code(fixed.get_u8());
    command.version = i32::from(fixed.get_i16());
    command.opaque = fixed.get_i32();
    command.flag = fixed.get_i32();
    command.serialize = SerializeType::Rocketmq;

    let mut reader = Reader {
        head: &head,
        at: head.len() - fixed.len(),
        end: head.len(),
    };
    let remark = reader.sized_i32("remark longer than the header")?;
    if !remark.is_empty() {
        let bytes = head.slice(remark.range());
        command.remark =
            Some(ByteStr::try_from(bytes).unwrap_or_else(|_| lossy(&head[remark.range()]).into()));
    }

    let block = reader
        .sized_i32("ext fields longer than the header")?
        .range();
    if block.is_empty() {
        return Ok(());
    }
    let all_ascii = head[block.clone()].is_ascii();
    let mut reader = Reader {
        head: &head,
        at: block.start,
        end: block.end,
    };
    let ext = &mut command.ext;
    ext.read_from_binary();
    while reader.at < reader.end {
        let at = reader.at;
        let key = reader.sized_i16("key longer than the ext fields")?;
        let value = reader.sized_i32("value longer than the ext fields")?;
        let (key, value) = if all_ascii {
            (key, value)
        } else {
            (checked(&head, ext, key), checked(&head, ext, value))
        };
        if !ext.push_spans(key, value) {
            return Err(FrameError::Binary {
                at,
                what: "too many ext fields",
            });
        }
    }
    ext.attach(head);
    Ok(())
}

struct Reader<'a> {
    head: &'a [u8],
    at: usize,
    end: usize,
}

impl Reader<'_> {
    /// Text behind an i16 length.
    fn sized_i16(&mut self, what: &'static str) -> Result<Span, FrameError> {
        let word = self
            .rest()
            .first_chunk::<2>()
            .map(|word| i16::from_be_bytes(*word));
        self.sized(2, word.map(i32::from), what)
    }

    /// Text behind an i32 length.
    fn sized_i32(&mut self, what: &'static str) -> Result<Span, FrameError> {
        let word = self
            .rest()
            .first_chunk::<4>()
            .map(|word| i32::from_be_bytes(*word));
        self.sized(4, word, what)
    }

    fn sized(
        &mut self,
        word_len: usize,
        len: Option<i32>,
        what: &'static str,
    ) -> Result<Span, FrameError> {
        let error = FrameError::Binary { at: self.at, what };
        let Some(len) = len.and_then(|len| usize::try_from(len).ok()) else {
            return Err(error);
        };
        let start = self.at + word_len;
        if len > self.end - start {
            return Err(error);
        }
        self.at = start + len;
        Ok(Span::in_head(start..self.at))
    }

    fn rest(&self) -> &[u8] {
        self.head.get(self.at..self.end).unwrap_or_default()
    }
}

/// Invalid UTF-8 is replaced as Java replaces it, outside the frame.
fn checked(head: &[u8], ext: &mut ExtFields, span: Span) -> Span {
    let bytes = &head[span.range()];
    if std::str::from_utf8(bytes).is_ok() {
        return span;
    }
    let text = lossy(bytes);
    ext.store(|arena| arena.push_str(&text))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
