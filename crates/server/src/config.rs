//! The daemon's configuration, with safe default limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::auth::Rate;

/// The configuration of a daemon.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The address to listen on. A non-loopback address requires identities and TLS.
    pub listen: SocketAddr,
    /// The tokens file. Without it, and without client certificates, every local caller has all
    /// rights.
    pub tokens: Option<PathBuf>,
    /// The daemon's certificate; plain HTTP without it.
    pub tls: Option<TlsFiles>,
    /// Allows a non-loopback address without TLS, because a proxy in front terminates TLS.
    pub plaintext: bool,
    /// The directory for what must survive a restart; without it nothing does.
    pub state_dir: Option<PathBuf>,
    /// The largest request body in bytes; a rule may allow more for its route.
    pub body_limit: usize,
    /// The time for a request body to arrive.
    pub body_timeout: Duration,
    /// The time for a request head to arrive, and for a connection to be idle.
    pub head_timeout: Duration,
    /// The time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// The maximum number of connections.
    pub max_connections: usize,
    /// The longest wait of a request, whatever it asks for.
    pub max_wait: Duration,
    /// The request rate of one identity.
    pub request_rate: Rate,
    /// The rate of renewals and releases of one identity, apart from its other requests.
    pub renewal_rate: Rate,
    /// How many past events an event stream can resume from.
    pub resumable_events: usize,
    /// The time for requests and holds to finish once the daemon is told to stop.
    pub drain_timeout: Duration,
}

/// The files of a TLS certificate.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate chain, PEM.
    pub cert: PathBuf,
    /// The private key, PEM; must be readable by its owner only.
    pub key: PathBuf,
    /// If set, clients must present a certificate signed by one of these authorities, PEM.
    pub client_ca: Option<PathBuf>,
}

impl Config {
    /// Listens on this address, with defaults for everything else.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            tokens: None,
            tls: None,
            plaintext: false,
            state_dir: None,
            body_limit: 16 * 1024,
            body_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            max_connections: 16_384,
            max_wait: Duration::from_secs(60),
            request_rate: Rate { per_second: 20_000.0, burst: 40_000.0 },
            renewal_rate: Rate { per_second: 50_000.0, burst: 100_000.0 },
            resumable_events: 10_000,
            drain_timeout: Duration::from_secs(10),
        }
    }

    /// The maximum number of waiting requests: long polls, waiting acquires, streams. A quarter of
    /// the connections is reserved for requests that are answered at once, above all renewals.
    #[must_use]
    pub fn max_waiters(&self) -> usize {
        self.max_connections - self.max_connections.div_ceil(4)
    }

    /// Whether clients are identified by certificates (mutual TLS).
    #[must_use]
    pub fn requires_client_certs(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// Refuses a configuration that would admit unidentified callers from other machines.
    ///
    /// # Errors
    /// Says what is missing and what to do.
    pub fn check(&self) -> Result<(), String> {
        if self.listen.ip().is_loopback() {
            return Ok(());
        }
        if self.tokens.is_none() && !self.requires_client_certs() {
            return Err(format!(
                "{} can be reached from other machines, and callers would not be authenticated\n\
                 name a file of API tokens with --tokens, or ask for certificates with --client-ca\n\
                 or listen on 127.0.0.1 only",
                self.listen
            ));
        }
        if self.tls.is_none() && !self.plaintext {
            return Err(format!(
                "{} can be reached from other machines, and API tokens would travel unencrypted\n\
                 give the daemon a certificate with --tls-cert and --tls-key\n\
                 or say --plaintext if something in front of it speaks TLS",
                self.listen
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insecure_configurations_are_refused() {
        let files = |client_ca: bool| TlsFiles {
            cert: "c".into(),
            key: "k".into(),
            client_ca: client_ca.then(|| "ca".into()),
        };
        // address, tokens, tls, mutual, plaintext -> starts
        for (listen, tokens, tls, mutual, plaintext, starts) in [
            ("127.0.0.1:0", false, false, false, false, true),
            ("[::1]:0", false, false, false, false, true),
            ("0.0.0.0:0", false, false, false, false, false),
            ("0.0.0.0:0", false, true, false, false, false),
            ("0.0.0.0:0", false, false, false, true, false),
            ("0.0.0.0:0", true, false, false, false, false),
            ("[::]:0", true, true, false, false, true),
            ("10.0.0.1:0", false, true, true, false, true),
            ("10.0.0.1:0", true, false, false, true, true),
        ] {
            let mut config = Config::new(listen.parse().unwrap());
            config.tokens = tokens.then(|| "t".into());
            config.tls = (tls || mutual).then(|| files(mutual));
            config.plaintext = plaintext;
            let checked = config.check();
            assert_eq!(checked.is_ok(), starts, "{listen} {tokens} {tls} {mutual}: {checked:?}");
            if let Err(message) = checked {
                assert!(message.contains("--") && message.lines().count() <= 3, "{message}");
            }
        }
    }
}
