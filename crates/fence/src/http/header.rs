//! Writes and reads the two headers.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Request};
use leasehold_core::{Fence, Name};

use super::Admission;

/// `Leasehold-Fence`: the fence, a decimal number from 1 to 2^53 - 1 without sign or leading zero.
pub const FENCE: HeaderName = HeaderName::from_static("leasehold-fence");

/// `Leasehold-Name`: the lock's name. Printable ASCII except `%` and `,` stands for itself; all
/// other characters are percent-encoded UTF-8 bytes.
pub const NAME: HeaderName = HeaderName::from_static("leasehold-name");

/// An invalid header of a request, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("header {header}: {why}")]
#[non_exhaustive]
pub struct MalformedHeader {
    /// The header's name, as documented.
    pub header: &'static str,
    /// What is wrong with it and what is allowed.
    pub why: String,
}

/// Adds the headers to a request and replaces existing ones.
///
/// ```
/// use leasehold_core::{Fence, Name};
/// use leasehold_fence::http::stamp;
///
/// let mut request = http::Request::put("/jobs/42").body(())?;
/// stamp(&mut request, &Name::new("job:42")?, Fence::new(7).unwrap());
/// assert_eq!(request.headers()["leasehold-name"], "job:42");
/// assert_eq!(request.headers()["leasehold-fence"], "7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn stamp<B>(request: &mut Request<B>, name: &Name, fence: Fence) {
    let headers = request.headers_mut();
    headers.insert(FENCE, HeaderValue::from(fence.get()));
    // Cannot fail: everything but printable ASCII has been encoded. If it did, the server would
    // refuse the request without a name.
    headers.remove(NAME);
    if let Ok(value) = HeaderValue::from_str(&encode(name.as_str())) {
        headers.insert(NAME, value);
    }
}

/// Reads the headers; `None` if there are neither.
///
/// # Errors
/// A header is missing, occurs twice, or is not well formed.
pub fn read(headers: &HeaderMap) -> Result<Option<Admission>, MalformedHeader> {
    let name = single_value(headers, &NAME, "Leasehold-Name")?;
    let fence = single_value(headers, &FENCE, "Leasehold-Fence")?;
    let (name, fence) = match (name, fence) {
        (None, None) => return Ok(None),
        (Some(name), Some(fence)) => (name, fence),
        // Refused even where fences are optional: half a pair is a bug in the client,
        // not a client without fences.
        (None, Some(_)) => return Err(missing_header("Leasehold-Name")),
        (Some(_), None) => return Err(missing_header("Leasehold-Fence")),
    };
    let malformed = |header| move |why| MalformedHeader { header, why };
    let name = decode(name)
        .and_then(|name| Name::new(&name).map_err(|invalid| invalid.to_string()))
        .map_err(malformed("Leasehold-Name"))?;
    let fence = fence
        .parse()
        .map_err(|invalid: leasehold_core::InvalidInput| invalid.to_string())
        .map_err(malformed("Leasehold-Fence"))?;
    Ok(Some(Admission { name, fence }))
}

/// Refuses a repeated header: each proxy and server could pick another one of its values.
fn single_value<'a>(
    headers: &'a HeaderMap,
    header: &HeaderName,
    shown: &'static str,
) -> Result<Option<&'a str>, MalformedHeader> {
    let refuse = |why: &str| Err(MalformedHeader { header: shown, why: why.into() });
    let mut values = headers.get_all(header).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return refuse("is there more than once; send it once");
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text)),
        Err(_) => refuse("is not UTF-8; percent-encode what is not ASCII"),
    }
}

fn missing_header(header: &'static str) -> MalformedHeader {
    MalformedHeader { header, why: "is missing; the two headers are sent together".into() }
}

/// A comma is encoded because proxies join repeated headers with it. So a plain comma
/// always means a joined header.
fn is_literal(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'%' | b',')
}

fn encode(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if is_literal(byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn decode(value: &str) -> Result<String, String> {
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = bytes.next().zip(bytes.next());
            let decoded = digits.and_then(|(high, low)| Some(16 * hex_digit(high)? + hex_digit(low)?));
            out.push(decoded.ok_or("has a `%` without two hexadecimal digits after it")?);
        } else if is_literal(byte) {
            out.push(byte);
        } else {
            return Err(format!(
                "contains {:?}; percent-encode commas and all that is not printable ASCII",
                char::from(byte)
            ));
        }
    }
    String::from_utf8(out).map_err(|_| "is not UTF-8 when percent-decoded".into())
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (header, value) in pairs {
            map.append(*header, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        map
    }

    #[test]
    fn both_or_neither() {
        assert_eq!(read(&headers(&[])), Ok(None));
        let wrong = |pairs: &[(&'static str, &str)]| read(&headers(pairs)).unwrap_err().header;
        assert_eq!(wrong(&[("leasehold-fence", "7")]), "Leasehold-Name");
        assert_eq!(wrong(&[("leasehold-name", "job:42")]), "Leasehold-Fence");
    }

    #[test]
    fn once_only() {
        let twice = [("leasehold-name", "a"), ("leasehold-fence", "7"), ("leasehold-fence", "7")];
        assert!(read(&headers(&twice)).unwrap_err().why.contains("more than once"));
        let joined = [("leasehold-name", "a, a"), ("leasehold-fence", "7")];
        assert_eq!(read(&headers(&joined)).unwrap_err().header, "Leasehold-Name");
        let joined = [("leasehold-name", "a"), ("leasehold-fence", "7, 7")];
        assert_eq!(read(&headers(&joined)).unwrap_err().header, "Leasehold-Fence");
    }

    #[test]
    fn nonstandard_numbers_and_bad_escapes_are_refused() {
        for fence in ["", "0", "-1", "+7", "07", "7.0", "0x7", " 7", "9007199254740992", "٧"] {
            let pairs = [("leasehold-name", "a"), ("leasehold-fence", fence)];
            assert_eq!(read(&headers(&pairs)).unwrap_err().header, "Leasehold-Fence", "{fence}");
        }
        for name in ["", "a b", "a%", "a%2", "a%zz", "a%+1", "%00", "%20", "%7B", "%ff", "ü", "a,b"] {
            let pairs = [("leasehold-name", name), ("leasehold-fence", "7")];
            assert_eq!(read(&headers(&pairs)).unwrap_err().header, "Leasehold-Name", "{name}");
        }
    }

    #[test]
    fn stamping_twice_leaves_one_pair() {
        let mut request = Request::new(());
        let name = Name::new("überweisung,50%").unwrap();
        stamp(&mut request, &Name::new("other").unwrap(), Fence::MIN);
        stamp(&mut request, &name, Fence::MAX);
        assert_eq!(request.headers()[NAME], "%C3%BCberweisung%2C50%25");
        assert_eq!(read(request.headers()), Ok(Some(Admission::new(name, Fence::MAX))));
    }

    proptest! {
        #[test]
        fn every_name_and_fence_arrives(text in "\\PC{1,40}", number in 1..=Fence::MAX.get()) {
            if let (Ok(name), Some(fence)) = (Name::new(&text), Fence::new(number)) {
                let mut request = Request::new(());
                stamp(&mut request, &name, fence);
                prop_assert_eq!(read(request.headers()), Ok(Some(Admission { name, fence })));
            }
        }

        #[test]
        fn no_value_makes_the_reader_panic(value in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                let mut map = HeaderMap::new();
                map.insert(NAME, value.clone());
                map.insert(FENCE, value);
                let _ = read(&map);
            }
        }
    }
}
