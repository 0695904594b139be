//! Overrides: temporary changes by an operator, with a reason and an end.

use std::sync::Arc;
use std::time::Duration;

use super::book::PolicyBook;
use super::change::{Change, ChangeKind};
use super::duration::human;
use super::field::{Field, nearest};
use super::setting::Setting;
use crate::clock::Moment;
use crate::types::InvalidInput;

/// The maximum duration of an override. A lasting change belongs in the file, where others can see
/// it.
pub const MAX_OVERRIDE_DURATION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[derive(Debug, Clone)]
pub(crate) struct Override {
    pub(crate) class: Arc<str>,
    pub(crate) field: Field,
    pub(crate) setting: Setting,
    pub(crate) reason: Arc<str>,
    // Exclusive: at this moment the override has ended.
    pub(crate) until: Moment,
}

impl Override {
    /// Checks the override itself; the caller checks the resulting class.
    pub(crate) fn new(
        class: &Arc<str>,
        path: &str,
        value: &str,
        reason: &str,
        lasting: Duration,
        now: Moment,
    ) -> Result<Self, InvalidInput> {
        let (field, setting) = parse_field_value(class, path, value)?;
        let reason = reason.trim();
        if reason.is_empty() {
            let why = "say why: readers of the history must understand the change";
            return Err(InvalidInput::new("reason", reason, why));
        }
        if reason.chars().count() > 500 || reason.chars().any(char::is_control) {
            let why = "must be one line of at most 500 characters";
            return Err(InvalidInput::new("reason", reason, why));
        }
        if lasting < Duration::from_secs(1) || lasting > MAX_OVERRIDE_DURATION {
            let why = "an override lasts from 1s to 720h and then reverts by itself; what is meant for longer belongs \
                       in the policy file";
            return Err(InvalidInput::new("for", human(lasting), why));
        }
        Ok(Self { class: Arc::clone(class), field, setting, reason: reason.into(), until: now + lasting })
    }

    fn matches(&self, class: &str, only: Option<Field>) -> bool {
        self.class.as_ref() == class && only.is_none_or(|only| only == self.field)
    }
}

/// Parses a field and its value.
pub(crate) fn parse_field_value(
    class: &str,
    path: &str,
    value: &str,
) -> Result<(Field, Setting), InvalidInput> {
    let field = find_field(class, path)?;
    let setting = Setting::read_text(field, value)
        .map_err(|why| InvalidInput::new(format!("class.{class}.{path}"), value, why))?;
    Ok((field, setting))
}

/// Finds the field of a path; the error suggests a similar one.
pub(crate) fn find_field(class: &str, path: &str) -> Result<Field, InvalidInput> {
    Field::find(path).ok_or_else(|| {
        let known = Field::ALL.map(Field::path);
        let last = known.into_iter().find(|known| known.rsplit('.').next() == Some(path));
        let hint = last
            .or_else(|| nearest(path, known))
            .map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        let why = format!("there is no such field: {hint}Known fields: {}", known.join(", "));
        InvalidInput::new(format!("class.{class}"), path, why)
    })
}

impl PolicyBook {
    /// Overrides one field of a class for a limited time.
    ///
    /// The class must be valid now and after each override has ended; otherwise nothing is changed.
    /// A second override of the same field replaces the first.
    ///
    /// # Errors
    /// Unknown class or field, a value that is not allowed, an empty reason, a duration outside 1 s
    /// to 30 days, or a class that cannot work (with the arithmetic).
    pub fn set_override(
        &self,
        class: &str,
        path: &str,
        value: &str,
        reason: &str,
        lasting: Duration,
        now: Moment,
    ) -> Result<Change, InvalidInput> {
        self.change(now, |state| {
            let name = Arc::clone(&state.base_draft(class)?.name);
            let over = Override::new(&name, path, value, reason, lasting, now)?;
            let field = over.field;
            let from = state.displayed_value(&name, field, now);
            let ended = state.remove_ended_overrides(now);
            state.pending.extend(ended);
            state.overrides.retain(|other| other.class != name || other.field != field);
            let (reason, until) = (over.reason.to_string(), Some(over.until));
            state.overrides.push(over);
            let gone = state.sync_rules(now);
            state.pending.extend(gone);
            Ok(Change {
                to: state.displayed_value(&name, field, now),
                class: name,
                field: field.path().into(),
                from,
                kind: ChangeKind::Set,
                reason,
                until,
            })
        })
    }

    /// Clears one override before its end.
    ///
    /// # Errors
    /// The field is not overridden, or the class cannot work without it: clear the other overrides
    /// first, or [all of them](Self::clear_overrides).
    pub fn clear_override(&self, class: &str, path: &str, now: Moment) -> Result<Change, InvalidInput> {
        let field = find_field(class, path)?;
        let none = || InvalidInput {
            field: format!("class.{class}.{path}"),
            given: "is not overridden".into(),
            allowed: "there is nothing to clear; `explain` shows which values are".into(),
        };
        self.clear_where(class, Some(field), now)?.pop().ok_or_else(none)
    }

    /// Clears all overrides of a class; the file and the rules then apply.
    ///
    /// # Errors
    /// There is no such class.
    pub fn clear_overrides(&self, class: &str, now: Moment) -> Result<Vec<Change>, InvalidInput> {
        self.clear_where(class, None, now)
    }

    fn clear_where(
        &self,
        class: &str,
        only: Option<Field>,
        now: Moment,
    ) -> Result<Vec<Change>, InvalidInput> {
        {
            let state = self.state();
            state.base_draft(class)?;
            // Without a match the version must not grow: subscribers would wake up for nothing.
            if !state.overrides.iter().any(|over| over.matches(class, only) && now < over.until) {
                return Ok(Vec::new());
            }
        }
        self.change(now, |state| {
            let ended = state.remove_ended_overrides(now);
            state.pending.extend(ended);
            let (gone, kept): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.overrides).into_iter().partition(|over| over.matches(class, only));
            state.overrides = kept;
            let unstated = state.sync_rules(now);
            state.pending.extend(unstated);
            let change = |over: Override| Change {
                from: over.setting.to_string(),
                to: state.displayed_value(&over.class, over.field, now),
                class: over.class,
                field: over.field.path().into(),
                kind: ChangeKind::Cleared,
                reason: format!("the override was taken back: {}", over.reason),
                until: None,
            };
            Ok(gone.into_iter().map(change).collect())
        })
    }

    /// Returns the overrides that have ended since the last call. For readers they ended by the
    /// clock already; this is for the record, and notifies the subscribers of
    /// [`changes`](Self::changes).
    pub fn take_ended_changes(&self, now: Moment) -> Vec<Change> {
        {
            let state = self.state();
            if state.pending.is_empty() && state.overrides.iter().all(|over| now < over.until) {
                return Vec::new();
            }
        }
        let changes = self.change(now, |state| {
            let mut changes = std::mem::take(&mut state.pending);
            changes.extend(state.remove_ended_overrides(now));
            changes.extend(state.sync_rules(now));
            Ok(changes)
        });
        // Every class after the end of an override was checked when the override was set, so this
        // cannot be refused.
        changes.unwrap_or_default()
    }

    /// The end of the next override, if there is one.
    #[must_use]
    pub fn next_change(&self, now: Moment) -> Option<Moment> {
        let state = self.state();
        state.overrides.iter().map(|over| over.until.max(now)).min()
    }
}
