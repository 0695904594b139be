//! Merges the settings of command line, environment, files and defaults.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;

use super::file::{FileSettings, read};
use super::restricted::{DistrustReason, IgnoredSetting, StoreUse};
use super::trust::TrustStore;
use super::{LOCAL_CONFIG_FILE, LayerSettings};
use crate::args::GlobalArgs;

const SYSTEM_CONFIG_FILE: &str = "/etc/leasehold/config.toml";
/// The default limit for a store call of a verb.
const DEFAULT_STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// A setting's value with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WithOrigin<T> {
    pub(crate) value: T,
    /// For people: `command line`, `LEASEHOLD_STORE`, `leasehold.toml:3`, `default`.
    pub(crate) origin: String,
}

impl<T> WithOrigin<T> {
    pub(crate) fn new(value: T, origin: impl Into<String>) -> Self {
        Self { value, origin: origin.into() }
    }
}

/// All settings in force, resolved once per command.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The store's URL, as written.
    pub(crate) store: WithOrigin<String>,
    /// The policy file; `None` means only the built-in classes.
    pub(crate) policies: Option<WithOrigin<PathBuf>>,
    /// The text of the policy file, if it is a configuration file and so was read already.
    pub(crate) policy_text: Option<String>,
    /// The holder name; `None` means host:pid.
    pub(crate) holder: Option<WithOrigin<String>>,
    /// The limit for a store call.
    pub(crate) timeout: WithOrigin<Duration>,
    /// The audit log of `break`.
    pub(crate) audit_file: WithOrigin<PathBuf>,
    /// What would be in force if its file were trusted.
    pub(crate) ignored: Vec<IgnoredSetting>,
}

/// Which files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSelection {
    All,
    /// Without the folder's file: a key press in a folder must not obey the folder.
    WithoutFolder,
}

/// The environment variables that locate the user's folders.
#[derive(Debug, Default)]
pub(super) struct HomeFolders {
    pub(super) state: Option<OsString>,
    pub(super) config: Option<OsString>,
    pub(super) home: Option<OsString>,
}

impl HomeFolders {
    fn from_env() -> Self {
        Self {
            state: std::env::var_os("XDG_STATE_HOME"),
            config: std::env::var_os("XDG_CONFIG_HOME"),
            home: std::env::var_os("HOME"),
        }
    }

    /// The XDG state folder: data that should survive the session but is not worth a backup.
    fn state_folder(&self) -> Option<PathBuf> {
        self.folder(self.state.as_ref(), ".local/state")
    }

    fn config_file(&self) -> Option<PathBuf> {
        Some(self.folder(self.config.as_ref(), ".config")?.join("config.toml"))
    }

    fn folder(&self, named: Option<&OsString>, usual: &str) -> Option<PathBuf> {
        // XDG base directory specification: a relative path counts as not set.
        let absolute = |path: &OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
        let named = named.and_then(absolute);
        let folder = named.or_else(|| Some(self.home.as_ref().and_then(absolute)?.join(usual)))?;
        Some(folder.join("leasehold"))
    }
}

impl Settings {
    /// Reads all files and merges the layers. Reports settings of files that are not trusted.
    ///
    /// # Errors
    /// A file is invalid, no store is configured and there is no home folder for the default one, or the store is not
    /// fit for this use.
    pub(crate) fn load(global: &GlobalArgs, store_use: StoreUse) -> anyhow::Result<Self> {
        let homes = HomeFolders::from_env();
        let settings = Self::load_from(global, &homes, Path::new(SYSTEM_CONFIG_FILE), FileSelection::All)?;
        settings.check_store_use(store_use)?;
        Ok(settings)
    }

    /// The settings for shell completion, without a word about files that are not trusted.
    pub(crate) fn load_for_completion(global: &GlobalArgs) -> anyhow::Result<Self> {
        let homes = HomeFolders::from_env();
        Self::load_from(global, &homes, Path::new(SYSTEM_CONFIG_FILE), FileSelection::WithoutFolder)
    }

    /// The user's state folder.
    pub(crate) fn state_folder() -> Option<PathBuf> {
        HomeFolders::from_env().state_folder()
    }

    pub(super) fn load_from(
        global: &GlobalArgs,
        homes: &HomeFolders,
        system: &Path,
        selection: FileSelection,
    ) -> anyhow::Result<Self> {
        let trust = TrustStore::new(homes.state_folder().as_deref());
        let folder = (selection == FileSelection::All).then(|| PathBuf::from(LOCAL_CONFIG_FILE));
        let files = [(folder, true), (homes.config_file(), false), (Some(system.to_owned()), false)];
        // The order of this list is the precedence.
        let mut layers = vec![FileSettings { settings: command_line_settings(global), classes: None }];
        let (mut classes, mut ignored) = (None, Vec::new());
        for (path, in_folder) in files.into_iter().filter_map(|(path, kind)| Some((path?, kind))) {
            if let Some(file) = read(&path)? {
                let distrust = if in_folder {
                    trust.distrust(&path, &file.text)
                } else {
                    file.owner.foreign_writer().map(DistrustReason::ForeignWriter)
                };
                let mut found = file.found;
                if let Some(reason) = distrust {
                    // A setting that a higher layer has set would not be in force anyway.
                    let wanted = |key: &str| !layers.iter().any(|layer| layer.settings.sets(key));
                    let taken = found.settings.take_restricted().into_iter().filter(|(key, _)| wanted(key));
                    ignored.extend(taken.map(|(key, origin)| IgnoredSetting {
                        key,
                        origin,
                        file: path.clone(),
                        reason: reason.clone(),
                    }));
                }
                // Classes of several files are not merged: no file would show the class that is in force.
                if classes.is_none() {
                    let file = || WithOrigin::new(path.clone(), path.display().to_string());
                    classes = found.classes.clone().map(|text| (file(), text));
                }
                layers.push(found);
            }
        }
        let first = |pick: fn(&LayerSettings) -> bool| {
            layers.iter().map(|layer| &layer.settings).find(|one| pick(one))
        };
        let store = first(|one| one.store.is_some()).and_then(|one| one.store.clone());
        let policies = first(|one| one.policies.is_some()).and_then(|one| one.policies.clone());
        let timeout = first(|one| one.timeout.is_some()).and_then(|one| one.timeout.clone());
        let audit_file = first(|one| one.audit_file.is_some()).and_then(|one| one.audit_file.clone());
        let state = homes.state_folder();
        let (policies, policy_text) = match (policies, classes) {
            (Some(named), _) => (Some(named), None),
            (None, Some((file, text))) => (Some(file), Some(text)),
            (None, None) => (None, None),
        };
        Ok(Self {
            store: match (store, &state) {
                (Some(store), _) => store,
                (None, Some(state)) => {
                    WithOrigin::new(format!("sqlite:{}", state.join("leasehold.db").display()), "default")
                }
                (None, None) => bail!(
                    "no store: --store is not given, and neither XDG_STATE_HOME nor HOME says where the default one is\n\
                     name one with --store or LEASEHOLD_STORE, e.g. --store sqlite:/var/lib/leasehold/locks.db"
                ),
            },
            policies,
            policy_text,
            holder: first(|one| one.holder.is_some()).and_then(|one| one.holder.clone()),
            timeout: timeout.unwrap_or_else(|| WithOrigin::new(DEFAULT_STORE_TIMEOUT, "default")),
            audit_file: audit_file.unwrap_or_else(|| {
                let folder = state.unwrap_or_else(|| PathBuf::from("."));
                WithOrigin::new(folder.join("audit.jsonl"), "default")
            }),
            ignored,
        })
    }
}

/// The settings from the command line and the environment.
fn command_line_settings(global: &GlobalArgs) -> LayerSettings {
    let from = |by_env: bool, variable: &str| {
        if by_env { variable.to_owned() } else { "command line".into() }
    };
    // An empty variable means "not set".
    let text = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
    LayerSettings {
        store: text(global.store.as_deref())
            .map(|store| WithOrigin::new(store, from(global.store_by_env, "LEASEHOLD_STORE"))),
        policies: global
            .policies
            .clone()
            .filter(|path| !path.as_os_str().is_empty())
            .map(|path| WithOrigin::new(path, from(global.policies_by_env, "LEASEHOLD_POLICIES"))),
        holder: text(global.holder.as_ref()).map(|holder| WithOrigin::new(holder, "command line")),
        timeout: None,
        audit_file: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes(state: Option<&str>, home: Option<&str>) -> HomeFolders {
        HomeFolders { state: state.map(Into::into), config: None, home: home.map(Into::into) }
    }

    fn store(homes: &HomeFolders) -> anyhow::Result<String> {
        Ok(Settings::load_from(&GlobalArgs::default(), homes, Path::new("/nowhere"), FileSelection::All)?
            .store
            .value)
    }

    #[test]
    fn the_default_store_is_in_the_state_folder() {
        assert_eq!(store(&homes(Some("/s"), Some("/h"))).unwrap(), "sqlite:/s/leasehold/leasehold.db");
        for state in [None, Some(""), Some("relative")] {
            assert_eq!(
                store(&homes(state, Some("/h"))).unwrap(),
                "sqlite:/h/.local/state/leasehold/leasehold.db"
            );
        }
        let message = store(&homes(None, None)).unwrap_err().to_string();
        assert!(message.contains("--store"), "{message}");
    }

    #[test]
    fn each_layer_overrides_the_ones_below() {
        let folder = tempfile::tempdir().unwrap();
        let (user, system) = (folder.path().join("u"), folder.path().join("system.toml"));
        std::fs::create_dir_all(user.join("leasehold")).unwrap();
        let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
        let homes = HomeFolders { config: Some(user.clone().into()), ..homes(Some("/s"), None) };
        let load =
            |global: &GlobalArgs| Settings::load_from(global, &homes, &system, FileSelection::All).unwrap();
        write(&system, "store = \"memory:\"\ntimeout = \"9s\"\nholder = \"sys\"\n[class.x]\nttl = \"1s\"\n");
        let config = load(&GlobalArgs::default());
        assert_eq!(config.store.value, "memory:");
        assert_eq!(config.policies.unwrap().value, system);
        write(&user.join("leasehold/config.toml"), "store = \"sqlite:/u\"\nholder = \"user\"\n");
        let config = load(&GlobalArgs::default());
        assert_eq!((config.store.value.as_str(), config.timeout.value.as_secs()), ("sqlite:/u", 9));
        assert_eq!(config.holder.unwrap().value, "user");
        let config = load(&GlobalArgs {
            store: Some("redis://h".to_owned().into()),
            store_by_env: true,
            ..GlobalArgs::default()
        });
        assert_eq!(config.store, WithOrigin::new("redis://h".to_owned(), "LEASEHOLD_STORE"));
    }
}
