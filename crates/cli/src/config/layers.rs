//! The layers of settings, one over the other.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;

use super::file::{Found, read};
use super::{HERE, Settings};
use crate::args::Place;

/// The system's file.
const SYSTEM: &str = "/etc/leasehold/config.toml";
/// How long a store may take to answer a verb, if nobody says.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Valued<T> {
    /// The value.
    pub(crate) value: T,
    /// For people: `command line`, `LEASEHOLD_STORE`, `leasehold.toml:3`, `default`.
    pub(crate) origin: String,
}

impl<T> Valued<T> {
    /// A value from there.
    pub(crate) fn new(value: T, origin: impl Into<String>) -> Self {
        Self {
            value,
            origin: origin.into(),
        }
    }
}

/// Everything in force.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Where the locks are, as it was written.
    pub(crate) store: Valued<String>,
    /// The file that the classes come from; only built-in ones if there is none.
    pub(crate) policies: Option<Valued<PathBuf>>,
    /// Who we are, if it was said.
    pub(crate) holder: Option<Valued<String>>,
    /// How long a store may take to answer.
    pub(crate) timeout: Valued<Duration>,
    /// Where `break` is written down.
    pub(crate) audit_file: Valued<PathBuf>,
}

/// The parts of the environment that say where files are.
#[derive(Debug, Default)]
pub(super) struct Homes {
    pub(super) state: Option<OsString>,
    pub(super) config: Option<OsString>,
    pub(super) home: Option<OsString>,
}

impl Homes {
    fn of_this_process() -> Self {
        Self {
            state: std::env::var_os("XDG_STATE_HOME"),
            config: std::env::var_os("XDG_CONFIG_HOME"),
            home: std::env::var_os("HOME"),
        }
    }

    /// Locks are state that should survive a restart of the session but is not worth a backup: what the XDG base
    /// directory specification calls state.
    fn state_folder(&self) -> Option<PathBuf> {
        self.folder(self.state.as_ref(), ".local/state")
    }

    fn config_file(&self) -> Option<PathBuf> {
        Some(self.folder(self.config.as_ref(), ".config")?.join("config.toml"))
    }

    fn folder(&self, named: Option<&OsString>, usual: &str) -> Option<PathBuf> {
        // The specification: a relative path counts as not set.
        let absolute = |path: &OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
        let named = named.and_then(absolute);
        let folder = named.or_else(|| Some(self.home.as_ref().and_then(absolute)?.join(usual)))?;
        Some(folder.join("leasehold"))
    }
}

impl Config {
    /// Reads the files and lays everything over one another.
    ///
    /// # Errors
    /// A file cannot be used, or no store is named and there is no home for the default one.
    pub(crate) fn load(place: &Place) -> anyhow::Result<Self> {
        Self::with(place, &Homes::of_this_process(), Path::new(SYSTEM))
    }

    /// The user's folder for what should survive a session, if there is one.
    pub(crate) fn state_folder() -> Option<PathBuf> {
        Homes::of_this_process().state_folder()
    }

    pub(super) fn with(place: &Place, homes: &Homes, system: &Path) -> anyhow::Result<Self> {
        let files: Vec<PathBuf> = [
            Some(PathBuf::from(HERE)),
            homes.config_file(),
            Some(system.to_owned()),
        ]
        .into_iter()
        .flatten()
        .collect();
        let mut layers = vec![Found {
            settings: typed(place),
            classes: false,
        }];
        let mut classes = None;
        for path in files {
            if let Some(found) = read(&path)? {
                // Not merged: a class that is half from here and half from there is one that nobody has read.
                if found.classes && classes.is_none() {
                    classes = Some(Valued::new(path.clone(), path.display().to_string()));
                }
                layers.push(found);
            }
        }
        let first =
            |pick: fn(&Settings) -> bool| layers.iter().map(|layer| &layer.settings).find(|one| pick(one));
        let store = first(|one| one.store.is_some()).and_then(|one| one.store.clone());
        let policies = first(|one| one.policies.is_some()).and_then(|one| one.policies.clone());
        let timeout = first(|one| one.timeout.is_some()).and_then(|one| one.timeout.clone());
        let audit_file = first(|one| one.audit_file.is_some()).and_then(|one| one.audit_file.clone());
        let state = homes.state_folder();
        Ok(Self {
            store: match (store, &state) {
                (Some(store), _) => store,
                (None, Some(state)) => Valued::new(
                    format!("sqlite:{}", state.join("leasehold.db").display()),
                    "default",
                ),
                (None, None) => bail!(
                    "no store: --store is not given, and neither XDG_STATE_HOME nor HOME says where the default one is\n\
                     name one with --store or LEASEHOLD_STORE, e.g. --store sqlite:/var/lib/leasehold/locks.db"
                ),
            },
            policies: policies.or(classes),
            holder: first(|one| one.holder.is_some()).and_then(|one| one.holder.clone()),
            timeout: timeout.unwrap_or_else(|| Valued::new(TIMEOUT, "default")),
            audit_file: audit_file.unwrap_or_else(|| {
                let folder = state.unwrap_or_else(|| PathBuf::from("."));
                Valued::new(folder.join("audit.jsonl"), "default")
            }),
        })
    }
}

/// What the command line and the environment say.
fn typed(place: &Place) -> Settings {
    let from = |by_env: bool, variable: &str| {
        if by_env {
            variable.to_owned()
        } else {
            "command line".into()
        }
    };
    let text = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
    Settings {
        store: text(place.store.as_deref())
            .map(|store| Valued::new(store, from(place.store_by_env, "LEASEHOLD_STORE"))),
        policies: place
            .policies
            .clone()
            .filter(|path| !path.as_os_str().is_empty())
            .map(|path| Valued::new(path, from(place.policies_by_env, "LEASEHOLD_POLICIES"))),
        holder: text(place.holder.as_ref()).map(|holder| Valued::new(holder, "command line")),
        timeout: None,
        audit_file: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes(state: Option<&str>, home: Option<&str>) -> Homes {
        Homes {
            state: state.map(Into::into),
            config: None,
            home: home.map(Into::into),
        }
    }

    fn store(homes: &Homes) -> anyhow::Result<String> {
        Ok(Config::with(&Place::default(), homes, Path::new("/nowhere"))?
            .store
            .value)
    }

    #[test]
    fn the_default_store_is_in_the_state_folder() {
        assert_eq!(
            store(&homes(Some("/s"), Some("/h"))).unwrap(),
            "sqlite:/s/leasehold/leasehold.db"
        );
        for state in [None, Some(""), Some("relative")] {
            assert_eq!(
                store(&homes(state, Some("/h"))).unwrap(),
                "sqlite:/h/.local/state/leasehold/leasehold.db"
            );
        }
        let said = store(&homes(None, None)).unwrap_err().to_string();
        assert!(said.contains("--store"), "{said}");
    }

    #[test]
    fn each_layer_covers_the_ones_below() {
        let folder = tempfile::tempdir().unwrap();
        let (user, system) = (folder.path().join("u"), folder.path().join("system.toml"));
        std::fs::create_dir_all(user.join("leasehold")).unwrap();
        let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
        let homes = Homes {
            config: Some(user.clone().into()),
            ..homes(Some("/s"), None)
        };
        let load = |place: &Place| Config::with(place, &homes, &system).unwrap();
        write(
            &system,
            "store = \"memory:\"\ntimeout = \"9s\"\nholder = \"sys\"\n[class.x]\nttl = \"1s\"\n",
        );
        let config = load(&Place::default());
        assert_eq!(config.store.value, "memory:");
        assert_eq!(config.policies.unwrap().value, system);
        write(
            &user.join("leasehold/config.toml"),
            "store = \"sqlite:/u\"\nholder = \"user\"\n",
        );
        let config = load(&Place::default());
        assert_eq!(
            (config.store.value.as_str(), config.timeout.value.as_secs()),
            ("sqlite:/u", 9)
        );
        assert_eq!(config.holder.unwrap().value, "user");
        let config = load(&Place {
            store: Some("redis://h".to_owned().into()),
            store_by_env: true,
            ..Place::default()
        });
        assert_eq!(
            config.store,
            Valued::new("redis://h".to_owned(), "LEASEHOLD_STORE")
        );
    }
}
