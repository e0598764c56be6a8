//! Validation of provider addresses before anything is sent to them.

use std::fmt::Write as _;
use std::net::IpAddr;

/// Checks that secrets may be sent to `address`: HTTPS, or plain HTTP on this machine. `insecure` allows plain HTTP
/// elsewhere.
pub(super) fn check(address: &str, insecure: bool) -> Result<(), String> {
    let (scheme, rest) = address
        .split_once("://")
        .ok_or("`base_url` must begin with https://")?;
    let plain = match scheme {
        "https" => false,
        "http" => true,
        _ => return Err("`base_url` must begin with https://".to_owned()),
    };
    if address.chars().any(|c| !c.is_ascii_graphic()) {
        return Err("`base_url` holds a blank or a character beyond ASCII".to_owned());
    }
    if address.contains(['?', '#', '{', '}', '\\']) {
        return Err("`base_url` holds no query, no fragment and no placeholder".to_owned());
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err("`base_url` holds a user name; give secrets in `auth`".to_owned());
    }
    let host = host(authority).ok_or("`base_url` names no host")?;
    if plain && !insecure && !is_loopback(host) {
        return Err(format!(
            "`base_url` goes to `{host}` by plain HTTP; use https://, or say `insecure: true` in a file of your own space"
        ));
    }
    Ok(())
}

/// Returns the host of an authority, without its port.
fn host(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (
                host,
                after
                    .strip_prefix(':')
                    .or(after.is_empty().then_some("1"))?,
            )
        }
        None => authority.split_once(':').unwrap_or((authority, "1")),
    };
    (!host.is_empty() && port.parse::<u16>().is_ok()).then_some(host)
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Percent-encodes `text` as one segment of a path.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_require_https() {
        for (address, insecure, told) in [
            ("https://api.example.com", false, None),
            ("https://api.example.com:8443/v1", false, None),
            ("http://localhost:11434", false, None),
            ("http://127.0.0.1:1", false, None),
            ("http://[::1]:8080/x", false, None),
            ("http://10.0.0.1", true, None),
            ("http://10.0.0.1", false, Some("plain HTTP")),
            ("http://localhost.example.com", false, Some("plain HTTP")),
            ("http://127.0.0.1@evil.example", false, Some("user name")),
            ("ftp://a", false, Some("https://")),
            ("api.example.com", false, Some("https://")),
            ("https://", false, Some("no host")),
            ("https://:443", false, Some("no host")),
            ("https://a:b", false, Some("no host")),
            ("https://[::1", false, Some("no host")),
            ("https://[::1]x", false, Some("no host")),
            ("https://a b", false, Some("blank")),
            ("https://a?x=1", false, Some("no query")),
            ("https://a\\@b", false, Some("no query")),
        ] {
            let checked = check(address, insecure);
            match told {
                None => assert_eq!(checked, Ok(()), "{address}"),
                Some(told) => assert!(checked.unwrap_err().contains(told), "{address}"),
            }
        }
    }

    #[test]
    fn model_is_encoded_as_one_segment() {
        assert_eq!(encode("a-b_c.1~"), "a-b_c.1~");
        assert_eq!(encode("a/b?c%é"), "a%2Fb%3Fc%25%C3%A9");
    }
}
