//! The classes in force: what everyone asks, and the one place where they change.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::watch;

use super::Class;
use super::builtin;
use super::compose::{Drafts, compose, merge, no_such_class};
use super::origin::{Origin, Resolved};
use super::overrides::statement;
use super::state::{Snapshot, State};
use crate::clock::Moment;
use crate::request::Tweaks;
use crate::word::Invalid;

/// A policy file larger than this is not one.
pub(crate) const LARGEST_FILE: u64 = 1024 * 1024;

/// The classes in force: built-in ones, a file's, rules that have escalated, and operators' overrides.
///
/// Shared behind an `Arc`. Reading a class takes a read lock for the length of one look-up; every change is
/// resolved and checked whole before readers see any of it, and a change that cannot work changes nothing.
///
/// ```
/// use leasehold_core::clock::Moment;
/// use leasehold_core::policy::PolicyBook;
///
/// let book = PolicyBook::from_text("[class.report]\nttl = \"45s\"", "leasehold.toml")?;
/// let class = book.class("report", Moment::ZERO)?;
/// assert_eq!(class.renew.every.map(|every| every.as_secs()), Some(15));
/// # Ok::<(), leasehold_core::Invalid>(())
/// ```
#[derive(Debug)]
pub struct PolicyBook {
    /// What readers see. Replaced whole; never locked while anything is computed.
    snapshot: RwLock<Arc<Snapshot>>,
    /// What is stated. Locked by those who change it, and to explain.
    state: Mutex<State>,
    /// The text the file part was read from, for whoever watches the file.
    text: RwLock<Option<Arc<str>>>,
    version: watch::Sender<u64>,
}

impl PolicyBook {
    /// The built-in classes only.
    #[must_use]
    pub fn builtin() -> Self {
        // The built-in text is checked by this crate's tests; should it ever fail, its classes are unknown and
        // every acquire is refused, which is the safe way to be wrong.
        Self::with(builtin::drafts().clone(), None).unwrap_or_else(|_| Self::empty())
    }

    /// The built-in classes, overridden and joined by a file's.
    ///
    /// # Errors
    /// The file cannot be read, or something in it cannot work: every problem, with its line.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Invalid> {
        let path = path.as_ref();
        let text = read_file(path)?;
        Self::from_text(&text, &path.display().to_string())
    }

    /// The same from text; `path` is what messages and origins call it.
    ///
    /// # Errors
    /// Something in it cannot work: every problem, with its line.
    pub fn from_text(text: &str, path: &str) -> Result<Self, Invalid> {
        let path: Arc<str> = path.into();
        let drafts = compose(text, &path).map_err(|problems| merge(&path, problems))?;
        Self::with(drafts, Some(text.into()))
    }

    fn with(drafts: Drafts, text: Option<Arc<str>>) -> Result<Self, Invalid> {
        let mut state = State {
            drafts,
            watches: Vec::new(),
            overrides: Vec::new(),
            pending: Vec::new(),
        };
        state.sync_rules(Moment::ZERO);
        let snapshot = state.snapshot(Moment::ZERO)?;
        Ok(Self {
            snapshot: RwLock::new(Arc::new(snapshot)),
            state: Mutex::new(state),
            text: RwLock::new(text),
            version: watch::Sender::new(1),
        })
    }

    fn empty() -> Self {
        let (drafts, watches, overrides, pending) = (Drafts::new(), Vec::new(), Vec::new(), Vec::new());
        let state = State {
            drafts,
            watches,
            overrides,
            pending,
        };
        let classes = std::collections::HashMap::new();
        Self {
            snapshot: RwLock::new(Arc::new(Snapshot { classes })),
            state: Mutex::new(state),
            text: RwLock::new(None),
            version: watch::Sender::new(1),
        }
    }

    /// A class as it is in force at this moment.
    ///
    /// # Errors
    /// There is no such class: the nearest one, and the list.
    pub fn class(&self, name: &str, now: Moment) -> Result<Arc<Class>, Invalid> {
        let snapshot = self.snapshot();
        let found = snapshot.classes.get(name).and_then(|timeline| timeline.at(now));
        found.cloned().ok_or_else(|| {
            let known = snapshot.classes.keys().map(AsRef::as_ref);
            Invalid::new("class", name, no_such_class(name, known))
        })
    }

    /// A class as it is in force for one request: nothing if it is gone, or if the request's own values no longer fit.
    pub(crate) fn in_force(&self, name: &str, tweaks: &Tweaks, now: Moment) -> Option<Arc<Class>> {
        tweaks.apply(&self.class(name, now).ok()?).ok()
    }

    /// The names of all classes, in order.
    #[must_use]
    pub fn classes(&self) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.snapshot().classes.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// A class with the origin of every value.
    ///
    /// # Errors
    /// There is no such class.
    pub fn explain(&self, name: &str, now: Moment) -> Result<Resolved, Invalid> {
        self.state().resolve(name, now)
    }

    /// A class with some fields changed for one request only, e.g. `("ttl", "20s")`; checked like a file.
    ///
    /// # Errors
    /// There is no such class or field, or what results cannot work.
    pub fn tailored(&self, name: &str, settings: &[(&str, &str)], now: Moment) -> Result<Resolved, Invalid> {
        let mut draft = self.state().draft(name, now)?;
        for (path, value) in settings {
            let (field, setting) = statement(name, path, value)?;
            draft.state(field, setting, Origin::Request);
        }
        draft
            .resolve(now)
            .map_err(|problems| merge(&format!("class.{name}"), problems))
    }

    /// Grows with every change; wakes whoever must look again.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The number of the policy in force; it grows with every change.
    #[must_use]
    pub fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// What the file part was read from, if there is one.
    pub(crate) fn text(&self) -> Option<Arc<str>> {
        self.text.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_text(&self, text: Arc<str>) {
        *self.text.write().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&snapshot)
    }

    /// The stated layers. Whoever changes them works on a copy, so a panic leaves them whole and the lock's
    /// poison means nothing.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a copy of the state, checks all of it, and only then puts it in force.
    pub(crate) fn change<T>(
        &self,
        now: Moment,
        edit: impl FnOnce(&mut State) -> Result<T, Invalid>,
    ) -> Result<T, Invalid> {
        let mut state = self.state();
        let mut next = state.clone();
        let out = edit(&mut next)?;
        let snapshot = next.snapshot(now)?;
        *state = next;
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
        self.version.send_modify(|version| *version += 1);
        Ok(out)
    }
}

/// Every problem of a policy text, each with its line; empty if it can be used.
#[must_use]
pub fn problems(text: &str, path: &str) -> Vec<Invalid> {
    compose(text, &path.into()).err().unwrap_or_default()
}

/// Reads a policy file.
pub(crate) fn read_file(path: &Path) -> Result<String, Invalid> {
    let refuse = |why: String| Invalid {
        field: path.display().to_string(),
        given: "cannot be read".into(),
        allowed: why,
    };
    let size = fs::metadata(path)
        .map_err(|error| refuse(error.to_string()))?
        .len();
    if size > LARGEST_FILE {
        return Err(refuse(format!(
            "it has {size} bytes; a policy file has at most {LARGEST_FILE}"
        )));
    }
    let bytes = fs::read(path).map_err(|error| refuse(error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8 text; save it as UTF-8".into()))
}
