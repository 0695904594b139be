//! A class on its way: what was stated for each field and by whom, layer over layer, until it is resolved.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::check::findings;
use super::class::{
    AcquirePolicy, Class, Enforcement, OnError, OnFailure, ReleasePolicy, ReleaseWhen, RenewPolicy,
};
use super::duration::human;
use super::field::Field;
use super::origin::{Origin, Resolved};
use super::rule::Rule;
use super::setting::{Setting, Span, Word};
use crate::clock::Moment;
use crate::store::Promise;
use crate::word::{Invalid, Ttl};

/// A value and who stated it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stated {
    pub(crate) setting: Setting,
    pub(crate) origin: Origin,
}

/// Everything stated for one class. A later layer replaces an earlier one field by field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draft {
    pub(crate) name: Arc<str>,
    pub(crate) fields: BTreeMap<Field, Stated>,
}

impl Draft {
    /// States one field over whatever was there.
    pub(crate) fn state(&mut self, field: Field, setting: Setting, origin: Origin) {
        self.fields.insert(field, Stated { setting, origin });
    }

    /// The rules stated for it.
    pub(crate) fn rules(&self) -> &[Rule] {
        match self.fields.get(&Field::Escalate).map(|stated| &stated.setting) {
            Some(Setting::Rules(rules)) => rules,
            _ => &[],
        }
    }

    /// Computes and checks every value.
    pub(crate) fn resolve(&self, at: Moment) -> Result<Resolved, Vec<Invalid>> {
        let mut work = Resolving {
            draft: self,
            ttl: Duration::ZERO,
            poll: None,
            problems: Vec::new(),
            values: BTreeMap::new(),
            origins: BTreeMap::new(),
        };
        let class = work.class();
        let Resolving {
            mut problems,
            values,
            origins,
            ..
        } = work;
        // The checks compare fields with each other, which says little while one of them is missing.
        match class {
            Some(class) if problems.is_empty() => {
                problems.extend(findings(&class).into_iter().map(|finding| {
                    let place = self.place(finding.fields);
                    finding.located(&place, &self.name)
                }));
                if problems.is_empty() {
                    return Ok(Resolved {
                        class,
                        origins,
                        at,
                        rules: self.rules().to_vec(),
                        values,
                    });
                }
                Err(problems)
            }
            _ => Err(problems),
        }
    }

    /// Where the first of these fields that a file states is stated.
    fn place(&self, fields: &[Field]) -> String {
        fields
            .iter()
            .find_map(|field| self.fields.get(field)?.origin.place())
            .unwrap_or_default()
    }
}

/// One resolution under way.
struct Resolving<'a> {
    draft: &'a Draft,
    ttl: Duration,
    poll: Option<Duration>,
    problems: Vec<Invalid>,
    values: BTreeMap<Field, (String, String)>,
    origins: BTreeMap<String, Origin>,
}

impl Resolving<'_> {
    fn class(&mut self) -> Option<Class> {
        self.poll = self.optional(Field::Poll);
        let ttl = self.ttl();
        self.ttl = ttl.map_or(Duration::ZERO, Ttl::get);
        let drift = match self.draft.fields.get(&Field::Drift).map(|stated| &stated.setting) {
            Some(Setting::Span(Span::Fixed(_))) => self.span(Field::Drift),
            _ => {
                let drift = Class::default_drift(self.ttl);
                let origin = Origin::Derived("20ms + 1% of ttl");
                self.note(Field::Drift, "auto".into(), human(drift), origin);
                Some(drift)
            }
        };
        let max_hold = self.optional(Field::MaxHold);
        if max_hold.is_none() {
            self.assume(Field::MaxHold, "never");
        }
        if self.draft.rules().is_empty() {
            self.assume(Field::Escalate, "none");
        } else {
            self.word(Field::Escalate);
        }
        let on_failure = self.on_failure(Field::RenewOnFailure);
        let on_heal_conflict = if self.draft.fields.contains_key(&Field::AcquireOnHealConflict) {
            self.on_failure(Field::AcquireOnHealConflict)
        } else {
            let follows = if on_failure == OnFailure::Fence {
                "fence"
            } else {
                "continue"
            };
            let origin = Origin::Derived("as renew.on_failure");
            self.note(
                Field::AcquireOnHealConflict,
                follows.into(),
                follows.into(),
                origin,
            );
            on_failure
        };
        let required = match self.word(Field::Requires) {
            Some(Word::Any) => Promise::Volatile,
            Some(Word::Durable) => Promise::Durable,
            _ => Promise::Consensus,
        };
        // Every field is asked before any is found missing, so that all problems are told at once.
        let stop_grace = self.span(Field::StopGrace);
        let mode = match self.word(Field::Mode) {
            Some(Word::Shadow) => Enforcement::Shadow,
            _ => Enforcement::Enforce,
        };
        let wait = self.span(Field::AcquireWait);
        let retry = self.span(Field::AcquireRetry);
        let acquire_timeout = self.span(Field::AcquireTimeout);
        let on_error = match self.word(Field::AcquireOnError) {
            Some(Word::FailOpen) => OnError::FailOpen,
            _ => OnError::FailClosed,
        };
        let retry_after = self.span(Field::AcquireRetryAfter);
        let every = self.optional(Field::RenewEvery);
        let renew_timeout = self.span(Field::RenewTimeout);
        let max_failures = self.count(Field::RenewMaxFailures);
        let attempts = self.count(Field::ReleaseAttempts);
        let release_timeout = self.span(Field::ReleaseTimeout);
        let lock_delay = self.span(Field::ReleaseLockDelay);
        let when = match self.word(Field::ReleaseWhen) {
            Some(Word::Expired) => ReleaseWhen::Expired,
            _ => ReleaseWhen::Finished,
        };
        Some(Class {
            name: Arc::clone(&self.draft.name),
            ttl: ttl?,
            requires: required,
            stop_grace: stop_grace?,
            drift: drift?,
            max_hold,
            mode,
            acquire: AcquirePolicy {
                wait: wait?,
                retry: retry?,
                timeout: acquire_timeout?,
                on_error,
                retry_after: retry_after?,
                on_heal_conflict,
            },
            renew: RenewPolicy {
                every,
                timeout: renew_timeout?,
                max_failures: max_failures?,
                on_failure,
            },
            release: ReleasePolicy {
                attempts: attempts?,
                timeout: release_timeout?,
                lock_delay: lock_delay?,
                when,
            },
        })
    }

    fn ttl(&mut self) -> Option<Ttl> {
        let duration = self.span(Field::Ttl)?;
        match Ttl::new(duration) {
            Ok(ttl) => Some(ttl),
            Err(_) => {
                let given = human(duration);
                self.problem(Field::Ttl, &given, "must come to a time from 100ms to 24h");
                None
            }
        }
    }

    fn on_failure(&mut self, field: Field) -> OnFailure {
        match self.word(field) {
            Some(Word::Continue) => OnFailure::Continue,
            _ => OnFailure::Fence,
        }
    }

    /// A duration that must be there.
    fn span(&mut self, field: Field) -> Option<Duration> {
        let before = self.problems.len();
        let found = self.optional(field);
        if found.is_none() && self.problems.len() == before {
            self.missing(field);
        }
        found
    }

    /// A duration; `None` for `never`, for what was not stated, and after a problem.
    fn optional(&mut self, field: Field) -> Option<Duration> {
        let stated = self.draft.fields.get(&field)?;
        let Setting::Span(span) = stated.setting else {
            return None;
        };
        let value = match span {
            Span::Fixed(fixed) => Some(fixed),
            Span::TtlOver(over) => Some(self.ttl / over.max(1)),
            Span::PollTimes(times) => match self.poll {
                Some(poll) => Some(poll.saturating_mul(times)),
                None => {
                    let why = "poll is not stated; add `poll = \"30s\"` with the interval of your loop";
                    self.problem(field, &span.to_string(), why);
                    return None;
                }
            },
            Span::Never | Span::Auto => None,
        };
        let shown = value.map_or_else(|| span.to_string(), human);
        self.note(field, span.to_string(), shown, stated.origin.clone());
        value
    }

    fn count(&mut self, field: Field) -> Option<u32> {
        match self.plain(field) {
            Some(Setting::Count(count)) => Some(*count),
            _ => None,
        }
    }

    fn word(&mut self, field: Field) -> Option<Word> {
        match self.plain(field) {
            Some(Setting::Word(word)) => Some(*word),
            _ => None,
        }
    }

    /// A value that prints as it was stated.
    fn plain(&mut self, field: Field) -> Option<&Setting> {
        let Some(stated) = self.draft.fields.get(&field) else {
            self.missing(field);
            return None;
        };
        let text = stated.setting.to_string();
        self.note(field, text.clone(), text, stated.origin.clone());
        Some(&stated.setting)
    }

    fn missing(&mut self, field: Field) {
        let why = format!("must be stated: {}", field.allowed());
        self.problems.push(Invalid {
            field: format!("class.{}.{}", self.draft.name, field.path()),
            given: "is missing".into(),
            allowed: why,
        });
    }

    fn problem(&mut self, field: Field, given: &str, why: &str) {
        let place = self.draft.place(&[field]);
        let path = format!("{place}class.{}.{}", self.draft.name, field.path());
        self.problems.push(Invalid::new(path, given, why));
    }

    /// What holds for a field that may be left out, unless it was stated.
    fn assume(&mut self, field: Field, value: &str) {
        if !self.values.contains_key(&field) {
            let origin = self
                .draft
                .fields
                .get(&field)
                .map_or(Origin::Default, |stated| stated.origin.clone());
            self.note(field, value.into(), value.into(), origin);
        }
    }

    fn note(&mut self, field: Field, stated: String, value: String, origin: Origin) {
        self.origins.insert(field.path().to_owned(), origin);
        self.values.insert(field, (stated, value));
    }
}
