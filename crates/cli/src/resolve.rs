//! Turns the settings into a store URL, classes and a holder.

use std::path::PathBuf;

use anyhow::Context;
use leasehold::policy::PolicyBook;
use leasehold::{Holder, StoreUrl};

use crate::config::Settings;

impl Settings {
    /// The store URL from `--store`, `LEASEHOLD_STORE`, a file, or the default SQLite file.
    pub(crate) fn store_url(&self) -> anyhow::Result<StoreUrl> {
        let url = StoreUrl::parse(&self.store.value);
        // A bad value that the user did not type needs the file and line it came from.
        match self.store.origin.as_str() {
            "command line" | "default" => Ok(url?),
            origin => url.with_context(|| format!("store, as {origin} says")),
        }
    }

    /// The default folder for files that a daemon needs after a restart.
    pub(crate) fn daemon_folder() -> anyhow::Result<PathBuf> {
        let folder = Self::state_folder().context(
            "neither XDG_STATE_HOME nor HOME says where a daemon's files go: name a folder for them",
        )?;
        Ok(folder.join("daemon"))
    }

    pub(crate) fn policy_file(&self) -> Option<PathBuf> {
        self.policies.as_ref().map(|file| file.value.clone())
    }

    /// Reads the classes without opening a store.
    pub(crate) fn policy_book(&self) -> anyhow::Result<PolicyBook> {
        Ok(match (&self.policies, &self.policy_text) {
            (Some(file), Some(text)) => PolicyBook::from_text(text, &file.value.display().to_string())?,
            (Some(file), None) => PolicyBook::from_file(&file.value)?,
            (None, _) => PolicyBook::builtin(),
        })
    }

    /// The policy file, which a client follows, and the classes in it. Not read again: all of a command sees the same text.
    pub(crate) fn followed_policies(&self) -> anyhow::Result<Option<(PathBuf, PolicyBook)>> {
        self.policy_file().map(|file| anyhow::Ok((file, self.policy_book()?))).transpose()
    }

    /// The configured holder name; `None` if neither the arguments nor a file set one.
    pub(crate) fn holder(&self) -> anyhow::Result<Option<Holder>> {
        let given = self.holder.as_ref();
        given
            .map(|given| {
                Holder::new(&given.value).with_context(|| match given.origin.as_str() {
                    "command line" => "--holder".to_owned(),
                    origin => origin.to_owned(),
                })
            })
            .transpose()
    }
}
