//! How a daemon is set up, with limits that hold without thinking about them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::auth::Rate;

/// A daemon's settings.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Where to listen. Other machines can reach it only with identities and TLS.
    pub listen: SocketAddr,
    /// Who may do what; without it everybody on this machine may do everything.
    pub tokens: Option<PathBuf>,
    /// The daemon's certificate.
    pub tls: Option<TlsFiles>,
    /// Listen on other addresses without TLS, because something in front of it speaks TLS.
    pub plaintext: bool,
    /// Where the daemon keeps what must survive its restart; nothing survives without it.
    pub state: Option<PathBuf>,
    /// The largest body.
    pub body_limit: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long a head may take to arrive, and how long a connection may be idle.
    pub head_timeout: Duration,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// The most connections at once.
    pub connections: usize,
    /// The longest that a request waits, whatever it asks for.
    pub longest_wait: Duration,
    /// How often one identity may ask.
    pub asking: Rate,
    /// How often one identity may renew and release, whatever else it asks.
    pub keeping: Rate,
    /// How many events can be resumed.
    pub events: usize,
    /// How long holds may finish once the daemon is told to stop.
    pub drain: Duration,
}

/// Files of a certificate.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate and those above it, PEM.
    pub cert: PathBuf,
    /// Its key, PEM, readable by its owner only.
    pub key: PathBuf,
    /// Clients must show a certificate that one of these has signed.
    pub client_ca: Option<PathBuf>,
}

impl Config {
    /// Listening here, with everything else as it should be for most.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            tokens: None,
            tls: None,
            plaintext: false,
            state: None,
            body_limit: 16 * 1024,
            body_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            connections: 16_384,
            longest_wait: Duration::from_secs(60),
            asking: Rate {
                per_second: 20_000.0,
                burst: 40_000.0,
            },
            keeping: Rate {
                per_second: 50_000.0,
                burst: 100_000.0,
            },
            events: 10_000,
            drain: Duration::from_secs(10),
        }
    }

    /// The most requests that wait at once: long polls, waiting acquires, streams. A quarter of the connections is left to those
    /// that are answered at once, renewals above all.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.connections - self.connections.div_ceil(4)
    }

    /// Clients are known by their certificates.
    #[must_use]
    pub fn mutual(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// Refuses what would let strangers in.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn check(&self) -> Result<(), String> {
        if self.listen.ip().is_loopback() {
            return Ok(());
        }
        if self.tokens.is_none() && !self.mutual() {
            return Err(format!(
                "{} can be reached from other machines, and nobody would be asked who they are\n\
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
    fn strangers_are_kept_out_before_the_start() {
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
            assert_eq!(
                checked.is_ok(),
                starts,
                "{listen} {tokens} {tls} {mutual}: {checked:?}"
            );
            if let Err(said) = checked {
                assert!(said.contains("--") && said.lines().count() <= 3, "{said}");
            }
        }
    }
}
