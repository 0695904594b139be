//! What the stores share when they read their options from a URL: errors, suggestions and files
//! with secrets.

use std::net::IpAddr;
use std::path::Path;

use crate::private_file::is_private;
use crate::store::{StoreError, StoreErrorKind};

/// The error of an option that cannot be used. `why` says what to write instead.
pub fn misconfigured(why: impl Into<String>) -> StoreError {
    StoreError::not_done(StoreErrorKind::Misconfigured, why)
}

/// The error of a file that the option `key` names.
#[must_use]
pub fn unreadable_file(key: &str, path: &Path, error: &std::io::Error) -> StoreError {
    misconfigured(format!("{key} {} cannot be read: {error}", path.display()))
}

/// The error of an unknown option. Suggests the nearest of the `known` ones.
#[must_use]
pub fn unknown_key(key: &str, known: &[&str]) -> StoreError {
    let near = known.iter().max_by(|a, b| strsim::jaro(a, key).total_cmp(&strsim::jaro(b, key)));
    let near = near.copied().unwrap_or_default();
    misconfigured(format!("the URL's {key}= is not known; did you mean {near}=?"))
}

/// Whether the host is this machine by its loopback interface, so that what is sent there does not
/// travel.
#[must_use]
pub fn is_loopback_host(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Refuses a file with a secret that other users of the machine can read.
///
/// # Errors
/// The file is not private, or is not there.
pub fn check_private(key: &str, path: &Path) -> Result<(), StoreError> {
    if is_private(path).map_err(|error| unreadable_file(key, path, &error))? {
        return Ok(());
    }
    Err(misconfigured(format!("{key} {} can be read by others; run chmod 600 on it", path.display())))
}

/// Reads the first line of a file that must be private.
///
/// # Errors
/// The file is not private, or cannot be read.
pub fn read_secret(key: &str, path: &Path) -> Result<String, StoreError> {
    check_private(key, path)?;
    let text = std::fs::read_to_string(path).map_err(|error| unreadable_file(key, path, &error))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::is_loopback_host;

    #[test]
    fn only_this_host_needs_no_tls() {
        for host in ["127.0.0.1", "::1", "localhost", "127.9.9.9"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in ["10.0.0.1", "db.example", "localhost.evil.example", "0.0.0.0", ""] {
            assert!(!is_loopback_host(host), "{host}");
        }
    }
}
