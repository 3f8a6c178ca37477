//! Writers of both header encodings. JSON is what the Java peer would write: members in alphabetical order, every ext
//! value a string; `serializeTypeCurrentRPC`, which nobody reads, is left out.

use bytes::{BufMut, BytesMut};

use super::{FLAG_RESPONSE, SerializeType};
use crate::code::response::SYSTEM_ERROR;
use crate::ext_fields::ExtFields;
use crate::frame::{MAX_HEADER_LEN, PREFIX_LEN};
use crate::header::{FieldSink, Header, NoHeader};
use crate::language::Language;

/// All of a header but its fields.
pub(super) struct Head<'a> {
    pub(super) serialize: SerializeType,
    pub(super) code: i32,
    pub(super) language: Language,
    pub(super) version: i32,
    pub(super) opaque: i32,
    pub(super) flag: i32,
    pub(super) remark: Option<&'a str>,
    pub(super) body_len: usize,
}

pub(super) fn head_with_header<'h>(
    out: &mut BytesMut,
    head: &Head<'_>,
    header: Option<&impl Header<'h>>,
) {
    let start = out.len();
    out.put_bytes(0, PREFIX_LEN);
    let fits = match head.serialize {
        SerializeType::Json => {
            json_before_fields(out, head);
            if let Some(header) = header {
                let mut sink = JsonSink::new(out);
                header.write(&mut sink);
                sink.close();
            }
            json_behind_fields(out, head)
        }
        SerializeType::Rocketmq => {
            let mut sink = BinarySink::open(out, head);
            if let Some(header) = header {
                header.write(&mut sink);
            }
            sink.close()
        }
    };
    finish(out, start, head, fits);
}

pub(super) fn head_with_ext(out: &mut BytesMut, head: &Head<'_>, ext: &ExtFields) {
    let start = out.len();
    out.put_bytes(0, PREFIX_LEN);
    let fits = match head.serialize {
        SerializeType::Json => {
            json_before_fields(out, head);
            if ext.is_present() && ext.is_empty() {
                out.put_slice(b",\"extFields\":{}");
            } else {
                let mut sink = JsonSink::new(out);
                ext.iter().for_each(|(key, value)| sink.put(key, value));
                sink.close();
            }
            json_behind_fields(out, head)
        }
        SerializeType::Rocketmq => {
            let mut sink = BinarySink::open(out, head);
            ext.iter().for_each(|(key, value)| sink.put(key, value));
            sink.close()
        }
    };
    finish(out, start, head, fits);
}

/// Writes length word and header word, or, for a header that cannot be sent, a small one that says so.
fn finish(out: &mut BytesMut, start: usize, head: &Head<'_>, fits: bool) {
    let header_len = out.len() - start - PREFIX_LEN;
    if !fits || header_len > MAX_HEADER_LEN {
        out.truncate(start);
        let code = if head.flag & FLAG_RESPONSE != 0 {
            SYSTEM_ERROR
        } else {
            head.code
        };
        let remark = format!(
            "a header of {header_len} bytes for code {} cannot be sent",
            head.code
        );
        return head_with_header(
            out,
            &Head {
                code,
                remark: Some(&remark),
                ..*head
            },
            None::<&NoHeader>,
        );
    }
    let length = 4 + header_len + head.body_len;
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let word = head.serialize.header_word(header_len as u32);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    out[start + 4..start + PREFIX_LEN].copy_from_slice(&word.to_be_bytes());
}

fn json_before_fields(out: &mut BytesMut, head: &Head<'_>) {
    out.put_slice(b"{\"code\":");
    put_int(out, head.code);
}

/// Always fits: JSON carries every number and text.
fn json_behind_fields(out: &mut BytesMut, head: &Head<'_>) -> bool {
    out.put_slice(b",\"flag\":");
    put_int(out, head.flag);
    out.put_slice(b",\"language\":\"");
    // Peers want a string, Go insists on one.
    out.put_slice(head.language.name().unwrap_or("OTHER").as_bytes());
    out.put_slice(b"\",\"opaque\":");
    put_int(out, head.opaque);
    if let Some(remark) = head.remark {
        out.put_slice(b",\"remark\":\"");
        put_escaped(out, remark);
        out.put_slice(b"\"");
    }
    out.put_slice(b",\"version\":");
    put_int(out, head.version);
    out.put_slice(b"}");
    true
}

fn put_int(out: &mut BytesMut, number: i32) {
    out.put_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// `extFields`. The quote behind a value is written with what comes next.
struct JsonSink<'o> {
    out: &'o mut BytesMut,
    /// What the first field begins with.
    opening: &'static [u8],
    fields: usize,
}

impl<'o> JsonSink<'o> {
    fn new(out: &'o mut BytesMut) -> Self {
        Self {
            out,
            opening: b",\"extFields\":{\"",
            fields: 0,
        }
    }

    fn begin_field(&mut self) {
        let before = match self.fields {
            0 => self.opening,
            _ => JSON_BETWEEN,
        };
        self.out.put_slice(before);
        self.fields += 1;
    }

    fn begin_named(&mut self, name: &FieldName) {
        if self.fields == 0 {
            self.begin_field();
            self.out.put_slice(&name.json[JSON_BETWEEN.len()..]);
        } else {
            self.out.put_slice(name.json);
        }
    }

    fn close(&mut self) {
        if self.fields > 0 {
            self.out.put_slice(b"\"}");
        }
    }
}

impl FieldSink for JsonSink<'_> {
    fn put(&mut self, key: &str, value: &str) {
        self.begin_field();
        put_escaped(self.out, key);
        self.out.put_slice(b"\":\"");
        put_escaped(self.out, value);
    }

    fn put_named(&mut self, name: &FieldName, value: &str) {
        self.begin_named(name);
        put_escaped(self.out, value);
    }

    fn put_plain(&mut self, name: &FieldName, value: &str) {
        self.begin_named(name);
        self.out.put_slice(value.as_bytes());
    }

    fn put_encoded(&mut self, fields: &EncodedFields) {
        if !fields.fields.is_empty() {
            self.begin_field();
            self.out.put_slice(&fields.json);
        }
    }
}

/// Between the values of two fields: the end of one string and the beginning of the next.
const JSON_BETWEEN: &[u8] = b"\",\"";

/// The wire name of a declared field, and how a field begins with it in both encodings.
#[derive(Debug)]
pub struct FieldName {
    pub(crate) text: &'static str,
    /// `","name":"`
    json: &'static [u8],
    /// The name behind its length.
    binary: &'static [u8],
}

impl FieldName {
    pub(crate) const fn new(
        text: &'static str,
        json: &'static [u8],
        binary: &'static [u8],
    ) -> Self {
        Self { text, json, binary }
    }
}

/// Fields in both encodings, for headers of which most is the same again and again. Fields are put into it as into any
/// other sink, and then it into others.
#[derive(Clone, Debug, Default)]
pub struct EncodedFields {
    fields: Vec<(String, String)>,
    json: BytesMut,
    binary: BytesMut,
    /// A field cannot be carried by a binary header.
    misfit: bool,
}

impl EncodedFields {
    /// Its fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.fields.iter();
        fields.map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl FieldSink for EncodedFields {
    fn put(&mut self, key: &str, value: &str) {
        let mut json = JsonSink {
            out: &mut self.json,
            opening: b"",
            fields: self.fields.len(),
        };
        json.put(key, value);
        let mut binary = BinarySink {
            out: &mut self.binary,
            block: 0,
            fits: true,
        };
        binary.put(key, value);
        self.misfit |= !binary.fits;
        self.fields.push((key.to_owned(), value.to_owned()));
    }
}

/// The inside of a JSON string. Only what JSON demands is escaped, and U+007F as Java does.
fn put_escaped(out: &mut BytesMut, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = first_escaped(rest) {
        out.put_slice(&rest[..at]);
        match rest[at] {
            b'"' => out.put_slice(b"\\\""),
            b'\\' => out.put_slice(b"\\\\"),
            b'\n' => out.put_slice(b"\\n"),
            b'\t' => out.put_slice(b"\\t"),
            b'\r' => out.put_slice(b"\\r"),
            byte => {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                let [high, low] = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                out.put_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            }
        }
        rest = &rest[at + 1..];
    }
    out.put_slice(rest);
}

/// Where the first byte is that must be escaped. Eight bytes at a time as long as there is none in them.
fn first_escaped(text: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let zero = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes;
    let is_clean = |eight: &[u8; 8]| {
        let eight = u64::from_ne_bytes(*eight);
        let below_blank = eight.wrapping_sub(ONES * 0x20) & !eight;
        let equal = |byte: u8| zero(eight ^ (ONES * u64::from(byte)));
        (below_blank | equal(b'"') | equal(b'\\') | equal(0x7F)) & HIGH == 0
    };
    let (eights, _) = text.as_chunks::<8>();
    let clean = 8 * eights.iter().take_while(|eight| is_clean(eight)).count();
    let must = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20 | 0x7F);
    Some(clean + text.get(clean..)?.iter().position(must)?)
}

/// The binary header with its length-counted block of fields.
struct BinarySink<'o> {
    out: &'o mut BytesMut,
    block: usize,
    fits: bool,
}

impl<'o> BinarySink<'o> {
    fn open(out: &'o mut BytesMut, head: &Head<'_>) -> Self {
        // Codes and versions have 16 bits here (wire spec 1.3).
        out.put_i16(head.code as i16);
        out.put_u8(head.language.code());
        out.put_i16(head.version as i16);
        out.put_i32(head.opaque);
        out.put_i32(head.flag);
        let remark = head.remark.unwrap_or_default();
        let fits = remark.len() <= MAX_HEADER_LEN;
        let remark = if fits { remark } else { "" };
        out.put_u32(remark.len() as u32);
        out.put_slice(remark.as_bytes());
        let block = out.len();
        out.put_u32(0);
        Self { out, block, fits }
    }

    /// Sets the block's length; false when a field could not be carried.
    fn close(self) -> bool {
        let len = self.out.len() - self.block - 4;
        self.out[self.block..self.block + 4].copy_from_slice(&(len as u32).to_be_bytes());
        self.fits && len <= MAX_HEADER_LEN
    }
}

impl FieldSink for BinarySink<'_> {
    fn put(&mut self, key: &str, value: &str) {
        match i16::try_from(key.len()) {
            Ok(len) if value.len() <= MAX_HEADER_LEN => {
                self.out.put_i16(len);
                self.out.put_slice(key.as_bytes());
                self.out.put_u32(value.len() as u32);
                self.out.put_slice(value.as_bytes());
            }
            _ => self.fits = false,
        }
    }

    fn put_named(&mut self, name: &FieldName, value: &str) {
        self.fits &= value.len() <= MAX_HEADER_LEN;
        if self.fits {
            self.out.put_slice(name.binary);
            self.out.put_u32(value.len() as u32);
            self.out.put_slice(value.as_bytes());
        }
    }

    fn put_encoded(&mut self, fields: &EncodedFields) {
        self.fits &= !fields.misfit;
        self.out.put_slice(&fields.binary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_to_escape_is_found_wherever_it_is() {
        for byte in 0..=255 {
            for len in 0..20 {
                let mut text = vec![b'a'; len];
                for at in 0..len {
                    text[at] = byte;
                    let must = byte < 0x20 || matches!(byte, b'"' | b'\\' | 0x7F);
                    assert_eq!(first_escaped(&text), must.then_some(at), "{byte} in {len}");
                    text[at] = b'a';
                }
                assert_eq!(first_escaped(&text), None);
            }
        }
    }
}
