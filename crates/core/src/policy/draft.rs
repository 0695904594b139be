//! A class before resolution: the settings and their origins, layer over layer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::check::class_problems;
use super::class::{
    AcquirePolicy, Class, Enforcement, OnError, OnFailure, ReleasePolicy, ReleaseWhen, RenewPolicy,
};
use super::duration::human;
use super::field::Field;
use super::origin::{Origin, ResolvedClass};
use super::rule::Rule;
use super::setting::{DurationExpr, Keyword, Setting};
use crate::clock::Moment;
use crate::store::Promise;
use crate::types::{InvalidInput, Ttl};

/// A setting with its origin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SettingWithOrigin {
    pub(crate) setting: Setting,
    pub(crate) origin: Origin,
}

/// All settings of one class. A later layer replaces an earlier one field by field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draft {
    pub(crate) name: Arc<str>,
    pub(crate) fields: BTreeMap<Field, SettingWithOrigin>,
}

impl Draft {
    /// Sets one field, replacing an earlier layer.
    pub(crate) fn set_field(&mut self, field: Field, setting: Setting, origin: Origin) {
        self.fields.insert(field, SettingWithOrigin { setting, origin });
    }

    /// The escalation rules of the class.
    pub(crate) fn rules(&self) -> &[Rule] {
        match self.fields.get(&Field::Escalate).map(|stated| &stated.setting) {
            Some(Setting::Rules(rules)) => rules,
            _ => &[],
        }
    }

    /// Computes and checks every value.
    pub(crate) fn resolve(&self, at: Moment) -> Result<ResolvedClass, Vec<InvalidInput>> {
        let mut work = Resolver {
            draft: self,
            ttl: Duration::ZERO,
            poll: None,
            problems: Vec::new(),
            values: BTreeMap::new(),
            origins: BTreeMap::new(),
        };
        let class = work.class();
        let Resolver { mut problems, values, origins, .. } = work;
        // The checks compare fields with each other, which is meaningless while one is missing.
        match class {
            Some(class) if problems.is_empty() => {
                problems.extend(class_problems(&class).into_iter().map(|finding| {
                    let place = self.origin_prefix(finding.fields);
                    finding.into_invalid(&place, &self.name)
                }));
                if problems.is_empty() {
                    return Ok(ResolvedClass {
                        class,
                        origins,
                        at,
                        rules: self.rules().to_vec(),
                        resolved_values: values,
                    });
                }
                Err(problems)
            }
            _ => Err(problems),
        }
    }

    /// The position of the first of these fields that a file states.
    fn origin_prefix(&self, fields: &[Field]) -> String {
        fields.iter().find_map(|field| self.fields.get(field)?.origin.message_prefix()).unwrap_or_default()
    }
}

struct Resolver<'a> {
    draft: &'a Draft,
    ttl: Duration,
    poll: Option<Duration>,
    problems: Vec<InvalidInput>,
    values: BTreeMap<Field, (String, String)>,
    origins: BTreeMap<String, Origin>,
}

impl Resolver<'_> {
    fn class(&mut self) -> Option<Class> {
        self.poll = self.optional(Field::Poll);
        let ttl = self.ttl();
        self.ttl = ttl.map_or(Duration::ZERO, Ttl::get);
        let drift = match self.draft.fields.get(&Field::Drift).map(|stated| &stated.setting) {
            Some(Setting::Span(DurationExpr::Fixed(_))) => self.span(Field::Drift),
            _ => {
                let drift = Class::default_drift(self.ttl);
                let origin = Origin::Derived("20ms + 1% of ttl");
                self.record_value(Field::Drift, "auto".into(), human(drift), origin);
                Some(drift)
            }
        };
        let max_hold = self.optional(Field::MaxHold);
        if max_hold.is_none() {
            self.record_default(Field::MaxHold, "never");
        }
        if self.draft.rules().is_empty() {
            self.record_default(Field::Escalate, "none");
        } else {
            self.keyword(Field::Escalate);
        }
        let on_failure = self.on_failure(Field::RenewOnFailure);
        let on_heal_conflict = if self.draft.fields.contains_key(&Field::AcquireOnHealConflict) {
            self.on_failure(Field::AcquireOnHealConflict)
        } else {
            let follows = if on_failure == OnFailure::Fence { "fence" } else { "continue" };
            let origin = Origin::Derived("as renew.on_failure");
            self.record_value(Field::AcquireOnHealConflict, follows.into(), follows.into(), origin);
            on_failure
        };
        let required = match self.keyword(Field::Requires) {
            Some(Keyword::Any) => Promise::Volatile,
            Some(Keyword::Durable) => Promise::Durable,
            _ => Promise::Consensus,
        };
        // Resolve every field before returning, so that all problems are reported at once.
        let stop_grace = self.span(Field::StopGrace);
        let mode = match self.keyword(Field::Mode) {
            Some(Keyword::Shadow) => Enforcement::Shadow,
            _ => Enforcement::Enforce,
        };
        let wait = self.span(Field::AcquireWait);
        let retry = self.span(Field::AcquireRetry);
        let acquire_timeout = self.span(Field::AcquireTimeout);
        let on_error = match self.keyword(Field::AcquireOnError) {
            Some(Keyword::FailOpen) => OnError::FailOpen,
            _ => OnError::FailClosed,
        };
        let retry_after = self.span(Field::AcquireRetryAfter);
        let every = self.optional(Field::RenewEvery);
        let renew_timeout = self.span(Field::RenewTimeout);
        let max_failures = self.count(Field::RenewMaxFailures);
        let attempts = self.count(Field::ReleaseAttempts);
        let release_timeout = self.span(Field::ReleaseTimeout);
        let lock_delay = self.span(Field::ReleaseLockDelay);
        let when = match self.keyword(Field::ReleaseWhen) {
            Some(Keyword::Expired) => ReleaseWhen::Expired,
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
            renew: RenewPolicy { every, timeout: renew_timeout?, max_failures: max_failures?, on_failure },
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
                self.report_problem(Field::Ttl, &given, "must come to a time from 100ms to 24h");
                None
            }
        }
    }

    fn on_failure(&mut self, field: Field) -> OnFailure {
        match self.keyword(field) {
            Some(Keyword::Continue) => OnFailure::Continue,
            _ => OnFailure::Fence,
        }
    }

    /// A required duration.
    fn span(&mut self, field: Field) -> Option<Duration> {
        let before = self.problems.len();
        let found = self.optional(field);
        if found.is_none() && self.problems.len() == before {
            self.report_missing(field);
        }
        found
    }

    /// A duration; `None` for `never`, for an unset field, and after a problem.
    fn optional(&mut self, field: Field) -> Option<Duration> {
        let stated = self.draft.fields.get(&field)?;
        let Setting::Span(span) = stated.setting else {
            return None;
        };
        let value = match span {
            DurationExpr::Fixed(fixed) => Some(fixed),
            DurationExpr::TtlOver(over) => Some(self.ttl / over.max(1)),
            DurationExpr::PollTimes(times) => match self.poll {
                Some(poll) => Some(poll.saturating_mul(times)),
                None => {
                    let why = "poll is not stated; add `poll = \"30s\"` with the interval of your loop";
                    self.report_problem(field, &span.to_string(), why);
                    return None;
                }
            },
            DurationExpr::Never | DurationExpr::Auto => None,
        };
        let shown = value.map_or_else(|| span.to_string(), human);
        self.record_value(field, span.to_string(), shown, stated.origin.clone());
        value
    }

    fn count(&mut self, field: Field) -> Option<u32> {
        match self.plain(field) {
            Some(Setting::Count(count)) => Some(*count),
            _ => None,
        }
    }

    fn keyword(&mut self, field: Field) -> Option<Keyword> {
        match self.plain(field) {
            Some(Setting::Word(word)) => Some(*word),
            _ => None,
        }
    }

    /// A value that is printed as it was stated.
    fn plain(&mut self, field: Field) -> Option<&Setting> {
        let Some(stated) = self.draft.fields.get(&field) else {
            self.report_missing(field);
            return None;
        };
        let text = stated.setting.to_string();
        self.record_value(field, text.clone(), text, stated.origin.clone());
        Some(&stated.setting)
    }

    fn report_missing(&mut self, field: Field) {
        let why = format!("must be stated: {}", field.allowed());
        self.problems.push(InvalidInput {
            field: format!("class.{}.{}", self.draft.name, field.path()),
            given: "is missing".into(),
            allowed: why,
        });
    }

    fn report_problem(&mut self, field: Field, given: &str, why: &str) {
        let place = self.draft.origin_prefix(&[field]);
        let path = format!("{place}class.{}.{}", self.draft.name, field.path());
        self.problems.push(InvalidInput::new(path, given, why));
    }

    /// Records the default of an optional field, unless it was stated.
    fn record_default(&mut self, field: Field, value: &str) {
        if !self.values.contains_key(&field) {
            let origin =
                self.draft.fields.get(&field).map_or(Origin::Default, |stated| stated.origin.clone());
            self.record_value(field, value.into(), value.into(), origin);
        }
    }

    fn record_value(&mut self, field: Field, stated: String, value: String, origin: Origin) {
        self.origins.insert(field.path().to_owned(), origin);
        self.values.insert(field, (stated, value));
    }
}
