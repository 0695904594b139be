//! A daemon with TLS, identities and a long history, in a folder of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_core::clock::{BootClock, Clock, ClockExt, run_until};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::process::{Child, Command};
use tokio_rustls::TlsConnector;

use super::https::HttpsConnection;
use crate::fleet::WorkerProgram;

const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
// As many as the daemon keeps, none of the hostile tenant: each of its queries looks at all of them.
const HISTORY_ROWS: u32 = 100_000;
// Each may have 16 history queries in the daemon's queue of 64.
const HOSTILE_IDENTITIES: usize = 4;
const REPORTED_LOG_LINES: usize = 20;

/// A running daemon.
pub(super) struct DaemonProcess {
    child: Mutex<Child>,
    address: String,
    pub(super) connector: TlsConnector,
    /// The token of the tenant whose holds must not suffer.
    pub(super) calm_token: String,
    /// The tokens of the tenant that attacks.
    pub(super) hostile_tokens: Vec<String>,
    /// A token that may read the metrics.
    observer_token: String,
    folder: tempfile::TempDir,
}

impl DaemonProcess {
    pub(super) async fn start(program: &WorkerProgram) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("leasehold-hostile-").tempdir()?;
        let at = |name: &str| folder.path().join(name).display().to_string();
        let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        write_private(&folder.path().join("cert.pem"), &certificate.cert.pem())?;
        write_private(&folder.path().join("key.pem"), &certificate.signing_key.serialize_pem())?;
        let leasehold = |words: &[&str]| {
            let binding = program.binding_prefix();
            let mut command = Command::new(&binding[0]);
            command.args(&binding[1..]).arg("/proc/self/exe").args(words);
            // The user's environment must not lead the daemon to a real store.
            command
                .env_remove("LEASEHOLD_STORE")
                .env_remove("LEASEHOLD_POLICIES")
                .env_remove("LEASEHOLD_LISTEN");
            command.current_dir(folder.path()).stdin(Stdio::null()).kill_on_drop(true);
            command
        };
        let mut tokens = Vec::new();
        let hostile = (1..=HOSTILE_IDENTITIES).map(|number| (format!("hostile-{number}"), "hold:hostile"));
        let identities = [("calm".to_owned(), "hold:calm"), ("observer".to_owned(), "read:*")];
        for (identity, grant) in identities.into_iter().chain(hostile) {
            let words = ["token", "new", &identity, "--grant", grant, "--file", &at("tokens.toml")];
            let made = leasehold(&words).output().await.context("cannot make a token")?;
            if !made.status.success() {
                bail!("cannot make a token: {}", String::from_utf8_lossy(&made.stderr));
            }
            tokens.push(String::from_utf8_lossy(&made.stdout).trim().to_owned());
        }
        let words = [
            "--store",
            &format!("sqlite:{}", at("locks.db")),
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--state",
            &at("state"),
            "--tokens",
            &at("tokens.toml"),
            "--tls-cert",
            &at("cert.pem"),
            "--tls-key",
            &at("key.pem"),
        ];
        let serve = async || -> anyhow::Result<(Child, String)> {
            let log = fs::File::create(folder.path().join("log"))?;
            let child = leasehold(&words).stdout(Stdio::null()).stderr(log).spawn();
            let child = child.context("cannot start a daemon")?;
            let address =
                run_until(&BootClock, BootClock.now() + START_TIMEOUT, find_address(folder.path())).await;
            let Some(address) = address else {
                bail!("the daemon did not start: {}", fs::read_to_string(folder.path().join("log"))?);
            };
            Ok((child, address))
        };
        // The first run makes the tables of its history.
        let (mut first, _) = serve().await?;
        stop(&mut first).await?;
        fill_history(&folder.path().join("state/daemon.db")).context("cannot fill the history")?;
        let (child, address) = serve().await?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.path().join("cert.pem"))?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let hostile_tokens = tokens.split_off(2);
        let [calm_token, observer_token] =
            <[String; 2]>::try_from(tokens).map_err(|_| anyhow::anyhow!("there must be two tokens"))?;
        let child = Mutex::new(child);
        Ok(Self { child, address, connector, calm_token, hostile_tokens, observer_token, folder })
    }

    /// The daemon's exit status and the end of its log, if it has ended.
    pub(super) fn crash_report(&self) -> Option<String> {
        let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait().ok().flatten()?;
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(REPORTED_LOG_LINES)..].join("\n");
        Some(format!("the daemon has ended ({status}); the end of its log:\n{tail}"))
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The number of time series on `/metrics`.
    pub(super) async fn metric_series(&self) -> std::io::Result<usize> {
        let mut connection = HttpsConnection::open(self).await?;
        let answer = connection.request("GET", "/metrics", Some(&self.observer_token), "").await?;
        if answer.status != 200 {
            return Err(std::io::Error::other(format!("/metrics is answered with {}", answer.status)));
        }
        let text = String::from_utf8_lossy(&answer.body);
        Ok(text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count())
    }

    /// How many sockets the daemon has open; none after it has ended.
    pub(super) fn open_sockets(&self) -> usize {
        let Some(pid) = self.pid() else { return 0 };
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter(|file| fs::read_link(file.path()).is_ok_and(|target| is_socket(&target))).count()
    }

    /// The memory that the daemon has resident, in MiB, and the most that it had so far.
    pub(super) fn resident_mib(&self) -> Option<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()?)).ok()?;
        let read = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib / 1024)
        };
        Some((read("VmRSS:")?, read("VmHWM:")?))
    }

    fn pid(&self) -> Option<u32> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).id()
    }
}

fn is_socket(target: &Path) -> bool {
    target.to_string_lossy().starts_with("socket:")
}

async fn stop(daemon: &mut Child) -> anyhow::Result<()> {
    let pid = daemon.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    kill_process(pid.context("the daemon has ended at once")?, Signal::TERM)?;
    let ended = run_until(&BootClock, BootClock.now() + STOP_TIMEOUT, daemon.wait()).await;
    ended.context("the daemon does not stop")??;
    Ok(())
}

/// Inserts ended holds of a third tenant into the history of a stopped daemon.
fn fill_history(path: &Path) -> rusqlite::Result<()> {
    let mut db = Connection::open(path)?;
    let filling = db.transaction()?;
    {
        let mut insert = filling.prepare(
            "INSERT INTO history (epoch, hold, name, class, holder, since, until, ended)
             VALUES ('past', ?1, 'past:' || ?1, 'default', 'a worker of the past', ?1, ?1, 'released')",
        )?;
        for hold in 1..=HISTORY_ROWS {
            insert.execute([hold])?;
        }
    }
    filling.commit()
}

/// Waits until the daemon's log names its address.
async fn find_address(folder: &Path) -> String {
    loop {
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        // A whole line, so that the port is not cut off.
        let lines = log.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let found = lines.split_whitespace().find_map(|word| word.strip_prefix("https://"));
        if let Some(address) = found {
            return address.trim_end_matches([',', '.']).to_owned();
        }
        BootClock.sleep(Duration::from_millis(50)).await;
    }
}

fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
    Ok(())
}
