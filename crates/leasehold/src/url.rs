//! A parsed store URL.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::{
    Backend, BackendInfo, Examination, SharedStore, StoreError, StoreLocation, redact,
};
use leasehold_core::testbed::TestbedFactory;

use crate::OpenError;
use crate::registry::locate;

/// The store that a URL names: its backend and options. `Display` prints the URL without secrets.
#[derive(Clone)]
pub struct StoreUrl {
    scheme: &'static str,
    backend: Arc<dyn Backend>,
    location: Arc<dyn StoreLocation>,
}

impl StoreUrl {
    /// Parses a URL. Does not check whether the store exists.
    ///
    /// # Errors
    /// The URL names no known store, or its options cannot be used. The error says what to write.
    pub fn parse(text: &str) -> Result<Self, OpenError> {
        let (scheme, backend, location) = locate(text)
            .map_err(|failure| OpenError::Url { url: redact(text), why: failure.message().to_owned() })?;
        Ok(Self { scheme, backend, location: location.into() })
    }

    /// The URL's scheme, without the colon.
    #[must_use]
    pub const fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// What help texts, documentation and advice say about this kind of store.
    #[must_use]
    pub fn info(&self) -> BackendInfo {
        self.backend.info()
    }

    /// The whole URL, secrets included: for another process that must open the same store. It does
    /// so from any folder.
    #[must_use]
    pub fn expose(&self) -> String {
        self.location.expose_url()
    }

    /// Opens the store. Redis and daemons are connected to at the first request, so one that is
    /// down is not an error here.
    ///
    /// # Errors
    /// The store cannot be used.
    pub fn open(&self) -> Result<SharedStore, OpenError> {
        self.location.open().map_err(|failure| self.store_error(failure))
    }

    /// Finds hazards of the store, or of the location where it would be created. Creates and
    /// changes nothing.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn examine(&self, within: Duration) -> Result<Examination, OpenError> {
        let examined = self.location.examine(within).await;
        examined.map_err(|failure| self.store_error(failure))
    }

    /// Whether the store is there, if that can be told without a request to a server.
    #[must_use]
    pub fn exists(&self) -> Option<bool> {
        self.location.exists()
    }

    /// The URL of the daemon that serves this store, if there is one.
    #[must_use]
    pub fn daemon_url(&self) -> Option<&str> {
        self.location.daemon_url()
    }

    /// Makes stores of this kind for drills, if they can be drilled.
    #[must_use]
    pub fn testbed(&self) -> Option<&'static dyn TestbedFactory> {
        self.backend.testbed()
    }

    fn store_error(&self, failure: StoreError) -> OpenError {
        OpenError::Store { url: self.to_string(), failure }
    }
}

impl PartialEq for StoreUrl {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for StoreUrl {}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.location.fmt(f)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

impl FromStr for StoreUrl {
    type Err = OpenError;
    fn from_str(text: &str) -> Result<Self, OpenError> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for StoreUrl {
    type Error = OpenError;
    fn try_from(text: &str) -> Result<Self, OpenError> {
        Self::parse(text)
    }
}

impl TryFrom<&String> for StoreUrl {
    type Error = OpenError;
    fn try_from(text: &String) -> Result<Self, OpenError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for StoreUrl {
    type Error = OpenError;
    fn try_from(text: String) -> Result<Self, OpenError> {
        Self::parse(&text)
    }
}

#[cfg(all(test, feature = "sqlite", feature = "redis", feature = "http"))]
mod tests {
    use super::*;

    #[test]
    fn every_form_names_its_store() {
        assert_eq!(StoreUrl::parse("memory:").unwrap().to_string(), "memory:");
        for same in ["sqlite:/a/b.db", "sqlite:///a/b.db", "/a/b.db", "sqlite:////a/b.db"] {
            let url = StoreUrl::parse(same).unwrap();
            assert_eq!(url.to_string(), "sqlite:/a/b.db", "{same}");
        }
        let here = std::env::current_dir().unwrap();
        let relative = StoreUrl::parse("sqlite:x.db").unwrap();
        assert_eq!(relative.to_string(), format!("sqlite:{}/x.db", here.display()));
        let full = StoreUrl::parse("sqlite:/a?durability=full").unwrap();
        assert_eq!(StoreUrl::parse(&full.to_string()).unwrap(), full);
        assert_eq!(StoreUrl::parse("rediss://h/1").unwrap().scheme(), "rediss");
        let daemon = StoreUrl::parse("http://127.0.0.1:7420?token_file=/t").unwrap();
        assert_eq!(daemon.to_string(), "http://127.0.0.1:7420?token_file=/t");
    }

    #[test]
    fn errors_list_the_known_urls() {
        for (bad, advice) in [
            ("mysql://u:hunter2@h", "redis://HOST"),
            ("locks.db", "begins with / or ./"),
            ("sqlite:", "names no file"),
            ("sqlite://:hunter2@host/x", "sqlite:///PATH"),
            ("sqlite:/x?password=hunter2", "durability=full"),
            ("h?password=hunter2:1", "known are"),
            ("sqlite:/x?sync=off", "durability=full"),
        ] {
            let message = StoreUrl::parse(bad).unwrap_err().to_string();
            assert!(message.contains(advice) && !message.contains("hunter2"), "{bad}: {message}");
        }
    }

    #[test]
    fn the_exposed_url_opens_the_same_store_although_its_text_hides_a_part() {
        // The prefix looks like a password and a host.
        let url = StoreUrl::parse("redis://127.0.0.1:6379?prefix=a@b:").unwrap();
        assert_eq!(url.expose(), "redis://127.0.0.1:6379?prefix=a@b:");
        assert_eq!(StoreUrl::parse(&url.expose()).unwrap(), url);
        assert_eq!(url.to_string(), "redis://***");
    }
}
