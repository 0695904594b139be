//! What a [`PolicyBook`](super::PolicyBook) knows, and the snapshot that its readers see.

use std::collections::HashMap;
use std::sync::Arc;

use super::Class;
use super::change::{Change, ChangeKind};
use super::compose::{Drafts, no_such_class};
use super::draft::Draft;
use super::duration::human;
use super::escalation::Watch;
use super::field::Field;
use super::origin::{Origin, Resolved};
use super::overrides::Override;
use super::rule::Action;
use super::setting::{Setting, Word};
use crate::clock::Moment;
use crate::word::Invalid;

/// Everything stated, in layers: built-in and file, then rules in force, then overrides. The operator's word is
/// the last one: a rule must not undo what a person decided knowingly.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) drafts: Drafts,
    pub(crate) watches: Vec<Watch>,
    pub(crate) overrides: Vec<Override>,
    /// Changes that happened by themselves while another was made; told by the next `expire`.
    pub(crate) pending: Vec<Change>,
}

/// The classes as readers see them.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) classes: HashMap<Arc<str>, Timeline>,
}

/// A class now and after each of its overrides has ended: so a reader needs only the time, and nobody has to
/// wake up for an override to end.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// Each in force before its moment; the last one is for ever.
    stages: Vec<(Moment, Arc<Class>)>,
    /// Is anything counted for it?
    pub(crate) watched: bool,
}

impl Timeline {
    pub(crate) fn at(&self, now: Moment) -> Option<&Arc<Class>> {
        let stage = self.stages.iter().find(|(until, _)| now < *until);
        stage.or(self.stages.last()).map(|(_, class)| class)
    }
}

impl State {
    /// A class as it is stated at a moment.
    pub(crate) fn draft(&self, name: &str, now: Moment) -> Result<Draft, Invalid> {
        let mut draft = self.base(name)?.clone();
        for watch in self.watches.iter().filter(|watch| watch.class.as_ref() == name) {
            let Some(since) = watch.since else { continue };
            let (field, word) = target(watch.rule.action);
            let origin = Origin::Escalation {
                rule: Arc::clone(&watch.text),
                since,
            };
            draft.state(field, Setting::Word(word), origin);
        }
        for over in self
            .overrides
            .iter()
            .filter(|over| over.class.as_ref() == name && now < over.until)
        {
            let origin = Origin::Override {
                reason: Arc::clone(&over.reason),
                until: over.until,
            };
            draft.state(over.field, over.setting.clone(), origin);
        }
        Ok(draft)
    }

    /// A class without what changed at runtime.
    pub(crate) fn base(&self, name: &str) -> Result<&Draft, Invalid> {
        self.drafts.get(name).ok_or_else(|| {
            let known = self.drafts.keys().map(AsRef::as_ref);
            Invalid::new("class", name, no_such_class(name, known))
        })
    }

    pub(crate) fn resolve(&self, name: &str, now: Moment) -> Result<Resolved, Invalid> {
        let resolved = self.draft(name, now)?.resolve(now);
        resolved.map_err(|problems| super::compose::merge(&format!("class.{name}"), problems))
    }

    /// The value of a field in force, for people.
    pub(crate) fn value(&self, name: &str, field: Field, now: Moment) -> String {
        self.resolve(name, now)
            .ok()
            .and_then(|resolved| resolved.value(field.path()).map(str::to_owned))
            .unwrap_or_else(|| "none".into())
    }

    /// Resolves every class for now and for after each override's end, and refuses if one of them cannot work.
    pub(crate) fn snapshot(&self, now: Moment) -> Result<Snapshot, Invalid> {
        let mut classes = HashMap::new();
        for name in self.drafts.keys() {
            let mut ends: Vec<Moment> = self
                .overrides
                .iter()
                .filter(|over| over.class == *name && now < over.until)
                .map(|over| over.until)
                .collect();
            ends.sort_unstable();
            ends.dedup();
            ends.push(Moment::FAR);
            let (mut stages, mut from, mut watched) = (Vec::with_capacity(ends.len()), now, false);
            for until in ends {
                let resolved = self.resolve(name, from).map_err(|mut invalid| {
                    if from > now {
                        let left = human(from.since(now));
                        invalid.allowed = format!("when an override ends in {left}: {}", invalid.allowed);
                    }
                    invalid
                })?;
                watched |= !resolved.rules.is_empty();
                stages.push((until, Arc::new(resolved.class)));
                from = until;
            }
            classes.insert(Arc::clone(name), Timeline { stages, watched });
        }
        Ok(Snapshot { classes })
    }

    /// Watches the rules that are stated now; those that stay keep what they have counted. Returns what rules
    /// that went away while in force had changed.
    pub(crate) fn sync_rules(&mut self, now: Moment) -> Vec<Change> {
        let mut before = std::mem::take(&mut self.watches);
        let names: Vec<_> = self.drafts.keys().cloned().collect();
        for name in names {
            let rules = self
                .draft(&name, now)
                .map(|draft| draft.rules().to_vec())
                .unwrap_or_default();
            for rule in rules {
                let kept = before
                    .iter()
                    .position(|watch| watch.class == name && watch.rule == rule)
                    .map(|found| before.swap_remove(found));
                self.watches
                    .push(kept.unwrap_or_else(|| Watch::new(Arc::clone(&name), rule)));
            }
        }
        before
            .into_iter()
            .filter(|watch| watch.since.is_some() && self.drafts.contains_key(&watch.class))
            .map(|watch| {
                let (field, word) = target(watch.rule.action);
                Change {
                    to: self.value(&watch.class, field, now),
                    class: watch.class,
                    field: field.path().into(),
                    from: word.as_str().into(),
                    kind: ChangeKind::Reverted,
                    reason: format!("the rule is no longer stated: {}", watch.text),
                    until: None,
                }
            })
            .collect()
    }

    /// Takes out overrides that have ended, and says what holds since.
    pub(crate) fn take_ended(&mut self, now: Moment) -> Vec<Change> {
        let (mut ended, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.overrides)
            .into_iter()
            .partition(|over| over.until <= now);
        self.overrides = kept;
        ended.sort_by_key(|over| over.until);
        let change = |over: Override| Change {
            from: over.setting.to_string(),
            to: self.value(&over.class, over.field, now),
            class: over.class,
            field: over.field.path().into(),
            kind: ChangeKind::Reverted,
            reason: format!("the override has ended: {}", over.reason),
            until: None,
        };
        ended.into_iter().map(change).collect()
    }
}

/// What an action sets.
pub(crate) fn target(action: Action) -> (Field, Word) {
    match action {
        Action::FailClosed => (Field::AcquireOnError, Word::FailClosed),
        Action::Fence => (Field::RenewOnFailure, Word::Fence),
    }
}
