//! Following the policy file: looked at from time to time, never in between.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::book::{PolicyBook, read_file};
use super::change::{Change, ChangeKind};
use super::compose::{compose, merge};
use super::state::State;
use crate::clock::Moment;
use crate::word::Invalid;

/// What one look at the file showed.
#[derive(Debug, Clone, PartialEq)]
enum Look {
    Text(Arc<str>),
    Gone,
    Unreadable(Invalid),
}

/// For how long a look must have been the same before it counts.
const STEADY: Duration = Duration::from_millis(500);

/// Follows a policy file for a [`PolicyBook`]. It has no task and no timer: call [`check`](Self::check) about once
/// a second.
///
/// The path is opened anew and read whole at each look, so an atomic rename or a symlink that was swapped is seen like
/// an edit, and no time stamp can hide one. Two looks in a row, half a second or more apart, must show the same before it
/// counts: a file caught half-written by an editor can be valid and mean something else, an empty one above all.
#[derive(Debug)]
pub struct FileWatch {
    book: Arc<PolicyBook>,
    path: PathBuf,
    /// The last look, and since when it has been the same.
    last: Option<(Look, Moment)>,
    /// The last look that was told as trouble, so that it is told once, and the policy it was tried on.
    trouble: Option<(Look, u64)>,
}

impl FileWatch {
    /// Follows the file that the book was read from.
    #[must_use]
    pub fn new(book: Arc<PolicyBook>, path: impl Into<PathBuf>) -> Self {
        Self {
            book,
            path: path.into(),
            last: None,
            trouble: None,
        }
    }

    /// The file that is followed.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks at the file. `None`: nothing new. `Some(Ok)`: it is in force now, with what changed (nothing, if a bad
    /// file was mended to what it was). `Some(Err)`: it cannot be used or is gone; the old policy stays in force, and
    /// the same trouble is told only once.
    pub fn check(&mut self, now: Moment) -> Option<Result<Vec<Change>, Invalid>> {
        let look = self.look(now)?;
        let Look::Text(text) = &look else {
            return self.tell(look).map(Err);
        };
        if self.book.text().as_ref() == Some(text) {
            return self.trouble.take().map(|_| Ok(Vec::new()));
        }
        // A file refused because of an override deserves another try once the overrides have changed.
        if self.trouble == Some((look.clone(), self.book.version())) {
            return None;
        }
        match self.book.reload(text, &self.path.display().to_string(), now) {
            Ok(changes) => {
                self.trouble = None;
                Some(Ok(changes))
            }
            Err(invalid) => {
                let said = matches!(&self.trouble, Some((before, _)) if *before == look);
                self.trouble = Some((look, self.book.version()));
                (!said).then_some(Err(invalid))
            }
        }
    }

    /// A look that has been the same for a while.
    fn look(&mut self, now: Moment) -> Option<Look> {
        let look = match read_file(&self.path) {
            Ok(text) => Look::Text(text.into()),
            Err(_) if matches!(fs::metadata(&self.path), Err(error) if error.kind() == ErrorKind::NotFound) => {
                Look::Gone
            }
            Err(invalid) => Look::Unreadable(invalid),
        };
        match &self.last {
            Some((before, since)) if *before == look => (now.since(*since) >= STEADY).then_some(look),
            _ => {
                self.last = Some((look, now));
                None
            }
        }
    }

    /// Trouble with the file itself.
    fn tell(&mut self, look: Look) -> Option<Invalid> {
        if matches!(&self.trouble, Some((before, _)) if *before == look) {
            return None;
        }
        let mut invalid = match &look {
            Look::Unreadable(invalid) => invalid.clone(),
            Look::Gone | Look::Text(_) => Invalid {
                field: self.path.display().to_string(),
                given: "is gone".into(),
                allowed: "put it back".into(),
            },
        };
        invalid
            .allowed
            .push_str("; the policy that was loaded last stays in force");
        self.trouble = Some((look, self.book.version()));
        Some(invalid)
    }
}

impl PolicyBook {
    /// Puts a new text of the policy file in force. Overrides survive it; a class that is gone takes its own with it.
    ///
    /// # Errors
    /// Something in it cannot work, alone or together with an override that is in force: nothing is changed.
    pub fn reload(&self, text: &str, path: &str, now: Moment) -> Result<Vec<Change>, Invalid> {
        let path: Arc<str> = path.into();
        let kept = |mut invalid: Invalid| {
            invalid
                .allowed
                .push_str("\nthe policy that was loaded last stays in force");
            invalid
        };
        let drafts = compose(text, &path).map_err(|problems| kept(merge(&path, problems)))?;
        let changes = self
            .change(now, |state| {
                let before = state.clone();
                state.drafts = drafts;
                state
                    .overrides
                    .retain(|over| state.drafts.contains_key(&over.class));
                // What a rule that is gone had changed is part of the difference.
                state.sync_rules(now);
                Ok(difference(&before, state, &path, now))
            })
            .map_err(|mut invalid| {
                invalid.field = format!("with the overrides in force, {}", invalid.field);
                kept(invalid)
            })?;
        self.set_text(text.into());
        Ok(changes)
    }
}

/// Every value in force that became another.
fn difference(before: &State, after: &State, path: &str, now: Moment) -> Vec<Change> {
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
    for name in before
        .drafts
        .keys()
        .filter(|name| !after.drafts.contains_key(*name))
    {
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
            .values
            .keys()
            .chain(new.values.keys().filter(|field| !old.values.contains_key(field)));
        for field in fields {
            let field = field.path();
            let (from, to) = (
                old.value(field).unwrap_or("none"),
                new.value(field).unwrap_or("none"),
            );
            if from != to {
                let reason = new
                    .origins
                    .get(field)
                    .map_or_else(|| path.into(), |origin| origin.describe(now));
                change(name, field, from, to, ChangeKind::Reloaded, reason);
            }
        }
    }
    changes
}
