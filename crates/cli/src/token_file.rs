//! The token file that `acquire` writes for `renew` and `release`, readable only by its owner.
//!
//! The token is the right to renew and release. It is never an argument, because process lists show
//! arguments. It is printed only on request.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold::clock::Moment;
use leasehold::policy::{Class, PolicyBook};
use leasehold::{Fence, Name, StoreUrl, Ttl};
use leasehold_core::Token;
use leasehold_core::atomic_file::{self, FileAccess};
use serde::{Deserialize, Serialize};

use crate::config::Settings;

/// The environment variable with the path of the token file.
pub(crate) const TOKEN_FILE_VARIABLE: &str = "LEASEHOLD_TOKEN_FILE";

const TOKEN_FILE_SCHEMA: u32 = 1;

/// The content of a token file.
#[derive(Debug)]
pub(crate) struct TokenFile {
    /// The store's whole URL: a token is valid in one store only. The file is private to its owner.
    pub(crate) store: String,
    pub(crate) name: Name,
    pub(crate) token: Token,
    /// `None` until the store has granted the lease.
    pub(crate) fence: Option<Fence>,
    /// Sent with each renewal, as is `lock_delay`.
    pub(crate) ttl: Ttl,
    pub(crate) lock_delay: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFileText {
    schema_version: u32,
    store: String,
    name: String,
    token: String,
    fence: Option<Fence>,
    ttl_ms: u64,
    lock_delay_ms: u64,
}

impl TokenFile {
    pub(crate) fn to_text(&self) -> anyhow::Result<String> {
        let text = TokenFileText {
            schema_version: TOKEN_FILE_SCHEMA,
            store: self.store.clone(),
            name: self.name.to_string(),
            token: self.token.expose().to_owned(),
            fence: self.fence,
            ttl_ms: self.ttl.as_millis(),
            lock_delay_ms: crate::lease::millis(self.lock_delay),
        };
        Ok(serde_json::to_string(&text)?)
    }

    /// Reads a token file. Errors never repeat its content.
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
        // The parser's own message could contain the token.
        let text: TokenFileText = match serde_json::from_str(text) {
            Ok(text) => text,
            Err(error) => bail!("line {} cannot be understood", error.line()),
        };
        if text.schema_version != TOKEN_FILE_SCHEMA {
            bail!("its schema_version is {}, known is {TOKEN_FILE_SCHEMA}", text.schema_version);
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

    /// The store that granted this token.
    pub(crate) fn granting_store(&self, settings: &Settings) -> anyhow::Result<StoreUrl> {
        // Another store would answer "not owned", which the caller would take for a lost lease.
        let mine = StoreUrl::parse(&self.store)?;
        // LEASEHOLD_STORE is a general default; only an explicit --store contradicts the token file.
        if settings.store.origin == "command line" {
            let named = StoreUrl::parse(&settings.store.value)?;
            if named != mine {
                bail!(
                    "the token of {} is for {mine}, and --store says {named}: leave --store out",
                    self.name
                );
            }
            return Ok(named);
        }
        Ok(mine)
    }

    /// A class with the terms of this lease. The file does not name the class of the acquire, and a
    /// release must not fail because a policy file is invalid.
    pub(crate) fn release_class(&self, timeout: Duration) -> anyhow::Result<Arc<Class>> {
        let mut class = Class::clone(&*PolicyBook::builtin().class("scheduler", Moment::ZERO)?);
        (class.ttl, class.release.lock_delay, class.release.timeout) = (self.ttl, self.lock_delay, timeout);
        Ok(Arc::new(class))
    }

    /// Creates the file. An existing file is never overwritten: it may hold another lock's only token.
    pub(crate) fn create(&self, path: &Path) -> anyhow::Result<()> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let mut file = match atomic_file::create(path, FileAccess::Private) {
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
        // Durable before the request is sent: after a crash, `release` still finds the token.
        Ok(file.sync_all()?)
    }

    /// Replaces the file atomically.
    pub(crate) fn replace(&self, path: &Path) -> anyhow::Result<()> {
        atomic_file::replace_durably(path, FileAccess::Private, self.to_text()?.as_bytes())
            .with_context(|| format!("cannot write the token file {}", path.display()))
    }
}

/// The path of the token file, from `--token-file` or the environment variable.
pub(crate) fn find(named: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    match named.filter(|path| !path.as_os_str().is_empty()).cloned() {
        Some(path) => Ok(path),
        None => bail!(
            "no token: neither --token-file nor {TOKEN_FILE_VARIABLE} names the file that `leasehold acquire` wrote\n\
             acquire with `eval \"$(leasehold acquire NAME)\"`, which sets {TOKEN_FILE_VARIABLE}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Holder;
    use leasehold_core::rng::OsRandom;

    use super::*;

    fn sample() -> TokenFile {
        TokenFile {
            store: "memory:".into(),
            name: Name::new("job:1").unwrap(),
            token: Token::fresh(&Holder::new("h").unwrap(), "scheduler", &OsRandom),
            fence: Fence::new(7),
            ttl: Ttl::new(Duration::from_secs(60)).unwrap(),
            lock_delay: Duration::ZERO,
        }
    }

    #[test]
    fn a_token_file_is_read_back_and_debug_shows_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let (path, one) = (folder.path().join("a/t"), sample());
        one.create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let back = TokenFile::read(&path).unwrap();
        assert_eq!((back.token.expose(), back.fence), (one.token.expose(), one.fence));
        assert!(!format!("{back:?}").contains(one.token.random()));
        assert!(one.create(&path).unwrap_err().to_string().contains("is there already"));
        one.replace(&path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(TokenFile::read(&path).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn invalid_content_is_refused_and_not_repeated() {
        for text in ["", "hunter2", "{\"token\":\"hunter2\"}"] {
            let message = format!("{:#}", TokenFile::parse(text).unwrap_err());
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
