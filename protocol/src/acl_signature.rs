//! Signatures of requests (wire spec 8): made by clients, verified by brokers. Permissions and accounts are elsewhere.
//!
//! Signed are the values of all ext fields but `Signature`, sorted by key, and the body; not code, opaque, flag, remark.

use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha1::Sha1;
use smallvec::SmallVec;

/// Ext field with the name of the account.
pub const ACCESS_KEY: &str = "AccessKey";
/// Ext field with the signature.
pub const SIGNATURE: &str = "Signature";
/// Ext field with the token of a temporary account; optional.
pub const SECURITY_TOKEN: &str = "SecurityToken";
/// Ext field that clients up to 4.9.3 add after signing.
pub const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";

/// Bytes of a signature before Base64.
const SIGNATURE_LEN: usize = 20;

/// Fields of one request, sorted; no request of the protocol has more than this without allocating.
type Sorted<'a> = SmallVec<[(&'a str, &'a str); 24]>;

/// The bytes that are signed.
#[must_use]
pub fn content<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>, body: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    for (_, value) in sorted(fields) {
        content.extend_from_slice(value.as_bytes());
    }
    content.extend_from_slice(body);
    content
}

/// An account's secret, ready to sign with.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha1>);

impl SigningKey {
    /// Prepares a secret.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self(Hmac::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length"))
    }

    /// The value of `Signature` for a request with these ext fields, `AccessKey` among them. A `Signature` is left out.
    #[must_use]
    pub fn sign<'a>(
        &self,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
        body: &[u8],
    ) -> String {
        STANDARD.encode(
            self.mac(&sorted(fields), None, body)
                .finalize()
                .into_bytes(),
        )
    }

    /// Whether `signature` is that of a request with these ext fields, compared in constant time.
    ///
    /// Clients up to 4.9.3 do not sign `_UNIQUE_KEY_QUERY` and later ones do: both are accepted.
    #[must_use]
    pub fn verify<'a>(
        &self,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
        body: &[u8],
        signature: &str,
    ) -> bool {
        let mut decoded = [0; SIGNATURE_LEN + 4];
        let Ok(len) = STANDARD.decode_slice(signature, &mut decoded) else {
            return false;
        };
        let decoded = decoded.get(..len).unwrap_or_default();
        let fields = sorted(fields);
        if self.mac(&fields, None, body).verify_slice(decoded).is_ok() {
            return true;
        }
        fields.iter().any(|(name, _)| *name == UNIQUE_KEY_QUERY)
            && self
                .mac(&fields, Some(UNIQUE_KEY_QUERY), body)
                .verify_slice(decoded)
                .is_ok()
    }

    fn mac(&self, fields: &Sorted<'_>, left_out: Option<&str>, body: &[u8]) -> Hmac<Sha1> {
        let mut mac = self.0.clone();
        for (name, value) in fields {
            if Some(*name) != left_out {
                mac.update(value.as_bytes());
            }
        }
        mac.update(body);
        mac
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SigningKey(secret)")
    }
}

/// [`SigningKey::sign`] for a single use.
#[must_use]
pub fn sign<'a>(
    secret: &str,
    fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    body: &[u8],
) -> String {
    SigningKey::new(secret).sign(fields, body)
}

/// [`SigningKey::verify`] for a single use.
#[must_use]
pub fn verify<'a>(
    secret: &str,
    fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    body: &[u8],
    signature: &str,
) -> bool {
    SigningKey::new(secret).verify(fields, body, signature)
}

/// The fields that are signed, in Java's order; of a doubled field the last.
fn sorted<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Sorted<'a> {
    let mut sorted: Sorted<'a> = fields
        .into_iter()
        .filter(|(name, _)| *name != SIGNATURE)
        .collect();
    // Stable, so that the last of equal names stays behind the others.
    sorted.sort_by(|(left, _), (right, _)| java_order(left, right));
    sorted.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 = later.1;
        }
        same
    });
    sorted
}

/// Java compares UTF-16 code units, which differs from the order of bytes for characters beyond U+FFFF.
fn java_order(left: &str, right: &str) -> Ordering {
    if left.is_ascii() || right.is_ascii() {
        return left.as_bytes().cmp(right.as_bytes());
    }
    left.encode_utf16().cmp(right.encode_utf16())
}
