//! `leasehold config trust` and `untrust`: which `leasehold.toml` may name a store.
//!
//! One record per file in the user's state folder. It holds the SHA-256 of the trusted content, so that a changed file,
//! for example after a pull, must be trusted again.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use leasehold_core::atomic_file::{FileAccess, replace_durably};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::file::{FileOwner, read};
use super::restricted::DistrustReason;
use super::{LOCAL_CONFIG_FILE, Settings};
use crate::message::print_message;

const TRUST_SCHEMA: u32 = 1;
// A record has a path and a hash; the longest path of Linux has 4096 bytes.
const MAX_RECORD_BYTES: u64 = 64 * 1024;

#[derive(Debug, Serialize, Deserialize)]
struct TrustRecord {
    schema_version: u32,
    /// For `--list`. The record's own name is the hash of the exact path.
    path: String,
    /// Of the content that was trusted.
    sha256: String,
}

/// The folder with the records.
#[derive(Debug)]
pub(super) struct TrustStore(Option<PathBuf>);

impl TrustStore {
    pub(super) fn new(state_folder: Option<&Path>) -> Self {
        Self(state_folder.map(|folder| folder.join("trusted")))
    }

    /// Why the file in the current folder is not trusted with this content; `None` if it is.
    pub(super) fn distrust(&self, path: &Path, text: &str) -> Option<DistrustReason> {
        let record = self.record_path(path).ok().and_then(|record| read_record(&record));
        match record {
            None => Some(DistrustReason::NotTrusted),
            Some(record) if record.sha256 != hex_digest(text.as_bytes()) => Some(DistrustReason::Changed),
            Some(_) => None,
        }
    }

    fn folder(&self) -> anyhow::Result<&Path> {
        self.0.as_deref().context(
            "neither XDG_STATE_HOME nor HOME says where trusted files are recorded: set one, or name the store with --store",
        )
    }

    /// The record of a configuration file, by its canonical folder.
    fn record_path(&self, path: &Path) -> anyhow::Result<PathBuf> {
        Ok(self.folder()?.join(hex_digest(canonical(path)?.as_os_str().as_bytes())))
    }

    fn trust(&self, path: &Path) -> anyhow::Result<bool> {
        let Some(file) = read(path)? else {
            bail!("{} is not there: name a folder with a {LOCAL_CONFIG_FILE}", path.display());
        };
        let (record_path, path) = (self.record_path(path)?, canonical(path)?);
        let record = TrustRecord {
            schema_version: TRUST_SCHEMA,
            path: path.to_string_lossy().into_owned(),
            sha256: hex_digest(file.text.as_bytes()),
        };
        let folder = self.folder()?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        replace_durably(&record_path, FileAccess::Private, serde_json::to_string(&record)?.as_bytes())
            .with_context(|| format!("cannot write {}", record_path.display()))?;
        let settings = file.found.settings;
        let store = settings.store.map(|store| format!("store {}", leasehold::redact(&store.value)));
        let audit_file = settings.audit_file.map(|file| format!("audit_file {}", file.value.display()));
        let allowed: Vec<_> = store.into_iter().chain(audit_file).collect();
        let allowed =
            if allowed.is_empty() { "nothing that needs it".to_owned() } else { allowed.join(", ") };
        print_message(&format!("{} is trusted until it is changed; it sets {allowed}", path.display()));
        Ok(true)
    }

    /// Removes the record. Returns false if there is none.
    fn untrust(&self, path: &Path) -> anyhow::Result<bool> {
        let record_path = self.record_path(path)?;
        match std::fs::remove_file(&record_path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                print_message(&format!("{} was not trusted", path.display()));
                Ok(false)
            }
            Err(error) => Err(error).with_context(|| format!("cannot remove {}", record_path.display())),
        }
    }

    /// The trusted files, with what became of each since.
    fn list(&self) -> anyhow::Result<Vec<Vec<String>>> {
        let folder = self.folder()?;
        let records = match std::fs::read_dir(folder) {
            Ok(records) => records,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", folder.display())),
        };
        let mut rows = Vec::new();
        for entry in records {
            if let Some(record) = read_record(&entry?.path()) {
                let state = match read(Path::new(&record.path)) {
                    Ok(Some(file)) if hex_digest(file.text.as_bytes()) == record.sha256 => "trusted",
                    Ok(None) => "gone",
                    Ok(Some(_)) | Err(_) => "changed since",
                };
                rows.push(vec![record.path, state.to_owned()]);
            }
        }
        rows.sort();
        Ok(rows)
    }
}

/// A record that only this user can have written.
fn read_record(path: &Path) -> Option<TrustRecord> {
    let file = File::open(path).ok()?;
    if FileOwner::of(&file.metadata().ok()?).foreign_writer().is_some() {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_RECORD_BYTES).read_to_string(&mut text).ok()?;
    let record: TrustRecord = serde_json::from_str(&text).ok()?;
    (record.schema_version == TRUST_SCHEMA).then_some(record)
}

/// The path with its folder resolved. The file itself may be a link: its content decides, not its place.
fn canonical(path: &Path) -> anyhow::Result<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = match folder.canonicalize() {
        Ok(folder) => folder,
        // The trust of a folder that is gone can still be taken back.
        Err(_) => std::path::absolute(folder)?,
    };
    Ok(folder.join(LOCAL_CONFIG_FILE))
}

fn hex_digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The configuration file that an argument names by itself or by its folder.
fn named_file(named: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    let path = named.cloned().unwrap_or_else(|| PathBuf::from("."));
    if path.is_dir() {
        return Ok(path.join(LOCAL_CONFIG_FILE));
    }
    if path.file_name().is_some_and(|name| name == LOCAL_CONFIG_FILE) {
        return Ok(path);
    }
    bail!(
        "{} is neither a folder nor a file named {LOCAL_CONFIG_FILE}, and only those need trust",
        path.display()
    )
}

/// `config trust`: trusts a file as it is now, or lists the trusted ones.
pub(crate) fn trust(named: Option<&PathBuf>, list: bool) -> anyhow::Result<bool> {
    let store = TrustStore::new(Settings::state_folder().as_deref());
    if !list {
        return store.trust(&named_file(named)?);
    }
    let mut out = crate::output::stdout();
    crate::lease::write_table(&mut out, ["FILE", "STATE"], store.list()?)?;
    out.flush()?;
    Ok(true)
}

/// `config untrust`. Returns false if the file was not trusted.
pub(crate) fn untrust(named: Option<&PathBuf>) -> anyhow::Result<bool> {
    TrustStore::new(Settings::state_folder().as_deref()).untrust(&named_file(named)?)
}
