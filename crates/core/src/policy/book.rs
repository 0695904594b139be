//! The classes in force, and the only place where they change.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::watch;

use super::Class;
use super::builtin;
use super::compose::{Drafts, merge_problems, read_drafts, unknown_class_message};
use super::origin::{Origin, ResolvedClass};
use super::overrides::parse_field_value;
use super::state::{PolicySnapshot, PolicyState};
use crate::bounded_read::read_bounded;
use crate::clock::Moment;
use crate::request::RequestOptions;
use crate::types::InvalidInput;

// Guards against a wrong path: a real policy file has a few kilobytes.
pub(crate) const MAX_POLICY_FILE_BYTES: u64 = 1024 * 1024;

/// The classes in force: built-in ones, the file's, active escalation rules, and operators'
/// overrides.
///
/// Shared behind an `Arc`. Reading a class takes a read lock for one lookup. Every change is
/// resolved and checked as a whole before readers see it, and an invalid change has no effect.
///
/// ```
/// use leasehold_core::clock::Moment;
/// use leasehold_core::policy::PolicyBook;
///
/// let book = PolicyBook::from_text("[class.report]\nttl = \"45s\"", "leasehold.toml")?;
/// let class = book.class("report", Moment::ZERO)?;
/// assert_eq!(class.renew.every.map(|every| every.as_secs()), Some(15));
/// # Ok::<(), leasehold_core::InvalidInput>(())
/// ```
#[derive(Debug)]
pub struct PolicyBook {
    // Replaced as a whole; never locked during a computation.
    snapshot: RwLock<Arc<PolicySnapshot>>,
    // Locked for changes and for `explain` only.
    state: Mutex<PolicyState>,
    // The text of the loaded file, for the comparison in `FileWatch`.
    file_text: RwLock<Option<Arc<str>>>,
    version: watch::Sender<u64>,
}

impl PolicyBook {
    /// The built-in classes only.
    #[must_use]
    pub fn builtin() -> Self {
        // The tests of this crate check the built-in text. Should it ever fail, there are no
        // classes and every acquire is refused, which is the safe failure.
        Self::from_drafts(builtin::drafts().clone(), None).unwrap_or_else(|_| Self::empty())
    }

    /// The built-in classes, changed and extended by a file.
    ///
    /// # Errors
    /// The file cannot be read or is invalid: all problems, each with its line.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, InvalidInput> {
        let path = path.as_ref();
        let text = read_policy_file(path)?;
        Self::from_text(&text, &path.display().to_string())
    }

    /// Like [`from_file`](Self::from_file), from text; messages and origins use `path` as its name.
    ///
    /// # Errors
    /// The text is invalid: all problems, each with its line.
    pub fn from_text(text: &str, path: &str) -> Result<Self, InvalidInput> {
        let path: Arc<str> = path.into();
        let drafts = read_drafts(text, &path).map_err(|problems| merge_problems(&path, problems))?;
        Self::from_drafts(drafts, Some(text.into()))
    }

    fn from_drafts(drafts: Drafts, text: Option<Arc<str>>) -> Result<Self, InvalidInput> {
        let mut state =
            PolicyState { drafts, watches: Vec::new(), overrides: Vec::new(), pending: Vec::new() };
        state.sync_rules(Moment::ZERO);
        let snapshot = state.snapshot(Moment::ZERO)?;
        Ok(Self {
            snapshot: RwLock::new(Arc::new(snapshot)),
            state: Mutex::new(state),
            file_text: RwLock::new(text),
            version: watch::Sender::new(1),
        })
    }

    fn empty() -> Self {
        let (drafts, watches, overrides, pending) = (Drafts::new(), Vec::new(), Vec::new(), Vec::new());
        let state = PolicyState { drafts, watches, overrides, pending };
        let classes = std::collections::HashMap::new();
        Self {
            snapshot: RwLock::new(Arc::new(PolicySnapshot { classes })),
            state: Mutex::new(state),
            file_text: RwLock::new(None),
            version: watch::Sender::new(1),
        }
    }

    /// A class as it is in force at this moment.
    ///
    /// # Errors
    /// There is no such class; the message names the most similar one and lists all.
    pub fn class(&self, name: &str, now: Moment) -> Result<Arc<Class>, InvalidInput> {
        let snapshot = self.snapshot();
        let found = snapshot.classes.get(name).and_then(|timeline| timeline.at(now));
        found.cloned().ok_or_else(|| {
            let known = snapshot.classes.keys().map(AsRef::as_ref);
            InvalidInput::new("class", name, unknown_class_message(name, known))
        })
    }

    /// A class for one request; `None` if it no longer exists or the request's options no longer
    /// fit.
    pub(crate) fn class_for_request(
        &self,
        name: &str,
        options: &RequestOptions,
        now: Moment,
    ) -> Option<Arc<Class>> {
        options.apply(&self.class(name, now).ok()?).ok()
    }

    /// Whether there is a class of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.snapshot().classes.contains_key(name)
    }

    /// The sorted names of all classes.
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
    pub fn explain(&self, name: &str, now: Moment) -> Result<ResolvedClass, InvalidInput> {
        self.state().resolve(name, now)
    }

    /// A class with some fields replaced for one request, e.g. `("ttl", "20s")`; checked like a
    /// file.
    ///
    /// # Errors
    /// There is no such class or field, or the result cannot work.
    pub fn explain_with(
        &self,
        name: &str,
        settings: &[(&str, &str)],
        now: Moment,
    ) -> Result<ResolvedClass, InvalidInput> {
        let mut draft = self.state().draft(name, now)?;
        for (path, value) in settings {
            let (field, setting) = parse_field_value(name, path, value)?;
            draft.set_field(field, setting, Origin::Request);
        }
        draft.resolve(now).map_err(|problems| merge_problems(&format!("class.{name}"), problems))
    }

    /// Subscribes to policy changes; the value is the version.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The version of the policy in force; it grows with every change.
    #[must_use]
    pub fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// The text of the loaded file, if there is one.
    pub(crate) fn file_text(&self) -> Option<Arc<str>> {
        self.file_text.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_file_text(&self, text: Arc<str>) {
        *self.file_text.write().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    pub(crate) fn snapshot(&self) -> Arc<PolicySnapshot> {
        let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&snapshot)
    }

    // Changes work on a copy, so a panic leaves the layers intact and poison means nothing.
    pub(crate) fn state(&self) -> MutexGuard<'_, PolicyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies `edit` to a copy of the state, checks the result, and only then puts it in force.
    pub(crate) fn change<T>(
        &self,
        now: Moment,
        edit: impl FnOnce(&mut PolicyState) -> Result<T, InvalidInput>,
    ) -> Result<T, InvalidInput> {
        let mut state = self.state();
        let mut next = state.clone();
        let out = edit(&mut next)?;
        let snapshot = next.snapshot(now)?;
        // The lock is held until the snapshot is replaced, so that two changes cannot swap their
        // order.
        *state = next;
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
        self.version.send_modify(|version| *version += 1);
        Ok(out)
    }
}

/// All problems of a policy text, each with its line; empty if it is valid.
#[must_use]
pub fn problems(text: &str, path: &str) -> Vec<InvalidInput> {
    read_drafts(text, &path.into()).err().unwrap_or_default()
}

/// Reads a policy file.
pub(crate) fn read_policy_file(path: &Path) -> Result<String, InvalidInput> {
    let refuse = |why: String| InvalidInput {
        field: path.display().to_string(),
        given: "cannot be read".into(),
        allowed: why,
    };
    // A folder's configuration may name the file: a device has no end, and a FIFO blocks.
    let file = read_bounded(path, MAX_POLICY_FILE_BYTES).map_err(|error| refuse(error.to_string()))?;
    String::from_utf8(file.bytes).map_err(|_| refuse("it is not UTF-8 text; save it as UTF-8".into()))
}
