//! The id that a broker gives a stored message (wire spec 7.6). The producer's own is in [`crate::unique_key`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use crate::hex;

/// Characters of the longest id (either kind, IPv6).
pub const MAX_ID_LEN: usize = 56;

/// The id that a broker gives: its own address and the position of the record in its commit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OffsetId {
    /// The store host, as clients reach the broker.
    pub host: SocketAddr,
    /// Commit-log offset of the record, in bytes.
    pub physical_offset: i64,
}

/// Why a text is no offset id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageIdError {
    /// Neither 32 (IPv4) nor 56 (IPv6) characters.
    #[error("message id \"{id}\" has {} characters: an offset id has 32 (IPv4) or 56 (IPv6)", id.chars().count())]
    Length {
        /// The text.
        id: String,
    },
    /// A character that is no hexadecimal digit.
    #[error("message id \"{id}\" holds a character that is no hexadecimal digit")]
    Digit {
        /// The text.
        id: String,
    },
    /// The port is outside 0 to 65535: the id is no offset id, perhaps a unique key.
    #[error("message id \"{id}\" has port {port}, outside 0 to 65535: it is no offset id")]
    Port {
        /// The text.
        id: String,
        /// The value at the port's place.
        port: i32,
    },
}

impl OffsetId {
    /// Writes the id into `buffer` and returns it, without allocating.
    pub fn write<'a>(&self, buffer: &'a mut [u8; MAX_ID_LEN]) -> &'a str {
        let (bytes, len) = self.bytes();
        hex::write(bytes.get(..len).unwrap_or_default(), buffer).unwrap_or_default()
    }

    fn bytes(&self) -> ([u8; MAX_ID_LEN / 2], usize) {
        let mut bytes = [0; MAX_ID_LEN / 2];
        let address_len = match self.host.ip() {
            IpAddr::V4(ip) => {
                bytes[..4].copy_from_slice(&ip.octets());
                4
            }
            IpAddr::V6(ip) => {
                bytes[..16].copy_from_slice(&ip.octets());
                16
            }
        };
        bytes[address_len..address_len + 4]
            .copy_from_slice(&u32::from(self.host.port()).to_be_bytes());
        bytes[address_len + 4..address_len + 12]
            .copy_from_slice(&self.physical_offset.to_be_bytes());
        (bytes, address_len + 12)
    }
}

impl fmt::Display for OffsetId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.write(&mut [0; MAX_ID_LEN]))
    }
}

impl FromStr for OffsetId {
    type Err = MessageIdError;

    fn from_str(id: &str) -> Result<Self, MessageIdError> {
        let digit = || MessageIdError::Digit { id: id.to_owned() };
        let (ip, rest) = match id.len() {
            32 => {
                let mut bytes = [0; 16];
                hex::decode_into(id, &mut bytes).ok_or_else(digit)?;
                let [a, b, c, d, rest @ ..] = bytes;
                (IpAddr::V4(Ipv4Addr::new(a, b, c, d)), rest)
            }
            56 => {
                let mut bytes = [0; 28];
                hex::decode_into(id, &mut bytes).ok_or_else(digit)?;
                let (mut ip, mut rest) = ([0; 16], [0; 12]);
                ip.copy_from_slice(&bytes[..16]);
                rest.copy_from_slice(&bytes[16..]);
                (IpAddr::V6(Ipv6Addr::from(ip)), rest)
            }
            _ => return Err(MessageIdError::Length { id: id.to_owned() }),
        };
        let [p0, p1, p2, p3, offset @ ..] = rest;
        let port = i32::from_be_bytes([p0, p1, p2, p3]);
        let port = u16::try_from(port).map_err(|_| MessageIdError::Port {
            id: id.to_owned(),
            port,
        })?;
        Ok(Self {
            host: SocketAddr::new(ip, port),
            physical_offset: i64::from_be_bytes(offset),
        })
    }
}
