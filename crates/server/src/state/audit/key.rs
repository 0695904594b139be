//! The key of the audit log: a file beside the log that only the daemon's user can read.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use leasehold_core::atomic_file::{FileAccess, replace_durably};
use leasehold_core::rng::{RandomExt, SharedRandom};
use sha2::Sha256;

use super::line::to_hex;
use super::segments;

const KEY_BYTES: usize = 32;

/// The HMAC key that seals the lines. Without it, a changed log cannot be sealed again.
#[derive(Clone)]
pub(super) struct AuditKey(Hmac<Sha256>);

/// The key at the start of the daemon.
#[derive(Debug)]
pub(super) struct LoadedKey {
    pub(super) key: AuditKey,
    /// The key before this one could not be used: the log before now cannot be verified.
    pub(super) damage: Option<String>,
    /// Others could read the key.
    pub(super) opened_to_others: Option<String>,
}

impl AuditKey {
    /// Reads the key file, or makes one if there is none or it cannot be used: the log must not keep the
    /// lock service down.
    ///
    /// # Errors
    /// The folder or the disk does not allow it.
    pub(super) fn load_or_create(path: &Path, random: &SharedRandom) -> Result<LoadedKey, String> {
        let io_error = |error: io::Error| describe(path, &error.to_string());
        let mut damage = None;
        if has_entry(path) {
            match Self::load(path) {
                Ok(key) => return Ok(LoadedKey { key, damage, opened_to_others: make_private(path) }),
                Err(why) => {
                    let kept = segments::set_aside(path).map_err(io_error)?;
                    damage = Some(format!("{why}; kept as {kept}, and a new key was made"));
                }
            }
        }
        create(path, random).map_err(io_error)?;
        Ok(LoadedKey { key: Self::load(path)?, damage, opened_to_others: None })
    }

    /// Reads the key file.
    ///
    /// # Errors
    /// There is none, or it is not a key.
    pub(super) fn load(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| describe(path, &error.to_string()))?;
        let bytes = parse_hex(text.trim())
            .ok_or_else(|| describe(path, "is not the key of an audit log, which has 64 hex digits"))?;
        let mac = Hmac::new_from_slice(&bytes).map_err(|error| describe(path, &error.to_string()))?;
        Ok(Self(mac))
    }

    /// The MAC of `bytes` as hex digits.
    pub(super) fn mac(&self, bytes: &[u8]) -> String {
        to_hex(&self.0.clone().chain_update(bytes).finalize().into_bytes())
    }
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditKey((hidden))")
    }
}

/// Whether the name is taken, also by a link to nothing.
pub(super) fn has_entry(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Takes a key from others who could read it, and says so.
fn make_private(path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    if mode & 0o077 == 0 {
        return None;
    }
    let outcome = match fs::set_permissions(path, Permissions::from_mode(0o600)) {
        Ok(()) => "is private again".to_owned(),
        Err(error) => format!("cannot be made private: {error}"),
    };
    Some(format!("audit.key had mode {:03o}, so that others could read it; it {outcome}", mode & 0o777))
}

/// Written whole and then renamed: a crash must not leave half a key.
fn create(path: &Path, random: &SharedRandom) -> std::io::Result<()> {
    let bytes = [random.wide().to_be_bytes(), random.wide().to_be_bytes()].concat();
    replace_durably(path, FileAccess::Private, format!("{}\n", to_hex(&bytes)).as_bytes())
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 2 * KEY_BYTES || !text.is_ascii() {
        return None;
    }
    (0..KEY_BYTES).map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()).collect()
}

fn describe(path: &Path, why: &str) -> String {
    format!("{}: {why}", path.display())
}
