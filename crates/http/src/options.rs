//! Where the daemon is and who we are to it, from one URL.
//!
//! `http://host[:port][/path]?…`, or `https://` for TLS, with these query keys:
//!
//! | key | meaning |
//! |---|---|
//! | `token_file` | a file with the API token, not readable by everyone; read anew for each connection |
//! | `ca_file` | PEM certificates to trust instead of the public ones (`https` only) |
//! | `cert_file`, `key_file` | PEM certificate and key to show to a daemon that asks for one (`https` only) |
//!
//! A token inside the URL is refused: URLs end up in process lists, logs and shell histories.

use std::fmt;
use std::path::{Path, PathBuf};

use leasehold_core::store::{Cause, Failure};
use url::Url;

/// The query keys, for the advice when one is misspelt.
const KNOWN: &[&str] = &["token_file", "ca_file", "cert_file", "key_file"];

/// How to reach the daemon.
#[derive(Clone)]
#[must_use]
pub struct HttpOptions {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    /// What precedes `/v1`, for a daemon behind a reverse proxy.
    pub(crate) path: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
}

impl HttpOptions {
    /// Reads a URL.
    ///
    /// # Errors
    /// Says which part cannot be used and what to write instead. Never repeats a token.
    pub fn parse(url: &str) -> Result<Self, Failure> {
        // The parser's own message never repeats its input.
        let url = Url::parse(url).map_err(|err| refuse(format!("not a URL: {err}")))?;
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(refuse("its scheme is not known; use http:// or https://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse(
                "the URL contains a user or password, which process lists and logs would show; put the API token into \
                 a file that only you can read and write ?token_file=/path instead",
            ));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| refuse("the URL names no host; write http://host:port"))?;
        let mut options = Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port_or_known_default().unwrap_or(if tls { 443 } else { 80 }),
            tls,
            path: url.path().trim_end_matches('/').to_owned(),
            token_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
        };
        options.read_query(&url)?;
        if options.cert_file.is_some() != options.key_file.is_some() {
            return Err(refuse("cert_file= and key_file= need each other; write both"));
        }
        Ok(options)
    }

    fn read_query(&mut self, url: &Url) -> Result<(), Failure> {
        for (key, value) in url.query_pairs() {
            let path = PathBuf::from(value.as_ref());
            match key.as_ref() {
                "token_file" => self.token_file = Some(path),
                key @ ("ca_file" | "cert_file" | "key_file") if !self.tls => {
                    return Err(refuse(format!(
                        "{key}= needs TLS; write https:// instead of http://"
                    )));
                }
                "ca_file" => self.ca_file = Some(path),
                "cert_file" => self.cert_file = Some(path),
                "key_file" => self.key_file = Some(path),
                "token" | "password" => {
                    return Err(refuse(
                        "the API token would be in the URL; put it into a file and write token_file=",
                    ));
                }
                other => return Err(unknown_key(other)),
            }
        }
        Ok(())
    }

    /// The URL without anything secret.
    pub(crate) fn describe(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    /// Host and port, as the `Host` header has them.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The API token, if a file for it was named.
    pub(crate) fn token(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        check_private("token_file", path)?;
        let text = std::fs::read_to_string(path).map_err(|err| unreadable("token_file", path, &err))?;
        let line = text.lines().next().unwrap_or_default().trim();
        if line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refuse(format!(
                "token_file {} has no token in its first line; write lk_… as `leasehold token new` printed it",
                path.display()
            )));
        }
        Ok(Some(line.to_owned()))
    }
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("url", &self.describe())
            .field("token_file", &self.token_file)
            .finish_non_exhaustive()
    }
}

pub(crate) fn refuse(why: impl Into<String>) -> Failure {
    Failure::not_done(Cause::Misconfigured, why)
}

pub(crate) fn unreadable(key: &str, path: &Path, err: &std::io::Error) -> Failure {
    refuse(format!("{key} {} cannot be read: {err}", path.display()))
}

fn unknown_key(key: &str) -> Failure {
    let near = KNOWN
        .iter()
        .max_by(|a, b| strsim::jaro(a, key).total_cmp(&strsim::jaro(b, key)))
        .copied()
        .unwrap_or_default();
    refuse(format!("the URL's {key}= is not known; did you mean {near}=?"))
}

/// A secret that everyone on the machine can read is none.
pub(crate) fn check_private(key: &str, path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt;
    let meta = std::fs::metadata(path).map_err(|err| unreadable(key, path, &err))?;
    if meta.permissions().mode() & 0o004 != 0 {
        return Err(refuse(format!(
            "{key} {} can be read by everyone; run chmod 600 on it",
            path.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(url: &str) -> String {
        HttpOptions::parse(url).unwrap_err().to_string()
    }

    #[test]
    fn reads_every_part() {
        let options = HttpOptions::parse("https://locks.example/team/?token_file=/t&ca_file=/ca").unwrap();
        assert_eq!(options.describe(), "https://locks.example:443/team");
        let options = HttpOptions::parse("http://[::1]:7420").unwrap();
        assert_eq!(options.describe(), "http://[::1]:7420");
    }

    #[test]
    fn a_secret_in_the_url_is_refused_and_not_repeated() {
        for url in [
            "http://u:hunter2@h",
            "http://hunter2@h",
            "http://h?token=hunter2",
            "http://h?password=hunter2",
        ] {
            let said = said(url);
            assert!(said.contains("token_file") && !said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn refuses_with_advice() {
        for (url, advice) in [
            ("http://h?tokenfile=x", "token_file="),
            ("redis://h", "http://"),
            ("http://h?ca_file=/x", "https://"),
            ("https://h?cert_file=/x", "key_file="),
            ("nonsense", "not a URL"),
        ] {
            let said = said(url);
            assert!(said.contains(advice), "{url}: {said}");
        }
    }
}
