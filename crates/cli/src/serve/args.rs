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
Without --tokens, every local user may do everything, and no other machine can reach it: other addresses than
loopback need --tokens or --client-ca, and a certificate. Browsers are kept to pages of the daemon itself.

Examples:
  leasehold serve
  leasehold --store redis://127.0.0.1 serve --listen 127.0.0.1:7420 --state /var/lib/leasehold
  leasehold token new ci --grant hold:job --file tokens.toml
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
    /// Take only clients with a certificate that one of these has signed, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Listen on other addresses than loopback without TLS, because something in front of it speaks TLS
    #[arg(long)]
    pub(crate) plaintext: bool,
    /// The longest that a request waits for a busy name, whatever it asks for
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = crate::span::parse)]
    pub(crate) longest_wait: Duration,
    /// How long requests and holds may take to finish once the daemon is asked to stop
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = crate::span::parse)]
    pub(crate) drain: Duration,
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
  (umask 077; leasehold token new ci --grant hold:job --file tokens.toml > ci.token)
  leasehold token new prometheus --grant 'read:*' --expires 2160h --file tokens.toml")]
    New {
        /// Who it is for: a-z, 0-9, `-` and `.`; it stands in logs
        id: String,
        /// A role on a scope of names: read, hold or admin, e.g. hold:job, hold:res:tenant-1, read:*
        #[arg(long = "grant", value_name = "ROLE:SCOPE", required = true)]
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
  leasehold audit verify ~/.local/state/leasehold/daemon/audit.jsonl")]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: AuditCommand,
}

/// What to do with a daemon's audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that no line was changed, taken out or put in: exit code 0 good, 1 not, 2 error
    Verify {
        /// The file: audit.jsonl in the daemon's state folder
        file: PathBuf,
    },
}
