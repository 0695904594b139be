//! The daemon's address and the client's identity, parsed from one URL.
//!
//! `http://host[:port][/path]?…`, or `https://` for TLS, with these query keys:
//!
//! | key | meaning |
//! |---|---|
//! | `token_file` | a file with the API token, readable by its owner only; read for each request |
//! | `ca_file` | PEM certificates to trust instead of the public ones (`https` only) |
//! | `cert_file`, `key_file` | PEM client certificate and key, if the daemon asks (`https` only) |
//!
//! A token inside the URL is refused: URLs end up in process lists, logs and shell histories. A token
//! is never sent without TLS, except to a loopback host. For a loopback host without `token_file` the
//! client finds the owner token of this user's daemon by itself.

use std::fmt;
use std::path::PathBuf;

use leasehold_core::store::StoreError;
use leasehold_core::url_options::{is_loopback_host, misconfigured, read_secret, unknown_key};
use url::Url;

/// The known query keys, to suggest one when a key is misspelt.
const QUERY_KEYS: &[&str] = &["token_file", "ca_file", "cert_file", "key_file"];

/// How to reach the daemon and authenticate to it.
#[derive(Clone)]
#[must_use]
pub struct HttpOptions {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    /// The path before `/v1`, for a daemon behind a reverse proxy.
    pub(crate) path: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
}

impl HttpOptions {
    /// Parses a URL.
    ///
    /// # Errors
    /// Names the part that cannot be used and what to write instead. Never repeats a token.
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        // Safe to show: the parser's message never repeats its input.
        let url = Url::parse(url).map_err(|err| misconfigured(format!("not a URL: {err}")))?;
        let tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(misconfigured("its scheme is not known; use http:// or https://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(misconfigured(
                "the URL contains a user or password, which process lists and logs would show; put the API token into \
                 a file that only you can read and write ?token_file=/path instead",
            ));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| misconfigured("the URL names no host; write http://host:port"))?;
        let mut options = Self {
            // URLs have IPv6 addresses in brackets; sockets and certificates do not.
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
            return Err(misconfigured("cert_file= and key_file= need each other; write both"));
        }
        if options.token_file.is_some() && !tls && !is_loopback_host(&options.host) {
            return Err(misconfigured(format!(
                "the API token would travel unencrypted to {}; write https:// (serve with --tls-cert and --tls-key, or put \
                 a TLS proxy in front), or reach the daemon through a tunnel on 127.0.0.1",
                options.host
            )));
        }
        Ok(options)
    }

    fn read_query(&mut self, url: &Url) -> Result<(), StoreError> {
        for (key, value) in url.query_pairs() {
            let path = PathBuf::from(value.as_ref());
            match key.as_ref() {
                "token_file" => self.token_file = Some(path),
                key @ ("ca_file" | "cert_file" | "key_file") if !self.tls => {
                    return Err(misconfigured(format!(
                        "{key}= needs TLS; write https:// instead of http://"
                    )));
                }
                "ca_file" => self.ca_file = Some(path),
                "cert_file" => self.cert_file = Some(path),
                "key_file" => self.key_file = Some(path),
                "token" | "password" => {
                    return Err(misconfigured(
                        "the API token would be in the URL; put it into a file and write token_file=",
                    ));
                }
                other => return Err(unknown_key(other, QUERY_KEYS)),
            }
        }
        Ok(())
    }

    /// The URL without secrets.
    pub(crate) fn describe(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    /// Host and port, as in the `Host` header.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Reads the API token, if the URL names a file for it. Read for every request, so that a
    /// rotated token counts at once.
    pub(crate) fn token(&self) -> Result<Option<String>, StoreError> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let text = read_secret("token_file", path)?;
        let line = text.trim();
        if !looks_like_a_token(line) {
            return Err(misconfigured(format!(
                "token_file {} has no token in its first line; write lk_… as `leasehold token new` printed it",
                path.display()
            )));
        }
        Ok(Some(line.to_owned()))
    }
}

/// Whether a text has the form of an API token. Anything else in a `token_file` is another secret,
/// named by mistake or by a hostile configuration, and must not be sent.
pub(crate) fn looks_like_a_token(text: &str) -> bool {
    let body = text.strip_prefix("lk_");
    body.is_some_and(|body| !body.is_empty() && body.bytes().all(|byte| byte.is_ascii_graphic()))
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("url", &self.describe())
            .field("token_file", &self.token_file)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_error(url: &str) -> String {
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
        for url in
            ["http://u:hunter2@h", "http://hunter2@h", "http://h?token=hunter2", "http://h?password=hunter2"]
        {
            let message = parse_error(url);
            assert!(message.contains("token_file") && !message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn finding_27_a_token_never_travels_unencrypted() {
        for url in [
            "http://h?token_file=/t",
            "http://10.0.0.1:7420?token_file=/t",
            "http://localhost.h?token_file=/t",
        ] {
            let message = parse_error(url);
            assert!(message.contains("unencrypted") && message.contains("https://"), "{message}");
        }
        for url in [
            "https://h?token_file=/t",
            "http://h",
            "http://127.0.0.1:7420?token_file=/t",
            "http://[::1]:7420?token_file=/t",
            "http://localhost?token_file=/t",
        ] {
            let _ = HttpOptions::parse(url).unwrap();
        }
    }

    #[test]
    fn finding_27_a_token_file_holds_a_token_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            HttpOptions::parse(&format!("http://127.0.0.1?token_file={}", path.display())).unwrap().token()
        };
        assert_eq!(token("lk_ci_00ff\n", 0o600).unwrap().as_deref(), Some("lk_ci_00ff"));
        for other in ["", "hvs.SECRET", "-----BEGIN KEY-----", "lk_", "lk_a b", "xlk_ci_00"] {
            let message = token(other, 0o600).unwrap_err().to_string();
            assert!(message.contains("lk_…") && !message.contains("SECRET"), "{message}");
        }
        for mode in [0o640, 0o604, 0o620] {
            let message = token("lk_ci_00ff", mode).unwrap_err().to_string();
            assert!(message.contains("chmod 600"), "{mode:o}: {message}");
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
            let message = parse_error(url);
            assert!(message.contains(advice), "{url}: {message}");
        }
    }
}
