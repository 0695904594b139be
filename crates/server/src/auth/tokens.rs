//! API tokens and client certificates: who they are, and what they may.
//!
//! A token is `lk_<id>_<secret>`. The file keeps the secret's SHA-256 only, so that reading it gives nobody a right:
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
use leasehold::leasehold_core::rng::{Random, RandomExt};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Grant, Principal};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// A file larger than this is none.
const LARGEST: u64 = 1024 * 1024;

/// Why a tokens file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("tokens file {path}: {why}")]
pub struct TokensError {
    path: String,
    why: String,
}

/// The identities in force. A change of the file counts within a few seconds; a bad one is refused and said.
pub struct Tokens {
    path: PathBuf,
    clock: SharedClock,
    table: RwLock<Arc<Table>>,
    looked: Mutex<(Moment, Option<Stamp>)>,
}

/// By what a changed file is known.
type Stamp = (SystemTime, u64);

#[derive(Default)]
struct Table {
    tokens: BTreeMap<String, Known>,
    clients: BTreeMap<String, Principal>,
}

struct Known {
    sha256: [u8; 32],
    expires: Option<Timestamp>,
    principal: Principal,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
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
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, others can read it, or something in it makes no sense.
    pub fn open(path: &Path, clock: SharedClock) -> Result<Self, TokensError> {
        let (table, stamp) = load(path)?;
        Ok(Self {
            path: path.to_owned(),
            looked: Mutex::new((clock.now(), Some(stamp))),
            clock,
            table: RwLock::new(Arc::new(table)),
        })
    }

    /// Whose token it is, if it is one and still good.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<Principal> {
        self.refresh();
        let (id, secret) = token.strip_prefix("lk_")?.rsplit_once('_')?;
        let given: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        let table = self.table();
        let known = table.tokens.get(id);
        // Compared even if nobody has this id: how long it takes says nothing.
        let stored = known.map_or([0; 32], |known| known.sha256);
        let same = bool::from(given.ct_eq(&stored));
        let known = known.filter(|_| same)?;
        let wall = Timestamp::try_from(self.clock.wall()).ok()?;
        let good = known.expires.is_none_or(|expires| wall < expires);
        good.then(|| known.principal.clone())
    }

    /// Whose certificate has one of these names.
    #[must_use]
    pub fn find_client(&self, names: &[String]) -> Option<Principal> {
        self.refresh();
        let table = self.table();
        names.iter().find_map(|name| table.clients.get(name).cloned())
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a changed file over. A bad one changes nothing: a mistake in it must neither lock everybody out nor let
    /// anybody in.
    fn refresh(&self) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        if now.since(looked.0) < LOOK {
            return;
        }
        looked.0 = now;
        let seen = std::fs::metadata(&self.path)
            .ok()
            .and_then(|meta| Some((meta.modified().ok()?, meta.len())));
        if seen.is_some() && seen == looked.1 {
            return;
        }
        looked.1 = seen;
        match load(&self.path) {
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

/// The bits that nobody else may have. What systemd hands to a service (`LoadCredential=`) is readable by that service alone, by an access
/// list, and such a list shows as the group's bits.
fn others(path: &Path, guarded: Option<&Path>) -> u32 {
    match guarded {
        Some(folder) if path.parent() == Some(folder) => 0o007,
        _ => 0o077,
    }
}

fn load(path: &Path) -> Result<(Table, Stamp), TokensError> {
    let refuse = |why: String| TokensError {
        path: path.display().to_string(),
        why,
    };
    let meta = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
    let guarded = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    if meta.permissions().mode() & others(path, guarded.as_deref()) != 0 {
        return Err(refuse("others can read it; run chmod 600 on it".into()));
    }
    if meta.len() > LARGEST {
        return Err(refuse(format!("it is larger than {LARGEST} bytes")));
    }
    let stamp = (
        meta.modified().map_err(|error| refuse(error.to_string()))?,
        meta.len(),
    );
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    // The parser's message shows the line, and the line may have a secret that does not belong there.
    let file: File = toml::from_str(&text).map_err(|error| refuse(error.message().to_owned()))?;
    let mut table = Table::default();
    for entry in file.token {
        let (id, known) = token(entry).map_err(refuse)?;
        if table.tokens.insert(id.clone(), known).is_some() {
            return Err(refuse(format!("the token id {id} is there twice")));
        }
    }
    for entry in file.client {
        let id = format!("san:{}", entry.san);
        let principal = Principal::new(&id, grants(&entry.grants).map_err(refuse)?);
        if table.clients.insert(entry.san, principal).is_some() {
            return Err(refuse(format!("{id} is there twice")));
        }
    }
    Ok((table, stamp))
}

fn token(entry: TokenEntry) -> Result<(String, Known), String> {
    check_id(&entry.id)?;
    let sha256 = unhex(&entry.sha256).ok_or_else(|| {
        format!(
            "token {}: sha256 must be 64 hex digits, as `leasehold token new` prints them",
            entry.id
        )
    })?;
    let expires = entry.expires.as_deref().map(str::parse::<Timestamp>);
    let expires = expires.transpose().map_err(|_| {
        format!(
            "token {}: expires must be a time such as 2027-06-30T00:00:00Z",
            entry.id
        )
    })?;
    let known = Known {
        sha256,
        expires,
        principal: Principal::new(&entry.id, grants(&entry.grants)?),
    };
    Ok((entry.id, known))
}

fn grants(texts: &[String]) -> Result<Vec<Grant>, String> {
    texts
        .iter()
        .map(|text| {
            text.parse()
                .map_err(|invalid: leasehold::Invalid| invalid.to_string())
        })
        .collect()
}

/// An id stands in logs, in the audit log and in lists of holders.
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

fn unhex(text: &str) -> Option<[u8; 32]> {
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

/// A token that was made just now. It is shown once.
pub struct NewToken {
    /// What its owner sends.
    pub token: String,
    /// What belongs into the file.
    pub entry: String,
}

impl NewToken {
    /// 256 random bits under this id.
    ///
    /// # Errors
    /// The id cannot be one.
    pub fn make(
        id: &str,
        grants: &[Grant],
        expires: Option<Timestamp>,
        random: &dyn Random,
    ) -> Result<Self, String> {
        check_id(id)?;
        let secret = format!("{:032x}{:032x}", random.wide(), random.wide());
        let hash: String = Sha256::digest(secret.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let grants: Vec<_> = grants
            .iter()
            .map(|grant| format!("{:?}", grant.to_string()))
            .collect();
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
    use leasehold::leasehold_core::rng::OsRandom;

    use super::*;

    #[test]
    fn what_systemd_hands_over_may_have_an_access_list() {
        let folder = Path::new("/run/credentials/leasehold.service");
        assert_eq!(others(&folder.join("tokens.toml"), Some(folder)), 0o007);
        assert_eq!(others(&folder.join("tokens.toml"), None), 0o077);
        assert_eq!(
            others(Path::new("/etc/leasehold/tokens.toml"), Some(folder)),
            0o077
        );
    }

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn made(expires: Option<&str>) -> NewToken {
        let expires = expires.map(|at| at.parse().unwrap());
        NewToken::make("ci", &["hold:job".parse().unwrap()], expires, &OsRandom).unwrap()
    }

    #[test]
    fn a_made_token_is_found_and_no_other() {
        let new = made(None);
        let (_folder, path) = file(&new.entry, 0o600);
        let tokens = Tokens::open(&path, BootClock::shared()).unwrap();
        assert_eq!(tokens.find(&new.token).unwrap().id(), "ci");
        let other = made(None);
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
    fn an_expired_token_is_no_token() {
        for (at, good) in [("2001-01-01T00:00:00Z", false), ("2999-01-01T00:00:00Z", true)] {
            let new = made(Some(at));
            let (_folder, path) = file(&new.entry, 0o600);
            let tokens = Tokens::open(&path, BootClock::shared()).unwrap();
            assert_eq!(tokens.find(&new.token).is_some(), good, "{at}");
        }
    }

    #[test]
    fn bad_files_are_refused_with_the_reason() {
        let good = made(None).entry;
        let (_folder, path) = file(&good, 0o640);
        let said = Tokens::open(&path, BootClock::shared()).unwrap_err().to_string();
        assert!(said.contains("chmod 600"), "{said}");
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
            let said = Tokens::open(&path, BootClock::shared()).unwrap_err().to_string();
            assert!(said.contains(why) && !said.contains("hunter2"), "{said}");
        }
    }
}
