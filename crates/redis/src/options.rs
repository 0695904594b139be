//! Options of the store, parsed from one URL.
//!
//! `redis://[user@]host[:port][/db]?…`, or `rediss://` for TLS, with these query parameters:
//!
//! | key | meaning |
//! |---|---|
//! | `prefix` | the key prefix of names; default `lock:` |
//! | `map` | `names=keys`: replaces a name prefix by a key prefix, e.g. `map=job:=app:job:`; may repeat |
//! | `user` | the ACL user, if it is not before the `@` |
//! | `password_file` | a file with the password, readable by its owner only; read again for each connection |
//! | `ca_file` | PEM certificates to trust instead of the public ones (`rediss` only) |
//! | `wait_replicas` | a grant counts only when this many replicas have confirmed it |
//!
//! A password inside the URL is refused: URLs end up in process lists, logs and shell histories.

use std::fmt;
use std::path::PathBuf;

use leasehold_core::clock::{BootClock, SharedClock};
use leasehold_core::rng::{OsRandom, SharedRandom};
use leasehold_core::store::StoreError;
use leasehold_core::url_options::{misconfigured, read_secret, unknown_key, unreadable_file};
use url::Url;

use crate::keys::{DEFAULT_PREFIX, KeyMap};

/// All query parameters, for the suggestion when one is misspelt.
const QUERY_PARAMETERS: &[&str] = &["prefix", "map", "user", "password_file", "ca_file", "wait_replicas"];
const DEFAULT_PORT: u16 = 6379;

/// How to reach the server, and how names map to its keys.
#[derive(Clone)]
#[must_use]
pub struct RedisOptions {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    pub(crate) db: i64,
    pub(crate) user: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) wait_replicas: u32,
    pub(crate) keys: KeyMap,
    pub(crate) clock: SharedClock,
    pub(crate) random: SharedRandom,
}

impl RedisOptions {
    /// Parses a URL.
    ///
    /// # Errors
    /// A part of the URL cannot be used; the text says which, and what to write instead.
    /// It never repeats a password.
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        // To the parser, an empty password is no password. But then the real one may begin with
        // `@`, and the parser takes its rest for the host.
        let with_password = has_password(url);
        // Safe to show: the parser's own message never repeats its input.
        let url = Url::parse(url).map_err(|err| misconfigured(format!("not a URL: {err}")))?;
        let tls = match url.scheme() {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            other => {
                return Err(misconfigured(format!(
                    "the scheme {other:?} is not known; use redis:// or rediss://"
                )));
            }
        };
        if with_password || url.password().is_some() {
            return Err(misconfigured(
                "the URL contains a password, which process lists and logs would show; put it into a file that only \
                 you can read and write ?password_file=/path instead",
            ));
        }
        // A `#` would end the host, and the text before it could be part of a
        // password. So none of it is shown.
        if url.fragment().is_some() {
            return Err(misconfigured("the URL contains a #, which has no meaning here; write %23 for it"));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| misconfigured("the URL names no host; write redis://host:port"))?;
        let mut options = Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port().unwrap_or(DEFAULT_PORT),
            tls,
            db: parse_database(url.path())?,
            user: (!url.username().is_empty()).then(|| url.username().to_owned()),
            password_file: None,
            ca_file: None,
            wait_replicas: 0,
            keys: KeyMap::default(),
            clock: BootClock::shared(),
            random: OsRandom::shared(),
        };
        options.read_query(&url)?;
        Ok(options)
    }

    fn read_query(&mut self, url: &Url) -> Result<(), StoreError> {
        let (mut prefix, mut rules) = (DEFAULT_PREFIX.to_owned(), Vec::new());
        for (key, value) in url.query_pairs() {
            match key.as_ref() {
                "prefix" => prefix = value.into_owned(),
                "map" => {
                    let (names, keys) = value.split_once('=').ok_or_else(|| {
                        misconfigured(format!("map={value} has no second `=`; write map=names:=keys:"))
                    })?;
                    rules.push((names.to_owned(), keys.to_owned()));
                }
                "user" => self.user = Some(value.into_owned()),
                "password_file" => self.password_file = Some(PathBuf::from(value.as_ref())),
                "ca_file" if !self.tls => {
                    return Err(misconfigured("ca_file= needs TLS; write rediss:// instead of redis://"));
                }
                "ca_file" => self.ca_file = Some(PathBuf::from(value.as_ref())),
                "wait_replicas" => {
                    self.wait_replicas = value.parse().map_err(|_| {
                        misconfigured(format!("wait_replicas={value} is not a number of replicas"))
                    })?;
                }
                "password" => {
                    return Err(misconfigured(
                        "password= would put the password into the URL; put it into a file and write password_file=",
                    ));
                }
                other => return Err(unknown_key(other, QUERY_PARAMETERS)),
            }
        }
        self.keys = KeyMap::new(&prefix, &rules).map_err(misconfigured)?;
        Ok(())
    }

    /// Replaces the machine's clock.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Replaces the operating system's randomness.
    pub fn random(mut self, random: SharedRandom) -> Self {
        self.random = random;
        self
    }

    /// Replaces the rules that map names to keys.
    pub fn keys(mut self, keys: KeyMap) -> Self {
        self.keys = keys;
        self
    }

    /// The URL without secrets.
    pub(crate) fn describe(&self) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let user = self.user.as_deref().map(|user| format!("{user}@")).unwrap_or_default();
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{user}{host}:{}/{}", self.port, self.db)
    }

    /// Reads the password, if the options name a file.
    pub(crate) fn password(&self) -> Result<Option<String>, StoreError> {
        let Some(path) = &self.password_file else {
            return Ok(None);
        };
        // Read for every connection, so that a rotated password needs no restart.
        let line = read_secret("password_file", path)?;
        if line.is_empty() {
            return Err(misconfigured(format!(
                "password_file {} is empty; write the password into its first line",
                path.display()
            )));
        }
        Ok(Some(line))
    }

    /// Reads the certificates to trust, if the options name a file.
    pub(crate) fn ca_certificates(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.ca_file
            .as_ref()
            .map(|path| std::fs::read(path).map_err(|err| unreadable_file("ca_file", path, &err)))
            .transpose()
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("url", &self.describe())
            .field("keys", &self.keys)
            .field("wait_replicas", &self.wait_replicas)
            .finish_non_exhaustive()
    }
}

fn parse_database(path: &str) -> Result<i64, StoreError> {
    let number = path.trim_start_matches('/');
    if number.is_empty() {
        return Ok(0);
    }
    number
        .parse::<u16>()
        .map(i64::from)
        // Not repeated: if a password contains a `/`, this is the rest of the password.
        .map_err(|_| misconfigured("what follows the host is not a database number; write /0, /1, …"))
}

/// Whether the URL has a password before the host, even an empty one.
fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let userinfo = authority.split_once('@').map_or("", |(userinfo, _)| userinfo);
    userinfo.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_part() {
        let url = "rediss://app@db.example:7000/3?prefix=lk:&map=job:=cordum:scheduler:job:&ca_file=/ca&wait_replicas=2";
        let options = RedisOptions::parse(url).unwrap();
        assert_eq!(options.describe(), "rediss://app@db.example:7000/3");
        assert_eq!((options.tls, options.wait_replicas), (true, 2));
        let name = leasehold_core::Name::new("job:1").unwrap();
        assert_eq!(options.keys.key(&name), "cordum:scheduler:job:1");
        assert_eq!(RedisOptions::parse("redis://[::1]").unwrap().describe(), "redis://[::1]:6379/0");
    }

    #[test]
    fn finding_27_a_password_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, "hunter2\n").unwrap();
        let options = RedisOptions::parse(&format!("redis://h?password_file={}", path.display())).unwrap();
        for mode in [0o644, 0o640, 0o604] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert!(options.password().unwrap_err().to_string().contains("chmod 600"), "{mode:o}");
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(options.password().unwrap().as_deref(), Some("hunter2"));
        std::fs::write(&path, "").unwrap();
        assert!(options.password().unwrap_err().to_string().contains("empty"));
    }
}
