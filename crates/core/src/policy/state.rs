//! The state of a [`PolicyBook`](super::PolicyBook), and the snapshot for its readers.

use std::collections::HashMap;
use std::sync::Arc;

use super::Class;
use super::change::{Change, ChangeKind};
use super::compose::{Drafts, unknown_class_message};
use super::draft::Draft;
use super::duration::human;
use super::escalation::RuleWatch;
use super::field::Field;
use super::origin::{Origin, ResolvedClass};
use super::overrides::Override;
use super::rule::Action;
use super::setting::{Keyword, Setting};
use crate::clock::Moment;
use crate::types::InvalidInput;

/// All layers: built-in and file, then active rules, then overrides. Overrides come last: a rule
/// must not undo an operator's decision.
#[derive(Debug, Clone)]
pub(crate) struct PolicyState {
    pub(crate) drafts: Drafts,
    pub(crate) watches: Vec<RuleWatch>,
    pub(crate) overrides: Vec<Override>,
    // Changes that occurred during another change; the next `take_ended_changes` returns them.
    pub(crate) pending: Vec<Change>,
}

/// The classes for readers.
#[derive(Debug)]
pub(crate) struct PolicySnapshot {
    pub(crate) classes: HashMap<Arc<str>, Timeline>,
}

// Precomputed versions of a class, now and after the end of each override. A reader needs only the
// time, and no task must run for an override to end.
#[derive(Debug)]
pub(crate) struct Timeline {
    // Each is in force before its moment; the last one has no end.
    versions: Vec<(Moment, Arc<Class>)>,
    // False skips the counting for a class without rules.
    pub(crate) has_rules: bool,
}

impl Timeline {
    pub(crate) fn at(&self, now: Moment) -> Option<&Arc<Class>> {
        let testbed = self.versions.iter().find(|(until, _)| now < *until);
        testbed.or(self.versions.last()).map(|(_, class)| class)
    }
}

impl PolicyState {
    /// The draft of a class at a moment, with all layers.
    pub(crate) fn draft(&self, name: &str, now: Moment) -> Result<Draft, InvalidInput> {
        let mut draft = self.base_draft(name)?.clone();
        for watch in self.watches.iter().filter(|watch| watch.class.as_ref() == name) {
            let Some(since) = watch.active_since else { continue };
            let (field, word) = action_target(watch.rule.action);
            let origin = Origin::Escalation { rule: Arc::clone(&watch.text), since };
            draft.set_field(field, Setting::Word(word), origin);
        }
        for over in self.overrides.iter().filter(|over| over.class.as_ref() == name && now < over.until) {
            let origin = Origin::Override { reason: Arc::clone(&over.reason), until: over.until };
            draft.set_field(over.field, over.setting.clone(), origin);
        }
        Ok(draft)
    }

    /// The draft of a class without rules and overrides.
    pub(crate) fn base_draft(&self, name: &str) -> Result<&Draft, InvalidInput> {
        self.drafts.get(name).ok_or_else(|| {
            let known = self.drafts.keys().map(AsRef::as_ref);
            InvalidInput::new("class", name, unknown_class_message(name, known))
        })
    }

    pub(crate) fn resolve(&self, name: &str, now: Moment) -> Result<ResolvedClass, InvalidInput> {
        let resolved = self.draft(name, now)?.resolve(now);
        resolved.map_err(|problems| super::compose::merge_problems(&format!("class.{name}"), problems))
    }

    /// The value of a field in force, for people.
    pub(crate) fn displayed_value(&self, name: &str, field: Field, now: Moment) -> String {
        self.resolve(name, now)
            .ok()
            .and_then(|resolved| resolved.value(field.path()).map(str::to_owned))
            .unwrap_or_else(|| "none".into())
    }

    /// Resolves every class for now and for after each override's end. Fails if one of them cannot
    /// work.
    pub(crate) fn snapshot(&self, now: Moment) -> Result<PolicySnapshot, InvalidInput> {
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
            classes.insert(Arc::clone(name), Timeline { versions: stages, has_rules: watched });
        }
        Ok(PolicySnapshot { classes })
    }

    /// Replaces the watched rules by those stated now; unchanged rules keep their counts. Returns
    /// the reverted changes of active rules that were removed.
    pub(crate) fn sync_rules(&mut self, now: Moment) -> Vec<Change> {
        let mut before = std::mem::take(&mut self.watches);
        let names: Vec<_> = self.drafts.keys().cloned().collect();
        for name in names {
            let rules = self.draft(&name, now).map(|draft| draft.rules().to_vec()).unwrap_or_default();
            for rule in rules {
                let kept = before
                    .iter()
                    .position(|watch| watch.class == name && watch.rule == rule)
                    .map(|found| before.swap_remove(found));
                self.watches.push(kept.unwrap_or_else(|| RuleWatch::new(Arc::clone(&name), rule)));
            }
        }
        before
            .into_iter()
            .filter(|watch| watch.active_since.is_some() && self.drafts.contains_key(&watch.class))
            .map(|watch| {
                let (field, word) = action_target(watch.rule.action);
                Change {
                    to: self.displayed_value(&watch.class, field, now),
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

    /// Removes ended overrides and returns the resulting changes.
    pub(crate) fn remove_ended_overrides(&mut self, now: Moment) -> Vec<Change> {
        let (mut ended, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.overrides).into_iter().partition(|over| over.until <= now);
        self.overrides = kept;
        ended.sort_by_key(|over| over.until);
        let change = |over: Override| Change {
            from: over.setting.to_string(),
            to: self.displayed_value(&over.class, over.field, now),
            class: over.class,
            field: over.field.path().into(),
            kind: ChangeKind::Reverted,
            reason: format!("the override has ended: {}", over.reason),
            until: None,
        };
        ended.into_iter().map(change).collect()
    }
}

/// The field and the value that an action sets.
pub(crate) fn action_target(action: Action) -> (Field, Keyword) {
    match action {
        Action::FailClosed => (Field::AcquireOnError, Keyword::FailClosed),
        Action::Fence => (Field::RenewOnFailure, Keyword::Fence),
    }
}
