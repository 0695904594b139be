//! Temporary changes by an operator: any field, with a reason and an end.

use std::sync::Arc;
use std::time::Duration;

use super::book::PolicyBook;
use super::change::{Change, ChangeKind};
use super::duration::human;
use super::field::{Field, nearest};
use super::setting::Setting;
use crate::clock::Moment;
use crate::word::Invalid;

/// The longest an override may last. What is meant for longer belongs in the file, where others can see it.
pub const LONGEST_OVERRIDE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// One override.
#[derive(Debug, Clone)]
pub(crate) struct Override {
    pub(crate) class: Arc<str>,
    pub(crate) field: Field,
    pub(crate) setting: Setting,
    pub(crate) reason: Arc<str>,
    /// It is in force before this moment, and not at it.
    pub(crate) until: Moment,
}

impl Override {
    /// Checks everything about it but whether the class can live with it.
    pub(crate) fn new(
        class: &Arc<str>,
        path: &str,
        value: &str,
        reason: &str,
        lasting: Duration,
        now: Moment,
    ) -> Result<Self, Invalid> {
        let (field, setting) = statement(class, path, value)?;
        let reason = reason.trim();
        if reason.is_empty() {
            let why = "say why: whoever reads the history must understand it without asking you";
            return Err(Invalid::new("reason", reason, why));
        }
        if reason.chars().count() > 500 || reason.chars().any(char::is_control) {
            let why = "must be one line of at most 500 characters";
            return Err(Invalid::new("reason", reason, why));
        }
        if lasting < Duration::from_secs(1) || lasting > LONGEST_OVERRIDE {
            let why = "an override lasts from 1s to 720h and then reverts by itself; what is meant for longer belongs \
                       in the policy file";
            return Err(Invalid::new("for", human(lasting), why));
        }
        Ok(Self {
            class: Arc::clone(class),
            field,
            setting,
            reason: reason.into(),
            until: now + lasting,
        })
    }

    fn matches(&self, class: &str, only: Option<Field>) -> bool {
        self.class.as_ref() == class && only.is_none_or(|only| only == self.field)
    }
}

/// One field and its value, both as text.
pub(crate) fn statement(class: &str, path: &str, value: &str) -> Result<(Field, Setting), Invalid> {
    let field = find(class, path)?;
    let setting = Setting::read_text(field, value)
        .map_err(|why| Invalid::new(format!("class.{class}.{path}"), value, why))?;
    Ok((field, setting))
}

/// The field of a path, or what it may have been meant to be.
pub(crate) fn find(class: &str, path: &str) -> Result<Field, Invalid> {
    Field::find(path).ok_or_else(|| {
        let known = Field::ALL.map(Field::path);
        let last = known
            .into_iter()
            .find(|known| known.rsplit('.').next() == Some(path));
        let hint = last
            .or_else(|| nearest(path, known))
            .map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        let why = format!("there is no such field: {hint}Known fields: {}", known.join(", "));
        Invalid::new(format!("class.{class}"), path, why)
    })
}

impl PolicyBook {
    /// Changes one field of a class for a while.
    ///
    /// The class must work now and after each override has ended; otherwise nothing is changed. A second
    /// override of the same field replaces the first.
    ///
    /// # Errors
    /// There is no such class or field, the value is not allowed, the reason is empty, the time is not from 1 s to
    /// 30 days, or what results cannot work: then with the sum that shows it.
    pub fn set(
        &self,
        class: &str,
        path: &str,
        value: &str,
        reason: &str,
        lasting: Duration,
        now: Moment,
    ) -> Result<Change, Invalid> {
        self.change(now, |state| {
            let name = Arc::clone(&state.base(class)?.name);
            let over = Override::new(&name, path, value, reason, lasting, now)?;
            let field = over.field;
            let from = state.value(&name, field, now);
            let ended = state.take_ended(now);
            state.pending.extend(ended);
            state
                .overrides
                .retain(|other| other.class != name || other.field != field);
            let (reason, until) = (over.reason.to_string(), Some(over.until));
            state.overrides.push(over);
            let gone = state.sync_rules(now);
            state.pending.extend(gone);
            Ok(Change {
                to: state.value(&name, field, now),
                class: name,
                field: field.path().into(),
                from,
                kind: ChangeKind::Set,
                reason,
                until,
            })
        })
    }

    /// Takes one override back before its time.
    ///
    /// # Errors
    /// There is none, or the class cannot work without it: clear the other overrides first, or
    /// [all of them](Self::clear_all).
    pub fn clear(&self, class: &str, path: &str, now: Moment) -> Result<Change, Invalid> {
        let field = find(class, path)?;
        let none = || Invalid {
            field: format!("class.{class}.{path}"),
            given: "is not overridden".into(),
            allowed: "there is nothing to clear; `explain` shows which values are".into(),
        };
        self.clear_where(class, Some(field), now)?.pop().ok_or_else(none)
    }

    /// Takes all overrides of a class back; what is left is what the file and the rules say.
    ///
    /// # Errors
    /// There is no such class.
    pub fn clear_all(&self, class: &str, now: Moment) -> Result<Vec<Change>, Invalid> {
        self.clear_where(class, None, now)
    }

    fn clear_where(&self, class: &str, only: Option<Field>, now: Moment) -> Result<Vec<Change>, Invalid> {
        {
            let state = self.state();
            state.base(class)?;
            // Nothing to do is no change: nobody is woken for it.
            if !state
                .overrides
                .iter()
                .any(|over| over.matches(class, only) && now < over.until)
            {
                return Ok(Vec::new());
            }
        }
        self.change(now, |state| {
            let ended = state.take_ended(now);
            state.pending.extend(ended);
            let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut state.overrides)
                .into_iter()
                .partition(|over| over.matches(class, only));
            state.overrides = kept;
            let unstated = state.sync_rules(now);
            state.pending.extend(unstated);
            let change = |over: Override| Change {
                from: over.setting.to_string(),
                to: state.value(&over.class, over.field, now),
                class: over.class,
                field: over.field.path().into(),
                kind: ChangeKind::Cleared,
                reason: format!("the override was taken back: {}", over.reason),
                until: None,
            };
            Ok(gone.into_iter().map(change).collect())
        })
    }

    /// Tells which overrides have ended since the last call. They have ended for readers already, by the clock;
    /// this is for the record, and wakes those who subscribed to [`changes`](Self::changes).
    pub fn expire(&self, now: Moment) -> Vec<Change> {
        {
            let state = self.state();
            if state.pending.is_empty() && state.overrides.iter().all(|over| now < over.until) {
                return Vec::new();
            }
        }
        let told = self.change(now, |state| {
            let mut told = std::mem::take(&mut state.pending);
            told.extend(state.take_ended(now));
            told.extend(state.sync_rules(now));
            Ok(told)
        });
        // Every stage after an override's end was checked when the override was set, so this cannot be refused.
        told.unwrap_or_default()
    }

    /// When the next override ends, if there is one.
    #[must_use]
    pub fn next_change(&self, now: Moment) -> Option<Moment> {
        let state = self.state();
        state.overrides.iter().map(|over| over.until.max(now)).min()
    }
}
