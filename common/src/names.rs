//! Addresses of name servers as users write them: `host:port;host:port` (wire spec 11), the
//! environment's `NAMESRV_ADDR`, and the HTTP address server. Nothing here opens a connection.

/// Environment variable with the name-server list.
pub const NAMESRV_ADDR: &str = "NAMESRV_ADDR";
/// Host of the address server unless configured.
pub const DEFAULT_ADDRESS_SERVER: &str = "jmenv.tbsite.net";
/// Sub-group of the address server unless configured.
pub const DEFAULT_ADDRESS_SUBGROUP: &str = "nsaddr";

/// A part of a name-server list that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{part}` in the name-server list `{list}` is not host:port (several are separated by `;`)"
)]
pub struct AddressError {
    /// The part that is wrong.
    pub part: String,
    /// The whole list.
    pub list: String,
}

/// Splits a name-server list; blank parts are skipped, order is kept, repeats are dropped. An IPv6
/// host stands in brackets.
///
/// # Errors
/// A part that is not `host:port` with a port of 1 to 65535.
pub fn parse_list(list: &str) -> Result<Vec<String>, AddressError> {
    let mut addresses: Vec<String> = Vec::new();
    for part in list
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        if !is_host_and_port(part) {
            return Err(AddressError {
                part: part.into(),
                list: list.into(),
            });
        }
        if !addresses.iter().any(|known| known == part) {
            addresses.push(part.into());
        }
    }
    Ok(addresses)
}

/// The list in the environment, if it is set and not blank.
#[must_use]
pub fn from_environment() -> Option<String> {
    std::env::var(NAMESRV_ADDR)
        .ok()
        .filter(|list| !list.trim().is_empty())
}

/// URL of the address server. The port 8080 is added unless `domain` holds one; a unit name adds
/// its suffix.
#[must_use]
pub fn address_server_url(domain: &str, subgroup: &str, unit: Option<&str>) -> String {
    let port = if domain.contains(':') { "" } else { ":8080" };
    let suffix = unit
        .map(|unit| format!("-{unit}?nofix=1"))
        .unwrap_or_default();
    format!("http://{domain}{port}/rocketmq/{subgroup}{suffix}")
}

/// The name-server list in an address server's answer: its first line.
///
/// # Errors
/// As [`parse_list`].
pub fn parse_address_server_answer(body: &str) -> Result<Vec<String>, AddressError> {
    parse_list(body.lines().next().unwrap_or_default())
}

fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let host_is_fine = match host.strip_prefix('[') {
        Some(rest) => rest
            .strip_suffix(']')
            .is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok()),
        None => {
            !host.is_empty()
                && !host.contains(|c: char| c.is_whitespace() || matches!(c, ':' | '/' | ','))
        }
    };
    host_is_fine
        && port.bytes().all(|b| b.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_trimmed_and_freed_of_repeats() {
        assert_eq!(parse_list("a:1; b.c:2;;a:1;").unwrap(), ["a:1", "b.c:2"]);
        assert_eq!(
            parse_list("[::1]:9876;10.0.0.1:9876").unwrap(),
            ["[::1]:9876", "10.0.0.1:9876"]
        );
        assert!(parse_list(" ; ").unwrap().is_empty());
    }

    #[test]
    fn parts_that_are_no_address_are_named() {
        for wrong in [
            "a",
            "a:",
            ":1",
            "a:0",
            "a:65536",
            "a:+1",
            "::1:9876",
            "a b:1",
            "http://a:1",
            "a:1,b:2",
            "[x]:1",
        ] {
            let list = format!("ok:1;{wrong}");
            assert_eq!(
                parse_list(&list).unwrap_err(),
                AddressError {
                    part: wrong.into(),
                    list
                },
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_address_server_s_url_and_answer() {
        assert_eq!(
            address_server_url(DEFAULT_ADDRESS_SERVER, DEFAULT_ADDRESS_SUBGROUP, None),
            "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"
        );
        assert_eq!(
            address_server_url("h:80", "g", Some("u1")),
            "http://h:80/rocketmq/g-u1?nofix=1"
        );
        assert_eq!(
            parse_address_server_answer("a:1;b:2\r\nsecond line").unwrap(),
            ["a:1", "b:2"]
        );
        assert!(parse_address_server_answer("").unwrap().is_empty());
    }
}
