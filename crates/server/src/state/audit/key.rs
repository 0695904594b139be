//! The key of the audit log: a file beside the log that only the daemon's user can read.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use leasehold_core::atomic_file::{FileAccess, replace_durably};
use leasehold_core::rng::{RandomExt, SharedRandom};
use sha2::Sha256;

use super::line::to_hex;

const KEY_BYTES: usize = 32;

/// The HMAC key that seals the lines. Without it, a changed log cannot be sealed again.
#[derive(Clone)]
pub(super) struct AuditKey(Hmac<Sha256>);

impl AuditKey {
    /// Reads the key file, or makes one if there is none.
    ///
    /// # Errors
    /// The file cannot be used, or other users can read it.
    pub(super) fn load_or_create(path: &Path, random: &SharedRandom) -> Result<Self, String> {
        if !path.try_exists().map_err(|error| describe(path, &error.to_string()))? {
            create(path, random).map_err(|error| describe(path, &error.to_string()))?;
        }
        Self::load(path)
    }

    /// Reads the key file.
    ///
    /// # Errors
    /// There is none, it is not a key, or other users can read it.
    pub(super) fn load(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| describe(path, &error.to_string()))?;
        let mode =
            fs::metadata(path).map_err(|error| describe(path, &error.to_string()))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(describe(path, "others can read the key of the audit log; run chmod 600 on it"));
        }
        let bytes = parse_hex(text.trim()).ok_or_else(|| {
            describe(path, "is not the key of an audit log (64 hex digits); restore it, or move it away to begin with a new key")
        })?;
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
