//! Settings that only a trusted file may set, and what a verb does when a file is not trusted.
//!
//! A store's URL decides where passwords and tokens are sent, `policies` and `audit_file` which files are read and
//! written, `holder` who this user is to others. A folder's `leasehold.toml` comes from others, so it sets classes only
//! before the user has read it.

use std::path::{Path, PathBuf};

use anyhow::bail;
use leasehold_core::shell;

use super::{LayerSettings, Settings};
use crate::message::print_message;

/// What a verb does with the store that the settings select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreUse {
    /// It reads, or the store comes from elsewhere: ignored settings are reported.
    Inspect,
    /// It changes the store: on another store than the user expects, it would do harm.
    Change,
    /// It relies on other processes being excluded.
    Exclude,
}

/// A setting that was not taken because its file is not trusted.
#[derive(Debug, Clone)]
pub(crate) struct IgnoredSetting {
    pub(crate) key: &'static str,
    /// File and line.
    pub(crate) origin: String,
    pub(crate) file: PathBuf,
    pub(crate) reason: DistrustReason,
}

/// Why a file is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DistrustReason {
    /// The folder's file, and it was never trusted.
    NotTrusted,
    /// The folder's file, and it was trusted with other content.
    Changed,
    /// The user's or the system's file, and another user could have written it.
    ForeignWriter(ForeignWriter),
}

/// Why another user could have written a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForeignWriter {
    /// It is neither the user's nor root's.
    Owner,
    /// Its group or others may write it. A group of the user alone is no exception: members can be added to it.
    Mode,
}

fn is_system_file(file: &Path) -> bool {
    file.starts_with("/etc")
}

impl DistrustReason {
    fn text(&self) -> &'static str {
        match self {
            Self::NotTrusted => "is not trusted",
            Self::Changed => "was changed since it was trusted",
            Self::ForeignWriter(ForeignWriter::Owner) => "belongs to another user",
            Self::ForeignWriter(ForeignWriter::Mode) => "can be written by its group or by other users",
        }
    }
}

impl IgnoredSetting {
    pub(crate) fn reason_text(&self) -> String {
        format!("the file {}", self.reason.text())
    }

    /// The command that makes the file trusted, once the user has read it.
    fn remedy(&self) -> String {
        let file = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        let quoted = shell::quote(&file.display().to_string());
        match self.reason {
            DistrustReason::NotTrusted | DistrustReason::Changed => {
                format!("leasehold config trust {quoted}")
            }
            // Not `chown` to the user: the system's file is root's, and another user's file is read by its owner too.
            DistrustReason::ForeignWriter(ForeignWriter::Owner) if is_system_file(&file) => {
                format!("sudo chown root {quoted} && sudo chmod go-w {quoted}")
            }
            DistrustReason::ForeignWriter(ForeignWriter::Mode) if is_system_file(&file) => {
                format!("sudo chmod go-w {quoted}")
            }
            DistrustReason::ForeignWriter(ForeignWriter::Owner) => {
                format!("sudo chown \"$(id -u)\" {quoted} && chmod go-w {quoted}")
            }
            DistrustReason::ForeignWriter(ForeignWriter::Mode) => format!("chmod go-w {quoted}"),
        }
    }
}

impl LayerSettings {
    /// Takes the restricted settings out: key and origin of each.
    pub(super) fn take_restricted(&mut self) -> Vec<(&'static str, String)> {
        let origins = [
            ("store", self.store.take().map(|store| store.origin)),
            ("policies", self.policies.take().map(|file| file.origin)),
            ("holder", self.holder.take().map(|holder| holder.origin)),
            ("timeout", self.timeout.take().map(|timeout| timeout.origin)),
            ("audit_file", self.audit_file.take().map(|file| file.origin)),
        ];
        origins.into_iter().filter_map(|(key, origin)| Some((key, origin?))).collect()
    }

    /// Whether this layer sets a restricted setting.
    pub(super) fn sets(&self, key: &str) -> bool {
        match key {
            "store" => self.store.is_some(),
            "policies" => self.policies.is_some(),
            "holder" => self.holder.is_some(),
            "timeout" => self.timeout.is_some(),
            _ => self.audit_file.is_some(),
        }
    }
}

impl Settings {
    /// Reports ignored settings once, or refuses to go on without them.
    ///
    /// # Errors
    /// The verb would use another store or other classes than the file names, or a store that excludes no other process.
    pub(super) fn check_store_use(&self, store_use: StoreUse) -> anyhow::Result<()> {
        let decisive = [
            ("store", "store", "act on another store", "--store or LEASEHOLD_STORE"),
            ("policies", "policy file", "follow other classes", "--policies or LEASEHOLD_POLICIES"),
        ];
        for (key, names, otherwise, instead) in decisive.iter().filter(|_| store_use != StoreUse::Inspect) {
            if let Some(ignored) = self.ignored.iter().find(|one| one.key == *key) {
                bail!(
                    "{} names a {names}, and the file {}: this command would {otherwise}\n\
                     read it and run `{}`\n\
                     or name the {names} with {instead}",
                    ignored.origin,
                    ignored.reason.text(),
                    ignored.remedy()
                );
            }
        }
        if let Some(first) = self.ignored.first() {
            let keys: Vec<_> =
                self.ignored.iter().map(|one| format!("{} ({})", one.key, one.origin)).collect();
            print_message(&format!(
                "{} {}; ignored: {}\nread it and run `{}` to use these settings",
                first.file.display(),
                first.reason.text(),
                keys.join(", "),
                first.remedy()
            ));
        }
        let from_file = !matches!(self.store.origin.as_str(), "command line" | "LEASEHOLD_STORE" | "default");
        if store_use == StoreUse::Exclude && from_file && is_within_one_process(&self.store.value) {
            let url = &self.store.value;
            bail!(
                "{} says store = {url:?}, which is in one process only: two commands would not exclude each other\n\
                 name a store that processes share (`leasehold --help` lists them); or say --store {url} if one process is enough",
                self.store.origin
            );
        }
        Ok(())
    }
}

fn is_within_one_process(url: &str) -> bool {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    leasehold::backends().iter().any(|store| store.one_process && store.schemes.contains(&scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finding 2 of the security review.
    #[test]
    fn finding_02_the_remedy_does_not_give_the_systems_file_to_a_user() {
        let remedy = |file: &str, foreign| {
            let reason = DistrustReason::ForeignWriter(foreign);
            IgnoredSetting { key: "store", origin: String::new(), file: file.into(), reason }.remedy()
        };
        let system = "/etc/leasehold/config.toml";
        assert_eq!(
            remedy(system, ForeignWriter::Owner),
            format!("sudo chown root {system} && sudo chmod go-w {system}")
        );
        assert_eq!(remedy(system, ForeignWriter::Mode), format!("sudo chmod go-w {system}"));
        assert_eq!(remedy("/home/a b/c", ForeignWriter::Mode), "chmod go-w '/home/a b/c'");
        assert!(remedy("/home/me/c", ForeignWriter::Owner).starts_with("sudo chown \"$(id -u)\" /home/me/c"));
    }
}
