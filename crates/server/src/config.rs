//! The daemon's configuration, with safe default limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::auth::{OwnerToken, Rate};

// For the store, the daemon's own files and the connections that are just being refused.
const RESERVED_DESCRIPTORS: usize = 128;

/// The configuration of a daemon.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The address to listen on. A non-loopback address requires identities and TLS.
    pub listen: SocketAddr,
    /// The tokens file: API tokens, and the rights of client certificates.
    pub tokens: Option<PathBuf>,
    /// The token of the user who started the daemon, if there is no tokens file. Loopback only.
    pub owner_token: Option<OwnerToken>,
    /// Identifies no caller: everything that reaches the address has all rights, other users of the
    /// machine too. For tests and simulations inside one process.
    pub unauthenticated: bool,
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
    /// The maximum number of connections. [`UnboundServer::bind`](crate::UnboundServer::bind) lowers it if the process
    /// may not open that many files.
    pub max_connections: usize,
    /// The maximum number of connections whose peer has not presented a valid identity yet.
    pub max_unidentified_connections: usize,
    /// How long such a connection may exist.
    pub unidentified_timeout: Duration,
    /// How far a peer may fall behind the minimum rate at which responses are taken, 16 KiB a second.
    pub write_timeout: Duration,
    /// The longest wait of a request, whatever it asks for.
    pub max_wait: Duration,
    /// The request rate of one identity.
    pub request_rate: Rate,
    /// The rate of renewals and releases of one identity, apart from its other requests.
    pub renewal_rate: Rate,
    /// What one identity may have at once.
    pub quotas: Quotas,
    /// How many past events an event stream can resume from.
    pub resumable_events: usize,
    /// The time for requests and holds to finish once the daemon is told to stop.
    pub drain_timeout: Duration,
    /// The size in bytes at which a segment of the audit log is closed.
    pub audit_segment_bytes: u64,
    /// The number of segments of the audit log that are kept, at least 2. The oldest one beyond it is removed.
    pub max_audit_segments: usize,
}

/// What one identity may have at once through a daemon. An identity with `admin:*` is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quotas {
    /// Leases that clients renew themselves.
    pub locks: usize,
    /// Tokens that wait in the queue of a name.
    pub waiters: usize,
    /// Holds that the daemon renews.
    pub kept_holds: usize,
    /// Tombstones of tokens that had no lease here, and those kept for more than a minute. A release beyond
    /// it leaves a shorter tombstone or none.
    pub tombstones: usize,
    /// Jobs of the control plane that have not ended, apart from those of runs.
    pub jobs: u64,
    /// Runs of workflows that have not ended.
    pub runs: u64,
    /// Workflows whose latest version it has applied.
    pub workflows: u64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            locks: 20_000,
            waiters: 4096,
            kept_holds: 10_000,
            tombstones: 20_000,
            jobs: 10_000,
            runs: 1000,
            workflows: 1000,
        }
    }
}

/// The files of a TLS certificate.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate chain, PEM.
    pub cert: PathBuf,
    /// The private key, PEM; must be readable by its owner only.
    pub key: PathBuf,
    /// If set, clients may present a certificate signed by one of these authorities, PEM. Its rights
    /// are those of its `[[client]]` entry in the tokens file.
    pub client_ca: Option<PathBuf>,
}

impl Config {
    /// Listens on this address, with defaults for everything else.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            tokens: None,
            owner_token: None,
            unauthenticated: false,
            tls: None,
            plaintext: false,
            state_dir: None,
            body_limit: 16 * 1024,
            body_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            max_connections: 4096,
            max_unidentified_connections: 1024,
            unidentified_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            max_wait: Duration::from_secs(60),
            request_rate: Rate { per_second: 20_000.0, burst: 40_000.0 },
            renewal_rate: Rate { per_second: 50_000.0, burst: 100_000.0 },
            quotas: Quotas::default(),
            resumable_events: 10_000,
            drain_timeout: Duration::from_secs(10),
            audit_segment_bytes: 16 * 1024 * 1024,
            max_audit_segments: 64,
        }
    }

    /// The maximum number of waiting requests: long polls, waiting acquires, streams. A quarter of
    /// the connections is reserved for requests that are answered at once, above all renewals.
    #[must_use]
    pub fn max_waiters(&self) -> usize {
        self.max_connections - self.max_connections.div_ceil(4)
    }

    /// Lowers the number of connections to what `descriptors` leave after a reserve. Without it, silent
    /// connections use up the descriptors, and the store and renewals find none.
    pub(crate) fn limit_connections(&mut self, descriptors: usize) {
        let most = descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(descriptors / 2).max(4);
        if most < self.max_connections {
            tracing::info!(
                connections = most,
                descriptors,
                "the limit of open files allows fewer connections"
            );
            self.max_connections = most;
        }
    }

    /// The maximum number of unidentified connections; the reserved ones are not among them.
    pub(crate) fn max_unidentified(&self) -> usize {
        self.max_unidentified_connections.min(self.max_waiters()).max(1)
    }

    /// Whether clients can be identified by certificates (mutual TLS).
    #[must_use]
    pub fn accepts_client_certs(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// Whether callers are told apart, by tokens or by certificates.
    #[must_use]
    pub fn identifies_callers(&self) -> bool {
        self.tokens.is_some() || self.accepts_client_certs()
    }

    /// Refuses a configuration that would admit unidentified callers.
    ///
    /// # Errors
    /// Says what is missing and what to do.
    pub fn check(&self) -> Result<(), String> {
        let has_identities = self.tokens.is_some() || self.accepts_client_certs();
        if self.unauthenticated && (has_identities || self.owner_token.is_some()) {
            return Err(
                "`unauthenticated` contradicts the identities that are set; leave one of them out".into()
            );
        }
        if self.listen.ip().is_loopback() {
            if has_identities || self.owner_token.is_some() || self.unauthenticated {
                return Ok(());
            }
            return Err("callers would not be identified: set `tokens` to a file of API tokens (--tokens), or `owner_token` to \
                        a token that only the daemon's user can read"
                .into());
        }
        // Neither the owner's token nor a missing identity leaves this machine.
        if !has_identities {
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
    fn finding_23_connections_leave_descriptors_for_the_store() {
        // descriptors, configured connections -> connections
        for (descriptors, configured, most) in [
            (1_048_576, 4096, 4096),
            (1024, 4096, 896),
            (256, 4096, 128),
            (256, 3, 3),
            (100, 4096, 50),
            (3, 9, 4),
        ] {
            let mut config = Config::new("127.0.0.1:0".parse().unwrap());
            config.max_connections = configured;
            config.limit_connections(descriptors);
            assert_eq!(config.max_connections, most, "{descriptors} {configured}");
            assert!(config.max_unidentified() < most.max(2), "{descriptors} {configured}");
        }
    }

    #[test]
    fn insecure_configurations_are_refused() {
        let files = |client_ca: bool| TlsFiles {
            cert: "c".into(),
            key: "k".into(),
            client_ca: client_ca.then(|| "ca".into()),
        };
        // address, tokens, tls, mutual, plaintext -> starts
        for (listen, tokens, tls, mutual, plaintext, starts) in [
            ("127.0.0.1:0", false, false, false, false, false),
            ("127.0.0.1:0", true, false, false, false, true),
            ("[::1]:0", false, true, true, false, true),
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
    #[test]
    fn finding_08_a_daemon_without_identities_needs_an_explicit_option() {
        for (listen, starts) in [("127.0.0.1:0", true), ("[::1]:0", true), ("0.0.0.0:0", false)] {
            let config = Config::new(listen.parse().unwrap());
            assert!(config.check().is_err(), "no identities by omission");
            let owner = OwnerToken::make(&leasehold_core::rng::OsRandom);
            let owned = Config { owner_token: Some(owner), ..config.clone() };
            let open = Config { unauthenticated: true, ..config };
            assert_eq!([owned.check().is_ok(), open.check().is_ok()], [starts; 2], "{listen}");
        }
    }
}
