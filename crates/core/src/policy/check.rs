//! What a class must satisfy before it is used, each refusal with the arithmetic that a reader can follow.

use std::time::Duration;

use super::Class;
use super::class::ReleaseWhen;
use super::duration::{decimal, human};
use super::field::Field;
use super::plan::RenewPlan;
use crate::store::{Promise, Promised};
use crate::word::{Invalid, Ttl};

/// One refusal, before it is known where its values were stated.
pub(crate) struct Finding {
    /// The part of the class it is about, e.g. `renew`.
    pub(crate) about: &'static str,
    /// The fields that could mend it, the likeliest first.
    pub(crate) fields: &'static [Field],
    /// The value at fault.
    pub(crate) given: String,
    /// Why, and what to do.
    pub(crate) why: String,
}

impl Finding {
    /// With the prefix that says where, `leasehold.toml:12: ` or nothing.
    pub(crate) fn located(self, place: &str, class: &str) -> Invalid {
        Invalid {
            field: format!("{place}class.{class}.{}", self.about),
            given: self.given,
            allowed: self.why,
        }
    }
}

/// Checks a class that was built in code as strictly as one from a file.
///
/// # Errors
/// The first thing that cannot work, with the sum that shows it.
pub fn check(class: &Class) -> Result<(), Invalid> {
    check_name(&class.name)?;
    match findings(class).into_iter().next() {
        Some(finding) => Err(finding.located("", &class.name)),
        None => Ok(()),
    }
}

/// Class names go into tokens, metrics and file paths: lower-case letters, digits and dashes, at most 64.
///
/// # Errors
/// Says what is allowed.
pub fn check_name(name: &str) -> Result<(), Invalid> {
    let fits = (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !name.starts_with('-');
    if fits {
        return Ok(());
    }
    Err(Invalid::new(
        "class",
        name,
        "a class name is 1 to 64 lower-case letters, digits and dashes, and does not begin with a dash",
    ))
}

/// Does the store promise what the class requires?
///
/// # Errors
/// Says what is promised, what is required and why the store does not promise more.
pub fn check_store(class: &Class, store: &Promised) -> Result<(), Invalid> {
    if store.promise >= class.requires {
        return Ok(());
    }
    let because = if store.because.is_empty() {
        String::new()
    } else {
        format!(" because {}", store.because.join("; "))
    };
    Err(Invalid {
        field: format!("class.{}.requires", class.name),
        given: format!("{:?}", requires(class.requires)),
        allowed: format!(
            "the store promises only {:?}{because}. Mend that, use a store that promises {:?}, or lower requires \
             if losing a lease is acceptable",
            store.promise.to_string(),
            class.requires.to_string(),
        ),
    })
}

/// A requirement as the file spells it: asking for `volatile` is asking for anything.
fn requires(promise: Promise) -> &'static str {
    match promise {
        Promise::Volatile => "any",
        Promise::Durable => "durable",
        Promise::Consensus => "consensus",
    }
}

/// Everything that cannot work.
pub(crate) fn findings(class: &Class) -> Vec<Finding> {
    let mut found = Vec::new();
    // What leaves no time at all makes every later sum meaningless, so it is reported alone.
    match no_time(class) {
        Some(finding) => found.push(finding),
        None => found.extend(no_retry(class)),
    }
    found.extend(max_hold(class));
    found.extend(lock_delay(class));
    found.extend(zeros(class));
    found
}

/// A name that stays shut for longer than anyone remembers why.
fn lock_delay(class: &Class) -> Option<Finding> {
    (class.release.lock_delay > Ttl::MAX.get()).then(|| Finding {
        about: "release.lock_delay",
        fields: &[Field::ReleaseLockDelay],
        given: human(class.release.lock_delay),
        why: format!("must be at most {}", human(Ttl::MAX.get())),
    })
}

/// Drift or stop grace that eat the whole TTL.
fn no_time(class: &Class) -> Option<Finding> {
    let ttl = class.ttl.get();
    if class.drift >= ttl {
        return Some(Finding {
            about: "drift",
            fields: &[Field::Drift, Field::Ttl],
            given: human(class.drift),
            why: format!(
                "must be shorter than ttl {}: clocks that drift apart by a whole TTL prove nothing. \
                 Leave drift out for the default of 20ms + 1% of ttl = {}",
                decimal(ttl),
                decimal(Class::default_drift(ttl)),
            ),
        });
    }
    if class.usable().is_zero() {
        let room = ttl.saturating_sub(class.drift);
        return Some(Finding {
            about: "stop_grace",
            fields: &[Field::StopGrace, Field::Ttl],
            given: human(class.stop_grace),
            why: format!(
                "leaves no time to work: ttl {} - drift {} = {}, and stop_grace {} takes all of it. \
                 Make stop_grace shorter than {}, or lengthen ttl",
                decimal(ttl),
                decimal(class.drift),
                decimal(room),
                decimal(class.stop_grace),
                decimal(room),
            ),
        });
    }
    None
}

/// A renewal plan in which no retry fits before the deadline.
fn no_retry(class: &Class) -> Option<Finding> {
    let plan = RenewPlan::of(class).filter(|plan| !plan.fits())?;
    let timeout = class.renew.timeout;
    let pause = RenewPlan::pause(class);
    let latest = plan
        .usable
        .saturating_sub(timeout.saturating_mul(2))
        .saturating_sub(pause);
    let quickest = plan.usable.saturating_sub(plan.first_sent).saturating_sub(pause) / 2;
    let mut advice = Vec::new();
    // Rounded down to a millisecond, so that what the message proposes is accepted.
    if latest >= Duration::from_millis(1) {
        advice.push(format!(
            "shorten renew.every to at most {}",
            decimal(floor(latest))
        ));
    }
    if quickest >= Duration::from_millis(1) {
        advice.push(format!(
            "shorten renew.timeout to at most {}",
            decimal(floor(quickest))
        ));
    }
    advice.push("lengthen ttl".into());
    Some(Finding {
        about: "renew",
        fields: &[
            Field::RenewEvery,
            Field::RenewTimeout,
            Field::Ttl,
            Field::StopGrace,
        ],
        given: format!("every {}", human(plan.first_sent)),
        why: format!(
            "no retry fits before the deadline: usable time is ttl {} - drift {} - stop_grace {} = {}, but the \
             first renewal is sent at {}, may take {}, and the retry, sent by {} (pause {}), ends by {} > {}. \
             To mend it, {}",
            decimal(class.ttl.get()),
            decimal(class.drift),
            decimal(class.stop_grace),
            decimal(plan.usable),
            decimal(plan.first_sent),
            decimal(timeout),
            decimal(plan.retry_sent),
            decimal(pause),
            decimal(plan.retry_ended),
            decimal(plan.usable),
            advice.join(", or "),
        ),
    })
}

fn floor(duration: Duration) -> Duration {
    duration.saturating_sub(Duration::from_nanos(u64::from(
        duration.subsec_nanos() % 1_000_000,
    )))
}

/// A hold that is fenced before its first lease could end keeps the name shut for nothing.
fn max_hold(class: &Class) -> Option<Finding> {
    let ttl = class.ttl.get();
    let max_hold = class.max_hold.filter(|max_hold| *max_hold < ttl)?;
    Some(Finding {
        about: "max_hold",
        fields: &[Field::MaxHold, Field::Ttl],
        given: human(max_hold),
        why: format!(
            "must be at least ttl {}: the hold would be fenced at {}, and its lease would keep the name shut for \
             {} - {} = {} more. Shorten ttl, or lengthen max_hold",
            decimal(ttl),
            decimal(max_hold),
            decimal(ttl),
            decimal(max_hold),
            decimal(ttl - max_hold),
        ),
    })
}

/// Numbers that mean "never try".
fn zeros(class: &Class) -> Vec<Finding> {
    let mut found = Vec::new();
    if class.renew.max_failures == 0 {
        found.push(Finding {
            about: "renew.max_failures",
            fields: &[Field::RenewMaxFailures],
            given: "0".into(),
            why: "must be at least 1: a hold cannot have failed before it was renewed".into(),
        });
    }
    if class.release.attempts == 0 && class.release.when == ReleaseWhen::Finished {
        found.push(Finding {
            about: "release.attempts",
            fields: &[Field::ReleaseAttempts, Field::ReleaseWhen],
            given: "0".into(),
            why: "must be at least 1, or every finished hold would be debt. To hold to the TTL on purpose, set \
                  release.when to \"expired\""
                .into(),
        });
    }
    for (about, fields, value) in [
        ("acquire.retry", &[Field::AcquireRetry], Some(class.acquire.retry)),
        (
            "acquire.timeout",
            &[Field::AcquireTimeout],
            Some(class.acquire.timeout),
        ),
        (
            "acquire.retry_after",
            &[Field::AcquireRetryAfter],
            Some(class.acquire.retry_after),
        ),
        ("renew.every", &[Field::RenewEvery], class.renew.every),
        ("renew.timeout", &[Field::RenewTimeout], Some(class.renew.timeout)),
        (
            "release.timeout",
            &[Field::ReleaseTimeout],
            Some(class.release.timeout),
        ),
    ] {
        // Also catches `ttl/1000` of a TTL so short that less than a millisecond is left of it.
        if value.is_some_and(|value| value < Duration::from_millis(1)) {
            found.push(Finding {
                about,
                fields,
                given: human(value.unwrap_or_default()),
                why: "must be at least 1ms: a store cannot be asked in no time".into(),
            });
        }
    }
    found
}
