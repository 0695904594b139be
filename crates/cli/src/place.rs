//! Where the store and the policies are: flags, then `LEASEHOLD_*`, then `./leasehold.toml`, then defaults.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use leasehold::policy::PolicyBook;
use leasehold::{Holder, StoreUrl};

use crate::args::Place;

/// The policy file that counts if none is named.
const HERE: &str = "leasehold.toml";

impl Place {
    /// The store: `--store`, `LEASEHOLD_STORE`, or a SQLite file in the user's state folder.
    pub(crate) fn store(&self) -> anyhow::Result<StoreUrl> {
        let url = match self.store.as_deref().filter(|url| !url.is_empty()) {
            Some(url) => StoreUrl::parse(url)?,
            None => StoreUrl::Sqlite {
                path: default_file(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))?,
                full: false,
            },
        };
        Ok(url)
    }

    /// Where a daemon keeps what must survive its restart, if nobody says.
    pub(crate) fn daemon_folder() -> anyhow::Result<PathBuf> {
        let file = default_file(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))?;
        Ok(file.with_file_name("daemon"))
    }

    /// The policy file, if there is one.
    pub(crate) fn policy_file(&self) -> Option<PathBuf> {
        let named = self.policies.clone().filter(|path| !path.as_os_str().is_empty());
        named.or_else(|| Path::new(HERE).is_file().then(|| PathBuf::from(HERE)))
    }

    /// The classes, without opening a store.
    pub(crate) fn book(&self) -> anyhow::Result<PolicyBook> {
        Ok(match self.policy_file() {
            Some(path) => PolicyBook::from_file(path)?,
            None => PolicyBook::builtin(),
        })
    }

    /// Who we say we are, if it was said.
    pub(crate) fn holder(&self) -> anyhow::Result<Option<Holder>> {
        let given = self.holder.as_deref().filter(|text| !text.is_empty());
        given.map(Holder::new).transpose().context("--holder")
    }
}

/// Locks are state that should survive a restart of the session but is not worth a backup: what the XDG base directory
/// specification calls state.
fn default_file(state: Option<OsString>, home: Option<OsString>) -> anyhow::Result<PathBuf> {
    // The specification: a relative path counts as not set.
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state.and_then(absolute);
    let folder = state.or_else(|| home.and_then(absolute).map(|home| home.join(".local/state")));
    match folder {
        Some(folder) => Ok(folder.join("leasehold/leasehold.db")),
        None => bail!(
            "no store: --store is not given, and neither XDG_STATE_HOME nor HOME says where the default one is\n\
             name one with --store or LEASEHOLD_STORE, e.g. --store sqlite:/var/lib/leasehold/locks.db"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(state: Option<&str>, home: Option<&str>) -> anyhow::Result<PathBuf> {
        default_file(state.map(Into::into), home.map(Into::into))
    }

    #[test]
    fn the_default_store_is_in_the_state_folder() {
        let path = |text: &str| PathBuf::from(text);
        assert_eq!(
            file(Some("/s"), Some("/h")).unwrap(),
            path("/s/leasehold/leasehold.db")
        );
        for state in [None, Some(""), Some("relative")] {
            assert_eq!(
                file(state, Some("/h")).unwrap(),
                path("/h/.local/state/leasehold/leasehold.db")
            );
        }
        let said = file(None, None).unwrap_err().to_string();
        assert!(said.contains("--store"), "{said}");
    }
}
