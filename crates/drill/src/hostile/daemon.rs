//! A daemon with TLS and two identities, in a folder of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold_core::clock::{BootClock, Clock, ClockExt, run_until};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::process::{Child, Command};
use tokio_rustls::TlsConnector;

use super::https::HttpsConnection;
use crate::fleet::WorkerProgram;

const START_TIMEOUT: Duration = Duration::from_secs(30);
// As long as an orchestrator's probe may wait.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A running daemon.
pub(super) struct DaemonProcess {
    child: Child,
    address: String,
    pub(super) connector: TlsConnector,
    /// The token of the tenant whose holds must not suffer.
    pub(super) calm_token: String,
    /// The token of the tenant that attacks.
    pub(super) hostile_token: String,
    _folder: tempfile::TempDir,
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
        for tenant in ["calm", "hostile"] {
            let grant = format!("hold:{tenant}");
            let words = ["token", "new", tenant, "--grant", &grant, "--file", &at("tokens.toml")];
            let made = leasehold(&words).output().await.context("cannot make a token")?;
            if !made.status.success() {
                bail!("cannot make a token: {}", String::from_utf8_lossy(&made.stderr));
            }
            tokens.push(String::from_utf8_lossy(&made.stdout).trim().to_owned());
        }
        let log = fs::File::create(folder.path().join("log"))?;
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
        let child =
            leasehold(&words).stdout(Stdio::null()).stderr(log).spawn().context("cannot start a daemon")?;
        let address =
            run_until(&BootClock, BootClock.now() + START_TIMEOUT, find_address(folder.path())).await;
        let Some(address) = address else {
            bail!("the daemon did not start: {}", fs::read_to_string(folder.path().join("log"))?);
        };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.path().join("cert.pem"))?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let [calm_token, hostile_token] =
            <[String; 2]>::try_from(tokens).map_err(|_| anyhow::anyhow!("there must be two tokens"))?;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Self { child, address, connector, calm_token, hostile_token, _folder: folder })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Whether `/healthz` answers on a new connection, as an orchestrator's probe would see it.
    pub(super) async fn is_alive(&self) -> bool {
        let probe = async {
            let mut connection = HttpsConnection::open(self).await?;
            connection.request("GET", "/healthz", None, "").await
        };
        let answer = run_until(&BootClock, BootClock.now() + PROBE_TIMEOUT, probe).await;
        matches!(answer, Some(Ok(answer)) if answer.status == 200)
    }

    /// The most memory that the daemon had resident so far.
    pub(super) fn peak_resident_mib(&self) -> anyhow::Result<u64> {
        let pid = self.child.id().context("the daemon has ended")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        Ok(kib.context("the kernel does not tell the daemon's memory")? / 1024)
    }
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
