//! Follows the policy file by polling.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::book::{PolicyBook, read_policy_file};
use super::change::{Change, ChangeKind};
use super::compose::{merge_problems, read_drafts};
use super::state::PolicyState;
use crate::clock::Moment;
use crate::types::InvalidInput;

/// The file as one read found it.
#[derive(Debug, Clone, PartialEq)]
enum FileState {
    Text(Arc<str>),
    Gone,
    Unreadable(InvalidInput),
}

// Two equal reads this far apart: a file that an editor is still writing changes in between.
const MIN_STABLE_TIME: Duration = Duration::from_millis(500);

/// Follows a policy file for a [`PolicyBook`]. It has no task and no timer: call
/// [`poll`](Self::poll) about once a second.
///
/// Each call opens the path and reads the whole file, so an atomic rename or a swapped symlink is
/// noticed like an edit, and no timestamp can hide one. Two equal reads at least half a second
/// apart are required. A half-written file can be valid and mean something else, above all an empty
/// one.
#[derive(Debug)]
pub struct FileWatch {
    book: Arc<PolicyBook>,
    path: PathBuf,
    // The last read, and since when it has been the same.
    last_state: Option<(FileState, Moment)>,
    // The last problem that was reported, so that it is reported once, with the policy version it
    // was tried on.
    reported_trouble: Option<(FileState, u64)>,
}

impl FileWatch {
    /// Follows the file from which the book was read.
    #[must_use]
    pub fn new(book: Arc<PolicyBook>, path: impl Into<PathBuf>) -> Self {
        Self { book, path: path.into(), last_state: None, reported_trouble: None }
    }

    /// The path of the followed file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file. `None`: nothing new. `Some(Ok)`: the file is in force, with the changes
    /// (none if a broken file was restored). `Some(Err)`: the file is invalid or missing, and the
    /// previous policy stays in force. The same problem is reported once.
    pub fn poll(&mut self, now: Moment) -> Option<Result<Vec<Change>, InvalidInput>> {
        let look = self.stable_state(now)?;
        let FileState::Text(text) = &look else {
            return self.report_trouble(look).map(Err);
        };
        if self.book.file_text().as_ref() == Some(text) {
            return self.reported_trouble.take().map(|_| Ok(Vec::new()));
        }
        // An override may have caused the refusal: try again when the policy version has changed.
        if self.reported_trouble == Some((look.clone(), self.book.version())) {
            return None;
        }
        match self.book.reload(text, &self.path.display().to_string(), now) {
            Ok(changes) => {
                self.reported_trouble = None;
                Some(Ok(changes))
            }
            Err(invalid) => {
                let message = matches!(&self.reported_trouble, Some((before, _)) if *before == look);
                self.reported_trouble = Some((look, self.book.version()));
                (!message).then_some(Err(invalid))
            }
        }
    }

    /// Returns the state of the file once it has been stable for long enough.
    fn stable_state(&mut self, now: Moment) -> Option<FileState> {
        let look = match read_policy_file(&self.path) {
            Ok(text) => FileState::Text(text.into()),
            Err(_) if matches!(fs::metadata(&self.path), Err(error) if error.kind() == ErrorKind::NotFound) => {
                FileState::Gone
            }
            Err(invalid) => FileState::Unreadable(invalid),
        };
        match &self.last_state {
            Some((before, since)) if *before == look => {
                (now.since(*since) >= MIN_STABLE_TIME).then_some(look)
            }
            _ => {
                self.last_state = Some((look, now));
                None
            }
        }
    }

    /// Reports that the file is missing or unreadable, once.
    fn report_trouble(&mut self, look: FileState) -> Option<InvalidInput> {
        if matches!(&self.reported_trouble, Some((before, _)) if *before == look) {
            return None;
        }
        let mut invalid = match &look {
            FileState::Unreadable(invalid) => invalid.clone(),
            FileState::Gone | FileState::Text(_) => InvalidInput {
                field: self.path.display().to_string(),
                given: "is gone".into(),
                allowed: "put it back".into(),
            },
        };
        invalid.allowed.push_str("; the policy that was loaded last stays in force");
        self.reported_trouble = Some((look, self.book.version()));
        Some(invalid)
    }
}

impl PolicyBook {
    /// Puts a new text of the policy file in force. Overrides survive, except those of removed
    /// classes.
    ///
    /// # Errors
    /// The text is invalid, alone or together with an override in force: nothing is changed.
    pub fn reload(&self, text: &str, path: &str, now: Moment) -> Result<Vec<Change>, InvalidInput> {
        let path: Arc<str> = path.into();
        let kept = |mut invalid: InvalidInput| {
            invalid.allowed.push_str("\nthe policy that was loaded last stays in force");
            invalid
        };
        let drafts = read_drafts(text, &path).map_err(|problems| kept(merge_problems(&path, problems)))?;
        let changes = self
            .change(now, |state| {
                let before = state.clone();
                state.drafts = drafts;
                state.overrides.retain(|over| state.drafts.contains_key(&over.class));
                // The difference below includes what removed rules had changed.
                state.sync_rules(now);
                Ok(difference(&before, state, &path, now))
            })
            .map_err(|mut invalid| {
                invalid.field = format!("with the overrides in force, {}", invalid.field);
                kept(invalid)
            })?;
        self.set_file_text(text.into());
        Ok(changes)
    }
}

/// All values in force that changed.
fn difference(before: &PolicyState, after: &PolicyState, path: &str, now: Moment) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut change = |class: &Arc<str>, field: &str, from: &str, to: &str, kind, reason: String| {
        changes.push(Change {
            class: Arc::clone(class),
            field: field.into(),
            from: from.into(),
            to: to.into(),
            kind,
            reason,
            until: None,
        });
    };
    for name in before.drafts.keys().filter(|name| !after.drafts.contains_key(*name)) {
        change(name, "", "", "", ChangeKind::Removed, path.into());
    }
    for name in after.drafts.keys() {
        let Ok(new) = after.resolve(name, now) else {
            continue;
        };
        let Ok(old) = before.resolve(name, now) else {
            change(name, "", "", "", ChangeKind::Added, path.into());
            continue;
        };
        let fields = old
            .resolved_values
            .keys()
            .chain(new.resolved_values.keys().filter(|field| !old.resolved_values.contains_key(field)));
        for field in fields {
            let field = field.path();
            let (from, to) = (old.value(field).unwrap_or("none"), new.value(field).unwrap_or("none"));
            if from != to {
                let reason =
                    new.origins.get(field).map_or_else(|| path.into(), |origin| origin.describe(now));
                change(name, field, from, to, ChangeKind::Reloaded, reason);
            }
        }
    }
    changes
}
