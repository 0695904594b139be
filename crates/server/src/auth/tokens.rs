//! API tokens and client certificates: which principal each belongs to.
//!
//! A token is `lk_<id>_<secret>`. The file contains only the secret's SHA-256, so reading the file
//! gives no access:
//!
//! ```toml
//! [[token]]
//! id = "ci"
//! sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! expires = "2027-06-30T00:00:00Z"
//! grants = ["hold:job", "read:*"]
//!
//! [[client]]                       # a certificate that --client-ca has signed
//! san = "worker-1.example"
//! grants = ["hold:job"]
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use leasehold::clock::{Moment, SharedClock};
use leasehold_core::rng::{Random, RandomExt};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Grant, Principal};

// Bounds how long a revoked token still works, at the cost of one `stat` per interval.
const TOKENS_FILE_CHECK_INTERVAL: Duration = Duration::from_secs(2);
// Keeps a wrong path (a log, a device) from being read into memory.
const MAX_TOKENS_FILE_BYTES: u64 = 1024 * 1024;

/// A tokens file that cannot be read or parsed.
#[derive(Debug, thiserror::Error)]
#[error("tokens file {path}: {why}")]
pub struct TokensError {
    path: String,
    why: String,
}

/// The identities in force. Reloads a changed file within a few seconds; an invalid file is logged
/// and the old identities stay.
pub struct Tokens {
    path: PathBuf,
    clock: SharedClock,
    table: RwLock<Arc<IdentityTable>>,
    last_check: Mutex<(Moment, Option<FileStamp>)>,
}

/// Modification time and size; a file whose stamp is unchanged is not read again.
type FileStamp = (SystemTime, u64);

#[derive(Default)]
struct IdentityTable {
    tokens: BTreeMap<String, KnownToken>,
    clients: BTreeMap<String, Principal>,
}

struct KnownToken {
    sha256: [u8; 32],
    expires: Option<Timestamp>,
    principal: Principal,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokensFile {
    #[serde(default)]
    token: Vec<TokenEntry>,
    #[serde(default)]
    client: Vec<ClientEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    id: String,
    sha256: String,
    expires: Option<String>,
    grants: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientEntry {
    san: String,
    grants: Vec<String>,
}

impl Tokens {
    /// Reads a tokens file.
    ///
    /// # Errors
    /// The file cannot be read, other users can read it, or an entry is invalid.
    pub fn open(path: &Path, clock: SharedClock) -> Result<Self, TokensError> {
        let (table, stamp) = load_tokens_file(path)?;
        Ok(Self {
            path: path.to_owned(),
            last_check: Mutex::new((clock.now(), Some(stamp))),
            clock,
            table: RwLock::new(Arc::new(table)),
        })
    }

    /// The principal of an API token, if the token is known and has not expired.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<Principal> {
        self.refresh();
        let (id, secret) = token.strip_prefix("lk_")?.rsplit_once('_')?;
        let given: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        let table = self.table();
        let known = table.tokens.get(id);
        // Compare even for an unknown id, so that the response time does not reveal which ids
        // exist.
        let stored = known.map_or([0; 32], |known| known.sha256);
        let same = bool::from(given.ct_eq(&stored));
        let known = known.filter(|_| same)?;
        // Expiry is a calendar date, so it follows the wall clock, not the monotonic one.
        let wall = Timestamp::try_from(self.clock.wall()).ok()?;
        let good = known.expires.is_none_or(|expires| wall < expires);
        good.then(|| known.principal.clone())
    }

    /// The principal whose certificate has one of these names (SANs).
    #[must_use]
    pub fn find_client(&self, names: &[String]) -> Option<Principal> {
        self.refresh();
        let table = self.table();
        names.iter().find_map(|name| table.clients.get(name).cloned())
    }

    fn table(&self) -> Arc<IdentityTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reloads a changed file. An invalid file changes nothing: a mistake in it must neither lock
    /// all callers out nor let a stranger in.
    fn refresh(&self) {
        // Held during the load, so that a burst of requests reads a changed file once.
        let mut looked = self.last_check.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        if now.since(looked.0) < TOKENS_FILE_CHECK_INTERVAL {
            return;
        }
        looked.0 = now;
        let seen =
            std::fs::metadata(&self.path).ok().and_then(|meta| Some((meta.modified().ok()?, meta.len())));
        // A missing file is tried, and logged, at every check until it is back.
        if seen.is_some() && seen == looked.1 {
            return;
        }
        // Set before the load: an invalid file is reported once, not at every check.
        looked.1 = seen;
        match load_tokens_file(&self.path) {
            Ok((table, stamp)) => {
                looked.1 = Some(stamp);
                *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
                tracing::info!("the tokens file has changed and was taken over");
            }
            Err(error) => {
                tracing::error!(%error, "the tokens file was not taken over; the old one stays in force")
            }
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table();
        f.debug_struct("Tokens")
            .field("tokens", &table.tokens.len())
            .field("clients", &table.clients.len())
            .finish_non_exhaustive()
    }
}

/// The permission bits that must be clear. systemd gives a credential (`LoadCredential=`) to the
/// service through an access list, and an access list shows up as group bits.
fn forbidden_mode_bits(path: &Path, guarded: Option<&Path>) -> u32 {
    match guarded {
        Some(folder) if path.parent() == Some(folder) => 0o007,
        _ => 0o077,
    }
}

fn load_tokens_file(path: &Path) -> Result<(IdentityTable, FileStamp), TokensError> {
    let refuse = |why: String| TokensError { path: path.display().to_string(), why };
    let meta = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    let guarded = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    if meta.permissions().mode() & forbidden_mode_bits(path, guarded.as_deref()) != 0 {
        return Err(refuse("others can read it; run chmod 600 on it".into()));
    }
    if meta.len() > MAX_TOKENS_FILE_BYTES {
        return Err(refuse(format!("it is larger than {MAX_TOKENS_FILE_BYTES} bytes")));
    }
    let stamp = (meta.modified().map_err(|error| refuse(error.to_string()))?, meta.len());
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    // Use only the message: the parser's full error shows the line, which may contain a misplaced
    // secret.
    let file: TokensFile = toml::from_str(&text).map_err(|error| refuse(error.message().to_owned()))?;
    let mut table = IdentityTable::default();
    for entry in file.token {
        let (id, known) = parse_token_entry(entry).map_err(refuse)?;
        if table.tokens.insert(id.clone(), known).is_some() {
            return Err(refuse(format!("the token id {id} is there twice")));
        }
    }
    for entry in file.client {
        let id = format!("san:{}", entry.san);
        let principal = Principal::new(&id, parse_grants(&entry.grants).map_err(refuse)?);
        if table.clients.insert(entry.san, principal).is_some() {
            return Err(refuse(format!("{id} is there twice")));
        }
    }
    Ok((table, stamp))
}

fn parse_token_entry(entry: TokenEntry) -> Result<(String, KnownToken), String> {
    check_id(&entry.id)?;
    let sha256 = decode_sha256(&entry.sha256).ok_or_else(|| {
        format!("token {}: sha256 must be 64 hex digits, as `leasehold token new` prints them", entry.id)
    })?;
    let expires = entry.expires.as_deref().map(str::parse::<Timestamp>);
    let expires = expires
        .transpose()
        .map_err(|_| format!("token {}: expires must be a time such as 2027-06-30T00:00:00Z", entry.id))?;
    let known =
        KnownToken { sha256, expires, principal: Principal::new(&entry.id, parse_grants(&entry.grants)?) };
    Ok((entry.id, known))
}

fn parse_grants(texts: &[String]) -> Result<Vec<Grant>, String> {
    texts
        .iter()
        .map(|text| text.parse().map_err(|invalid: leasehold::InvalidInput| invalid.to_string()))
        .collect()
}

/// An id appears in logs, in the audit log and as a holder. `local` and `nobody` are the built-in
/// principals.
fn check_id(id: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if (1..=64).contains(&id.len()) && id.bytes().all(plain) && id != "local" && id != "nobody" {
        Ok(())
    } else {
        Err(format!(
            "token id {id:?} must be 1 to 64 of a-z, 0-9, `-` and `.`, and neither `local` nor `nobody`"
        ))
    }
}

fn decode_sha256(text: &str) -> Option<[u8; 32]> {
    let bytes = text.as_bytes();
    if bytes.len() != 64 || !bytes.is_ascii() {
        return None;
    }
    let mut out = [0; 32];
    for (at, slot) in out.iter_mut().enumerate() {
        *slot = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(out)
}

/// A newly made token. The secret is shown once; the file keeps only its hash.
pub struct NewToken {
    /// The text that the owner sends as `Authorization: Bearer`.
    pub token: String,
    /// The TOML entry to add to the tokens file; it contains the hash only.
    pub entry: String,
}

impl NewToken {
    /// Makes a token with a secret of 256 random bits.
    ///
    /// # Errors
    /// The id contains characters that are not allowed, or is reserved.
    pub fn make(
        id: &str,
        grants: &[Grant],
        expires: Option<Timestamp>,
        random: &dyn Random,
    ) -> Result<Self, String> {
        check_id(id)?;
        let secret = format!("{:032x}{:032x}", random.wide(), random.wide());
        let hash: String =
            Sha256::digest(secret.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        let grants: Vec<_> = grants.iter().map(|grant| format!("{:?}", grant.to_string())).collect();
        let expires = expires.map_or_else(String::new, |at| format!("expires = \"{at}\"\n"));
        Ok(Self {
            token: format!("lk_{id}_{secret}"),
            entry: format!(
                "[[token]]\nid = \"{id}\"\nsha256 = \"{hash}\"\n{expires}grants = [{}]\n",
                grants.join(", ")
            ),
        })
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewToken((hidden))")
    }
}

#[cfg(test)]
mod tests {
    use leasehold::clock::BootClock;
    use leasehold_core::rng::OsRandom;

    use super::*;

    #[test]
    fn systemd_credentials_may_have_group_bits() {
        let folder = Path::new("/run/credentials/leasehold.service");
        assert_eq!(forbidden_mode_bits(&folder.join("tokens.toml"), Some(folder)), 0o007);
        assert_eq!(forbidden_mode_bits(&folder.join("tokens.toml"), None), 0o077);
        assert_eq!(forbidden_mode_bits(Path::new("/etc/leasehold/tokens.toml"), Some(folder)), 0o077);
    }

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn new_token(expires: Option<&str>) -> NewToken {
        let expires = expires.map(|at| at.parse().unwrap());
        NewToken::make("ci", &["hold:job".parse().unwrap()], expires, &OsRandom).unwrap()
    }

    #[test]
    fn only_a_known_token_is_found() {
        let new = new_token(None);
        let (_folder, path) = file(&new.entry, 0o600);
        let tokens = Tokens::open(&path, BootClock::shared()).unwrap();
        assert_eq!(tokens.find(&new.token).unwrap().id(), "ci");
        let other = new_token(None);
        for wrong in [
            other.token.as_str(),
            "",
            "lk_ci_",
            "lk_",
            "ci",
            &new.token[3..],
            &format!("{}0", new.token),
            &new.token.replace("ci", "di"),
        ] {
            assert!(tokens.find(wrong).is_none(), "{wrong}");
        }
        assert!(!new.entry.contains(new.token.rsplit_once('_').unwrap().1));
        assert!(!format!("{new:?}{tokens:?}").contains("lk_"));
    }

    #[test]
    fn expired_tokens_are_refused() {
        for (at, good) in [("2001-01-01T00:00:00Z", false), ("2999-01-01T00:00:00Z", true)] {
            let new = new_token(Some(at));
            let (_folder, path) = file(&new.entry, 0o600);
            let tokens = Tokens::open(&path, BootClock::shared()).unwrap();
            assert_eq!(tokens.find(&new.token).is_some(), good, "{at}");
        }
    }

    #[test]
    fn bad_files_are_refused_with_the_reason() {
        let good = new_token(None).entry;
        let (_folder, path) = file(&good, 0o640);
        let message = Tokens::open(&path, BootClock::shared()).unwrap_err().to_string();
        assert!(message.contains("chmod 600"), "{message}");
        for (bad, why) in [
            (good.replace("hold:job", "own:job"), "hold:SCOPE"),
            (good.replace("hold:job", "hold:a::b"), "scope"),
            (good.replace("sha256 = \"", "sha256 = \"zz"), "64 hex"),
            (good.replace("\"ci\"", "\"local\""), "neither `local`"),
            (format!("{good}{good}"), "twice"),
            (format!("{good}secret = \"hunter2\""), "unknown field"),
            (format!("{good}expires = \"soon\""), "such as"),
        ] {
            let (_folder, path) = file(&bad, 0o600);
            let message = Tokens::open(&path, BootClock::shared()).unwrap_err().to_string();
            assert!(message.contains(why) && !message.contains("hunter2"), "{message}");
        }
    }
}
