//! The arguments of `serve`, `token` and `audit`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use leasehold_server::auth::Grant;

use crate::plane::PlaneStoreArg;

/// Arguments of `leasehold serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without --tokens, only the user who starts it may use it, from this machine: a token is made at each start, in
$XDG_STATE_HOME/leasehold/tokens, where that user's commands find it; `leasehold dashboard` prints a link. Other
addresses than loopback need --tokens or --client-ca, and a certificate. Browsers are kept to the daemon's pages.

Examples:
  leasehold serve
  leasehold --store redis://127.0.0.1 serve --listen 127.0.0.1:7420 --state /var/lib/leasehold
  leasehold token new ci --grant hold:deploy --file tokens.toml
  leasehold serve --listen 0.0.0.0:7420 --tokens tokens.toml --tls-cert cert.pem --tls-key key.pem
  leasehold --store http://127.0.0.1:7420 run job:42 -- ./work")]
pub(crate) struct ServeArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value_t = super::DEFAULT_LISTEN_ADDRESS, env = "LEASEHOLD_LISTEN")]
    pub(crate) listen: SocketAddr,
    /// Serve the control plane too: jobs, runs and approvals; start replicas with `leasehold plane replica`
    #[arg(long)]
    pub(crate) plane: bool,
    #[command(flatten)]
    pub(crate) plane_store: PlaneStoreArg,
    /// How many runs one organisation may have under way at once; without it, as many as it likes
    #[arg(long, value_name = "RUNS", requires = "plane", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) admission: Option<u64>,
    /// Let a client decide about jobs that it submitted itself; without it, another client must
    #[arg(long, requires = "plane")]
    pub(crate) allow_self_approval: bool,
    /// Where the daemon keeps what must survive its restart: holds it keeps for clients, history, the audit log
    ///
    /// Without it: $XDG_STATE_HOME/leasehold/daemon, or ~/.local/state/leasehold/daemon.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state: Option<PathBuf>,
    /// Who may do what: a file of API tokens and client certificates, readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// The daemon's certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Identify clients by certificates that one of these has signed, PEM; `[[client]]` in --tokens gives them rights
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Listen on other addresses than loopback without TLS, because something in front of it speaks TLS
    #[arg(long)]
    pub(crate) plaintext: bool,
    /// How many connections are open at once; fewer if the limit of open files does not allow them
    #[arg(long, value_name = "COUNT", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(4..=1_000_000))]
    pub(crate) max_connections: u32,
    /// The longest that a request waits for a busy name, whatever it asks for
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = crate::span::parse)]
    pub(crate) longest_wait: Duration,
    /// How long requests and holds may take to finish once the daemon is asked to stop
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = crate::span::parse)]
    pub(crate) drain: Duration,
    /// How many segments of the audit log to keep, each of 16 MiB; the oldest one beyond it is removed
    #[arg(long, value_name = "SEGMENTS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) audit_segments: u32,
}

/// Arguments of `leasehold token`.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

/// What to do with API tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make an API token: it is printed once; the file keeps its hash
    #[command(after_help = "\
Examples:
  (umask 077; leasehold token new ci --grant hold:deploy --file tokens.toml > ci.token)
  leasehold token new payer --grant work:topic:pay --grant hold:res:acme --file tokens.toml
  leasehold token new ann --grant approve:job:acme --grant read:job:acme --file tokens.toml
  leasehold token new prometheus --grant 'read:*' --expires 2160h --file tokens.toml")]
    New {
        /// Who it is for: a-z, 0-9, `-` and `.`; it stands in logs
        id: String,
        /// A right on a scope of names: read, hold, submit, work, approve, define, command or admin, e.g.
        /// hold:deploy, submit:job:acme, work:topic:pay, read:*
        #[arg(long = "grant", value_name = "RIGHT:SCOPE", required = true)]
        grants: Vec<Grant>,
        /// How long it is good for, e.g. 2160h; for ever if not given
        #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
        expires: Option<Duration>,
        /// The tokens file to add it to; made, readable by its owner only, if it is not there
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
}

/// Arguments of `leasehold audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold audit verify ~/.local/state/leasehold/daemon
  leasehold audit verify --key /mnt/safe/audit.key /var/lib/leasehold/daemon")]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: AuditCommand,
}

/// What to do with a daemon's audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that no line was changed, removed or inserted: exit code 0 good, 1 not, 2 error
    ///
    /// Reads all segments of the log, and from daemon.db where the log must end. The daemon may be running. 1 means that
    /// a line or a segment was changed or is missing, also one that the daemon has found and recorded itself; 2 that the log, its key
    /// or the end in daemon.db cannot be read.
    Verify {
        /// The daemon's state folder, or audit.jsonl in it
        path: PathBuf,
        /// The key of the log, if it is kept elsewhere than in audit.key in the state folder
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
    },
}
