//! From where people said things are to the things themselves.

use std::path::PathBuf;

use anyhow::Context;
use leasehold::policy::PolicyBook;
use leasehold::{Holder, StoreUrl};

use crate::args::Place;
use crate::config::Config;

impl Place {
    /// The store: `--store`, `LEASEHOLD_STORE`, a configuration file, or a SQLite file in the user's state folder.
    pub(crate) fn store(&self) -> anyhow::Result<StoreUrl> {
        let store = Config::load(self)?.store;
        let url = StoreUrl::parse(&store.value);
        match store.origin.as_str() {
            "command line" | "default" => Ok(url?),
            origin => url.with_context(|| format!("store, as {origin} says")),
        }
    }

    /// Where a daemon keeps what must survive its restart, if nobody says.
    pub(crate) fn daemon_folder() -> anyhow::Result<PathBuf> {
        let folder = Config::state_folder().context(
            "neither XDG_STATE_HOME nor HOME says where a daemon's files go: name a folder for them",
        )?;
        Ok(folder.join("daemon"))
    }

    /// The policy file, if there is one.
    pub(crate) fn policy_file(&self) -> anyhow::Result<Option<PathBuf>> {
        Ok(Config::load(self)?.policies.map(|file| file.value))
    }

    /// The classes, without opening a store.
    pub(crate) fn book(&self) -> anyhow::Result<PolicyBook> {
        Ok(match self.policy_file()? {
            Some(path) => PolicyBook::from_file(path)?,
            None => PolicyBook::builtin(),
        })
    }

    /// Who we say we are, if it was said.
    pub(crate) fn holder(&self) -> anyhow::Result<Option<Holder>> {
        let said = Config::load(self)?.holder;
        said.map(|said| {
            Holder::new(&said.value).with_context(|| match said.origin.as_str() {
                "command line" => "--holder".to_owned(),
                origin => origin.to_owned(),
            })
        })
        .transpose()
    }
}
