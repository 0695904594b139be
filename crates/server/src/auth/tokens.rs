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
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use leasehold::clock::SharedClock;
use leasehold_core::private_file::is_private;
use serde::Deserialize;
use subtle::ConstantTimeEq;

use super::admission::{Admission, Credential};
use super::{Grant, OwnerToken, Principal};
use crate::config::Config;
use crate::followed_file::{FollowedFiles, read_bounded};

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
    /// `None`: the identities are fixed.
    file: Option<(PathBuf, FollowedFiles)>,
    clock: SharedClock,
    table: RwLock<Arc<IdentityTable>>,
}

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
        // Before the load: a change while the file is read is found at the next check.
        let followed = FollowedFiles::new(vec![path.to_owned()], Arc::clone(&clock));
        let table = load_tokens_file(path)?;
        Ok(Self { file: Some((path.to_owned(), followed)), clock, table: RwLock::new(Arc::new(table)) })
    }

    /// Checks the text of a tokens file before it is written to `path`.
    ///
    /// # Errors
    /// An entry is invalid.
    pub fn check(path: &Path, text: &str) -> Result<(), TokensError> {
        parse_tokens_file(path, text).map(drop)
    }

    /// The identities of this configuration; `None` if callers are not identified.
    pub(crate) fn from_config(config: &Config, clock: &SharedClock) -> Result<Option<Self>, TokensError> {
        if config.unauthenticated {
            return Ok(None);
        }
        if let Some(path) = &config.tokens {
            return Self::open(path, Arc::clone(clock)).map(Some);
        }
        let table = config.owner_token.as_ref().map(IdentityTable::of_owner).unwrap_or_default();
        Ok(Some(Self { file: None, clock: Arc::clone(clock), table: RwLock::new(Arc::new(table)) }))
    }

    /// Whether no identity can be added or revoked while the daemon runs.
    pub(crate) fn are_fixed(&self) -> bool {
        self.file.is_none()
    }

    /// The principal of an API token, if the token is known and has not expired.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<Principal> {
        self.identify(&Credential::from_token(token)?)
    }

    /// The principal of a credential, if it is known and has not expired.
    pub(crate) fn identify(&self, credential: &Credential) -> Option<Principal> {
        self.refresh();
        let table = self.table();
        let principal = match credential {
            Credential::Certificate(certificate) => {
                if !certificate.is_trusted() {
                    return None;
                }
                certificate.names.iter().find_map(|name| table.clients.get(name))?
            }
            Credential::Token { id, sha256 } => {
                let known = table.tokens.get(id);
                // Compare even for an unknown id, so that the response time does not reveal which
                // ids exist.
                let stored = known.map_or([0; 32], |known| known.sha256);
                let same = bool::from(sha256.ct_eq(&stored));
                let known = known.filter(|_| same)?;
                // Expiry is a calendar date, so it follows the wall clock, not the monotonic one.
                let wall = Timestamp::try_from(self.clock.wall()).ok()?;
                if known.expires.is_some_and(|expires| wall >= expires) {
                    return None;
                }
                &known.principal
            }
        };
        // Fixed identities need no second check, and most of their connections only wait.
        if self.are_fixed() {
            return Some(principal.clone());
        }
        Some(principal.clone().with_admission(Admission::new(credential.clone())))
    }

    /// Every principal of the file.
    pub(crate) fn principals(&self) -> Vec<Principal> {
        let table = self.table();
        let tokens = table.tokens.values().map(|known| &known.principal);
        tokens.chain(table.clients.values()).cloned().collect()
    }

    fn table(&self) -> Arc<IdentityTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reloads a changed file. An invalid file changes nothing: a mistake in it must neither lock
    /// all callers out nor let a stranger in.
    fn refresh(&self) {
        let Some((path, followed)) = &self.file else { return };
        followed.reload_if_changed(|| match load_tokens_file(path) {
            Ok(table) => {
                *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
                tracing::info!("the tokens file has changed and was taken over");
            }
            Err(error) => {
                tracing::error!(%error, "the tokens file was not taken over; the old one stays in force")
            }
        });
    }
}

impl IdentityTable {
    /// The owner of a daemon without a tokens file is its only identity.
    fn of_owner(token: &OwnerToken) -> Self {
        let mut table = Self::default();
        if let Some(Credential::Token { id, sha256 }) = Credential::from_token(token.expose()) {
            table.tokens.insert(id, KnownToken { sha256, expires: None, principal: Principal::local() });
        }
        table
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

fn load_tokens_file(path: &Path) -> Result<IdentityTable, TokensError> {
    let refuse = |why: String| TokensError { path: path.display().to_string(), why };
    if !is_private(path).map_err(|error| refuse(error.to_string()))? {
        return Err(refuse("others can read it; run chmod 600 on it".into()));
    }
    let text = read_bounded(path).map_err(|error| refuse(error.to_string()))?;
    let text = String::from_utf8(text).map_err(|_| refuse("it is not UTF-8 text".into()))?;
    parse_tokens_file(path, &text)
}

fn parse_tokens_file(path: &Path, text: &str) -> Result<IdentityTable, TokensError> {
    let refuse = |why: String| TokensError { path: path.display().to_string(), why };
    // Use only the message: the parser's full error shows the line, which may contain a misplaced
    // secret.
    let file: TokensFile = toml::from_str(text).map_err(|error| refuse(error.message().to_owned()))?;
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
    Ok(table)
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

/// Ids that a token cannot have: the built-in principals, and what the plane records without one.
const RESERVED_IDS: [&str; 3] = ["local", "nobody", "unauthenticated"];

/// An id appears in logs, in the audit log and as a holder.
pub(super) fn check_id(id: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if (1..=64).contains(&id.len()) && id.bytes().all(plain) && !RESERVED_IDS.contains(&id) {
        Ok(())
    } else {
        Err(format!(
            "token id {id:?} must be 1 to 64 of a-z, 0-9, `-` and `.`, and none of {}",
            RESERVED_IDS.join(", ")
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use leasehold::clock::BootClock;
    use leasehold_core::rng::OsRandom;

    use super::*;
    use crate::auth::NewToken;

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
            (good.replace("hold:job", "own:job"), "RIGHT:SCOPE"),
            (good.replace("hold:job", "hold:a::b"), "scope"),
            (good.replace("sha256 = \"", "sha256 = \"zz"), "64 hex"),
            (good.replace("\"ci\"", "\"local\""), "none of local"),
            (good.replace("\"ci\"", "\"unauthenticated\""), "unauthenticated"),
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
