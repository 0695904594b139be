//! From a URL to a store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_core::clock::BootClock;
use leasehold_core::memory::MemoryStore;
use leasehold_core::store::SharedStore;

use crate::OpenError;

/// What a reader of an error can write instead.
const KNOWN: &str = "memory:, sqlite:PATH, redis://HOST, rediss://HOST, http://HOST:PORT and https://HOST";

/// Which store a URL names. Prints as a URL that opens the same store from any folder, without anything secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// This process's memory.
    Memory,
    /// One SQLite file.
    Sqlite {
        /// The file, absolute.
        path: PathBuf,
        /// `durability=full`: the disk is waited for at every step.
        full: bool,
    },
    /// Redis or Valkey; the rest of the URL is read by that store.
    Redis {
        /// As it was given.
        url: String,
    },
    /// A daemon (`leasehold serve`); the rest of the URL is read by that store.
    Http {
        /// As it was given.
        url: String,
    },
}

impl StoreUrl {
    /// Reads a URL. Does not look whether the store is there.
    ///
    /// # Errors
    /// No store is known by this URL: says which are.
    pub fn parse(text: &str) -> Result<Self, OpenError> {
        let refuse = |why: String| OpenError::Url {
            url: redact(text),
            why,
        };
        // A path is unmistakable as one only if it begins like one; `locks.db` could be a typing error for a scheme.
        if text.starts_with('/') || text.starts_with("./") || text.starts_with("../") {
            return Self::sqlite(text).map_err(refuse);
        }
        match text.split_once(':') {
            Some(("memory", "" | "//")) => Ok(Self::Memory),
            Some(("sqlite", rest)) => Self::sqlite(rest).map_err(refuse),
            Some(("redis" | "rediss" | "valkey" | "valkeys", _)) => Ok(Self::Redis { url: text.into() }),
            Some(("http" | "https", rest)) if rest.starts_with("//") => Ok(Self::Http { url: text.into() }),
            // What stands there is not repeated: it may be a secret in the wrong place.
            Some(_) => Err(refuse(format!(
                "no store is known by its scheme; known are {KNOWN}"
            ))),
            None => Err(refuse(format!(
                "it has no scheme; known are {KNOWN}, and a path that begins with / or ./ is a SQLite file"
            ))),
        }
    }

    fn sqlite(rest: &str) -> Result<Self, String> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = match path.strip_prefix("//") {
            Some(path) if path.starts_with('/') => path,
            Some(_) => {
                return Err("a SQLite file has no host: write sqlite:///PATH for a path from the root, or sqlite:PATH for \
                            one from here"
                    .into());
            }
            None => path,
        };
        if path.is_empty() {
            return Err("it names no file; write sqlite:PATH".into());
        }
        // Two slashes in front would print as a URL with a host.
        let rooted = path
            .starts_with('/')
            .then(|| format!("/{}", path.trim_start_matches('/')));
        let path = rooted.as_deref().unwrap_or(path);
        let full = match query {
            "" | "durability=normal" => false,
            "durability=full" => true,
            _ => {
                return Err(
                    "what follows its ? is not known; durability=normal and durability=full are".into(),
                );
            }
        };
        let path = std::path::absolute(Path::new(path)).map_err(|error| error.to_string())?;
        Ok(Self::Sqlite { path, full })
    }

    /// Opens the store. Redis and daemons are not connected to yet: one that is down shows when it is asked.
    ///
    /// # Errors
    /// The store cannot be used, or this build does not contain it.
    pub fn open(&self) -> Result<SharedStore, OpenError> {
        match self {
            Self::Memory => Ok(Arc::new(MemoryStore::new(BootClock::shared()))),
            #[cfg(feature = "sqlite")]
            Self::Sqlite { path, full } => {
                use leasehold_sqlite::{Durability, SqliteOptions, SqliteStore};
                let durability = if *full {
                    Durability::Full
                } else {
                    Durability::Normal
                };
                let store = SqliteStore::open(SqliteOptions::new(path).durability(durability));
                Ok(Arc::new(store.map_err(|failure| self.failed(failure))?))
            }
            #[cfg(feature = "redis")]
            Self::Redis { url } => {
                use leasehold_redis::{RedisOptions, RedisStore};
                let store = RedisOptions::parse(url).and_then(RedisStore::open);
                Ok(Arc::new(store.map_err(|failure| self.failed(failure))?))
            }
            #[cfg(feature = "http")]
            Self::Http { url } => {
                use leasehold_http::{HttpOptions, HttpStore};
                let store = HttpOptions::parse(url).and_then(HttpStore::open);
                Ok(Arc::new(store.map_err(|failure| self.failed(failure))?))
            }
            #[cfg(not(all(feature = "sqlite", feature = "redis", feature = "http")))]
            _ => Err(OpenError::Url {
                url: self.to_string(),
                why: "this build does not contain that store; build it with the feature of its name".into(),
            }),
        }
    }

    #[cfg(any(feature = "sqlite", feature = "redis", feature = "http"))]
    pub(crate) fn failed(&self, failure: leasehold_core::store::Failure) -> OpenError {
        OpenError::Store {
            url: self.to_string(),
            failure,
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite { path, full } => {
                let query = if *full { "?durability=full" } else { "" };
                write!(f, "sqlite:{}{query}", path.display())
            }
            Self::Redis { url } | Self::Http { url } => f.write_str(&redact(url)),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// The URL without passwords, for people and logs. Works on text that is no URL too: what cannot be parsed can be
/// secret all the same. A password may contain every sign that ends a URL's parts; where it is not plain which part an
/// `@` belongs to, nothing but the scheme is shown.
#[must_use]
pub fn redact(url: &str) -> String {
    let (place, query) = url.split_once('?').map_or((url, None), |(a, b)| (a, Some(b)));
    let mut out = match url.split_once("://") {
        // Not a scheme, so nobody can say what it is.
        Some((scheme, rest))
            if (rest.contains('@') || mistyped(url))
                && !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) =>
        {
            return "***".to_owned();
        }
        Some((scheme, rest)) if rest.rfind('@').is_some_and(|at| rest[..at].contains(':')) => {
            let clean = place.rsplit_once('@').filter(|(before, _)| {
                let userinfo = before.get(scheme.len() + 3..).unwrap_or("/");
                !userinfo.contains(['/', '#']) && query.is_none_or(|query| !query.contains('@'))
            });
            let Some((before, host)) = clean else {
                return format!("{scheme}://***");
            };
            let user = before[scheme.len() + 3..]
                .split_once(':')
                .map_or("", |(user, _)| user);
            format!("{scheme}://{user}:***@{host}")
        }
        // A URL that lacks its slashes, or all of its scheme, is mistyped and not less secret.
        None if mistyped(url) => return "***".to_owned(),
        _ => place.to_owned(),
    };
    if let Some(query) = query {
        let pairs: Vec<_> = query.split('&').map(redact_pair).collect();
        out = format!("{out}?{}", pairs.join("&"));
    }
    out
}

/// What stands before an `@` looks like a user and a password, and it is not a path.
fn mistyped(text: &str) -> bool {
    let path = ["sqlite:", "/", "./", "../"]
        .iter()
        .any(|start| text.starts_with(start));
    !path && text.rfind('@').is_some_and(|at| text[..at].contains(':'))
}

/// Names of files with secrets may be shown; secrets may not.
fn redact_pair(pair: &str) -> String {
    match pair.split_once('=') {
        Some((key, _))
            if !key.ends_with("_file")
                && ["pass", "token", "secret", "auth"]
                    .iter()
                    .any(|word| key.contains(word)) =>
        {
            format!("{key}=***")
        }
        _ => pair.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_names_its_store() {
        assert_eq!(StoreUrl::parse("memory:").unwrap(), StoreUrl::Memory);
        for same in [
            "sqlite:/a/b.db",
            "sqlite:///a/b.db",
            "/a/b.db",
            "sqlite:////a/b.db",
        ] {
            let url = StoreUrl::parse(same).unwrap();
            assert_eq!(url.to_string(), "sqlite:/a/b.db", "{same}");
        }
        let here = std::env::current_dir().unwrap();
        let relative = StoreUrl::parse("sqlite:x.db").unwrap();
        assert_eq!(relative.to_string(), format!("sqlite:{}/x.db", here.display()));
        let full = StoreUrl::parse("sqlite:/a?durability=full").unwrap();
        assert_eq!(StoreUrl::parse(&full.to_string()).unwrap(), full);
        assert!(matches!(
            StoreUrl::parse("rediss://h/1"),
            Ok(StoreUrl::Redis { .. })
        ));
        let daemon = StoreUrl::parse("http://127.0.0.1:7420?token_file=/t").unwrap();
        assert_eq!(daemon.to_string(), "http://127.0.0.1:7420?token_file=/t");
    }

    #[test]
    fn refuses_with_what_is_known() {
        for (bad, advice) in [
            ("mysql://u:hunter2@h", "redis://HOST"),
            ("locks.db", "begins with / or ./"),
            ("sqlite:", "names no file"),
            ("sqlite://:hunter2@host/x", "sqlite:///PATH"),
            ("sqlite:/x?password=hunter2", "durability=full"),
            ("h?password=hunter2:1", "known are"),
            ("sqlite:/x?sync=off", "durability=full"),
        ] {
            let said = StoreUrl::parse(bad).unwrap_err().to_string();
            assert!(
                said.contains(advice) && !said.contains("hunter2"),
                "{bad}: {said}"
            );
        }
    }

    #[test]
    fn secrets_are_not_repeated() {
        for (url, shown) in [
            (
                "redis://u:hunter2@h:1/2?prefix=a:",
                "redis://u:***@h:1/2?prefix=a:",
            ),
            ("redis://:hun@ter2@h", "redis://:***@h"),
            ("redis://h?password=hunter2&x=1", "redis://h?password=***&x=1"),
            ("redis://h?password_file=/run/x", "redis://h?password_file=/run/x"),
            ("redis://app@h", "redis://app@h"),
            ("sqlite:/a@b", "sqlite:/a@b"),
            ("redis://u:hun?ter2@h", "redis://***"),
            ("h?password=hunter2&x://u:x@h", "***"),
            ("u:hunter2@h?next=redis://3", "***"),
            ("redis://u:12/hunter2@h", "redis://***"),
            ("redis://u:#hunter2@h", "redis://***"),
            ("redis://h:1?password=a&x=u:hunter2@h", "redis://***"),
            ("redis:u:hunter2@h", "***"),
            ("redis:/u:hunter2@h", "***"),
            ("u:hunter2@h", "***"),
            ("sqlite:/a:b@c", "sqlite:/a:b@c"),
        ] {
            assert_eq!(redact(url), shown);
        }
    }
}
