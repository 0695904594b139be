//! What `acquire` leaves for `renew` and `release`: the token, in a file that only its owner can read.
//!
//! The token is the right to renew and release. It is never an argument, which process lists would show, and never
//! printed unless it is asked for.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold::leasehold_core::Token;
use leasehold::{Fence, Name, StoreUrl, Ttl};
use serde::{Deserialize, Serialize};

use crate::args::Place;

/// The variable that names the file.
pub(crate) const VARIABLE: &str = "LEASEHOLD_TOKEN_FILE";

/// The file's form.
const SCHEMA: u32 = 1;

/// A lease's papers.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// The store's URL, without secrets: a token means nothing to another store.
    pub(crate) store: String,
    /// What is locked.
    pub(crate) name: Name,
    /// Who may renew and release.
    pub(crate) token: Token,
    /// Missing until the store has answered.
    pub(crate) fence: Option<Fence>,
    /// Asked for with each renewal.
    pub(crate) ttl: Ttl,
    /// The same.
    pub(crate) lock_delay: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    schema_version: u32,
    store: String,
    name: String,
    token: String,
    fence: Option<Fence>,
    ttl_ms: u64,
    lock_delay_ms: u64,
}

impl Ticket {
    /// The papers as text.
    pub(crate) fn to_text(&self) -> anyhow::Result<String> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let text = Text {
            schema_version: SCHEMA,
            store: self.store.clone(),
            name: self.name.to_string(),
            token: self.token.expose().to_owned(),
            fence: self.fence,
            ttl_ms: self.ttl.as_millis(),
            lock_delay_ms: millis(self.lock_delay),
        };
        Ok(serde_json::to_string(&text)?)
    }

    /// Reads a file. What is wrong with it is told without repeating it.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) => bail!(
                "cannot read the token file {shown}: {error}\n\
                 it is what `leasehold acquire` wrote; name it with --token-file"
            ),
        };
        if meta.permissions().mode() & 0o077 != 0 {
            bail!(
                "the token file {shown} can be read by others, who could release the lock: run chmod 600 on it"
            );
        }
        let text = fs::read_to_string(path).with_context(|| format!("cannot read the token file {shown}"))?;
        Self::parse(&text)
            .with_context(|| format!("{shown} is not a token file of this version of `leasehold acquire`"))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        // The parser's own message could repeat the secret.
        let text: Text = match serde_json::from_str(text) {
            Ok(text) => text,
            Err(error) => bail!("line {} cannot be understood", error.line()),
        };
        if text.schema_version != SCHEMA {
            bail!("its schema_version is {}, known is {SCHEMA}", text.schema_version);
        }
        Ok(Self {
            store: text.store,
            name: Name::new(&text.name)?,
            token: Token::parse(&text.token)?,
            fence: text.fence,
            ttl: Ttl::new(Duration::from_millis(text.ttl_ms))?,
            lock_delay: Duration::from_millis(text.lock_delay_ms),
        })
    }

    /// The store it counts in. A token means nothing to another one, whose *not yours* would be a wrong answer.
    pub(crate) fn store(&self, place: &Place) -> anyhow::Result<StoreUrl> {
        let mine = StoreUrl::parse(&self.store)?;
        if let Some(named) = place.store.as_deref().filter(|_| !place.store_by_env) {
            let named = StoreUrl::parse(named)?;
            if named.to_string() != mine.to_string() {
                bail!(
                    "the token of {} is for {mine}, and --store says {named}: leave --store out",
                    self.name
                );
            }
            return Ok(named);
        }
        Ok(mine)
    }

    /// Makes the file; refuses to cover one that is there, which may be another lock's only token.
    pub(crate) fn create(&self, path: &Path) -> anyhow::Result<()> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let mut file = match made {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => bail!(
                "the token file {} is there already and may be a held lock's only token\n\
                 give that lock back with `leasehold release --token-file …`, or name another file",
                path.display()
            ),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot make the token file {}", path.display()));
            }
        };
        file.write_all(self.to_text()?.as_bytes())?;
        Ok(file.sync_all()?)
    }

    /// Puts what is known now in the place of what was known before, whole or not at all.
    pub(crate) fn replace(&self, path: &Path) -> anyhow::Result<()> {
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        let fresh = PathBuf::from(fresh);
        // Left by one of us that was killed in between; nobody reads it.
        let _ = fs::remove_file(&fresh);
        self.create(&fresh)?;
        fs::rename(&fresh, path).with_context(|| format!("cannot write the token file {}", path.display()))
    }
}

/// Where the papers are: `--token-file`, or what the environment says.
pub(crate) fn find(named: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    match named.filter(|path| !path.as_os_str().is_empty()).cloned() {
        Some(path) => Ok(path),
        None => bail!(
            "no token: neither --token-file nor {VARIABLE} names the file that `leasehold acquire` wrote\n\
             acquire with `eval \"$(leasehold acquire NAME)\"`, which sets {VARIABLE}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Holder;
    use leasehold::leasehold_core::rng::OsRandom;

    use super::*;

    fn ticket() -> Ticket {
        Ticket {
            store: "memory:".into(),
            name: Name::new("job:1").unwrap(),
            token: Token::fresh(&Holder::new("h").unwrap(), "scheduler", &OsRandom),
            fence: Fence::new(7),
            ttl: Ttl::new(Duration::from_secs(60)).unwrap(),
            lock_delay: Duration::ZERO,
        }
    }

    #[test]
    fn comes_back_as_it_was_and_shows_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let (path, one) = (folder.path().join("a/t"), ticket());
        one.create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let back = Ticket::read(&path).unwrap();
        assert_eq!((back.token.expose(), back.fence), (one.token.expose(), one.fence));
        assert!(!format!("{back:?}").contains(one.token.random()));
        assert!(
            one.create(&path)
                .unwrap_err()
                .to_string()
                .contains("is there already")
        );
        one.replace(&path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(Ticket::read(&path).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn nonsense_is_refused_and_not_repeated() {
        for text in ["", "hunter2", "{\"token\":\"hunter2\"}"] {
            let said = format!("{:#}", Ticket::parse(text).unwrap_err());
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
