//! The rules that a class must satisfy. Each refusal shows the arithmetic.

use std::time::Duration;

use super::Class;
use super::class::ReleaseWhen;
use super::duration::{decimal, human};
use super::field::Field;
use super::plan::RenewPlan;
use crate::deadline::usable_time;
use crate::store::{Capabilities, Promise, PromiseReport};
use crate::types::{InvalidInput, Ttl};

/// One problem of a class, before the position of its values in a file is known.
pub(crate) struct ClassProblem {
    // E.g. `renew`.
    pub(crate) section: &'static str,
    // Fields whose change could solve it, the likeliest first.
    pub(crate) fields: &'static [Field],
    pub(crate) given: String,
    pub(crate) why: String,
}

impl ClassProblem {
    /// Adds the position: `leasehold.toml:12: ` or nothing.
    pub(crate) fn into_invalid(self, place: &str, class: &str) -> InvalidInput {
        InvalidInput {
            field: format!("{place}class.{class}.{}", self.section),
            given: self.given,
            allowed: self.why,
        }
    }
}

/// Checks a class that was built in code as strictly as one from a file.
///
/// # Errors
/// The first problem, with the arithmetic.
pub fn check(class: &Class) -> Result<(), InvalidInput> {
    check_name(&class.name)?;
    match class_problems(class).into_iter().next() {
        Some(finding) => Err(finding.into_invalid("", &class.name)),
        None => Ok(()),
    }
}

/// Checks the name of a class: 1 to 64 lower-case letters, digits and dashes, because it goes into
/// tokens, metrics and file paths.
///
/// # Errors
/// The name is invalid; the message states what is allowed.
pub fn check_name(name: &str) -> Result<(), InvalidInput> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !name.starts_with('-');
    if fits {
        return Ok(());
    }
    Err(InvalidInput::new(
        "class",
        name,
        "a class name is 1 to 64 lower-case letters, digits and dashes, and does not begin with a dash",
    ))
}

/// Checks that the store promises what the class requires.
///
/// # Errors
/// The store promises less; the message states both promises and the store's reasons.
pub fn check_store(class: &Class, store: &PromiseReport) -> Result<(), InvalidInput> {
    if store.promise >= class.requires {
        return Ok(());
    }
    let because =
        if store.limits.is_empty() { String::new() } else { format!(" because {}", store.limits.join("; ")) };
    Err(InvalidInput {
        field: format!("class.{}.requires", class.name),
        given: format!("{:?}", requirement_name(class.requires)),
        allowed: format!(
            "the store promises only {:?}{because}. Fix that, use a store that promises {:?}, or lower requires \
             if losing a lease is acceptable",
            store.promise.to_string(),
            class.requires.to_string(),
        ),
    })
}

/// Checks that the store can keep the class's TTL.
///
/// # Errors
/// The store's shortest TTL is longer; the message states both.
pub fn check_ttl(class: &Class, store: &Capabilities) -> Result<(), InvalidInput> {
    if class.ttl >= store.min_ttl {
        return Ok(());
    }
    Err(InvalidInput {
        field: format!("class.{}.ttl", class.name),
        given: format!("{:?}", human(class.ttl.get())),
        allowed: format!(
            "is shorter than {}, the shortest that the {} store can keep. Lengthen it, or use a store that serves \
             shorter leases",
            human(store.min_ttl.get()),
            store.kind,
        ),
    })
}

// In the file, `any` means `volatile`: every store promises at least that.
fn requirement_name(promise: Promise) -> &'static str {
    match promise {
        Promise::Volatile => "any",
        Promise::Durable => "durable",
        Promise::Consensus => "consensus",
    }
}

/// All problems of a class.
pub(crate) fn class_problems(class: &Class) -> Vec<ClassProblem> {
    let mut found = Vec::new();
    // Without usable time every later sum is meaningless, so that problem is reported alone.
    match no_time(class) {
        Some(finding) => found.push(finding),
        None => found.extend(no_retry(class)),
    }
    found.extend(max_hold(class));
    found.extend(lock_delay(class));
    found.extend(zero_values(class));
    found
}

// A longer delay would block a name for days after a crash.
fn lock_delay(class: &Class) -> Option<ClassProblem> {
    (class.release.lock_delay > Ttl::MAX.get()).then(|| ClassProblem {
        section: "release.lock_delay",
        fields: &[Field::ReleaseLockDelay],
        given: human(class.release.lock_delay),
        why: format!("must be at most {}", human(Ttl::MAX.get())),
    })
}

/// Drift or stop grace use up the whole TTL.
fn no_time(class: &Class) -> Option<ClassProblem> {
    let ttl = class.ttl.get();
    if class.drift >= ttl {
        return Some(ClassProblem {
            section: "drift",
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
        let room = usable_time(ttl, class.drift, Duration::ZERO);
        return Some(ClassProblem {
            section: "stop_grace",
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

/// No retry of a failed renewal fits before the deadline.
fn no_retry(class: &Class) -> Option<ClassProblem> {
    let plan = RenewPlan::of(class).filter(|plan| !plan.fits())?;
    let timeout = class.renew.timeout;
    let pause = RenewPlan::retry_pause(class);
    let latest = plan.usable.saturating_sub(timeout.saturating_mul(2)).saturating_sub(pause);
    let quickest = plan.usable.saturating_sub(plan.first_sent).saturating_sub(pause) / 2;
    let mut advice = Vec::new();
    // Rounded down to a millisecond, so that the proposed value is accepted.
    if latest >= Duration::from_millis(1) {
        advice.push(format!("shorten renew.every to at most {}", decimal(floor_to_millis(latest))));
    }
    if quickest >= Duration::from_millis(1) {
        advice.push(format!("shorten renew.timeout to at most {}", decimal(floor_to_millis(quickest))));
    }
    advice.push("lengthen ttl".into());
    Some(ClassProblem {
        section: "renew",
        fields: &[Field::RenewEvery, Field::RenewTimeout, Field::Ttl, Field::StopGrace],
        given: format!("every {}", human(plan.first_sent)),
        why: format!(
            "no retry fits before the deadline: usable time is ttl {} - drift {} - stop_grace {} = {}, but the \
             first renewal is sent at {}, may take {}, and the retry, sent by {} (pause {}), ends by {} > {}. \
             To fix it, {}",
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

fn floor_to_millis(duration: Duration) -> Duration {
    duration.saturating_sub(Duration::from_nanos(u64::from(duration.subsec_nanos() % 1_000_000)))
}

// A hold that is fenced before its first lease can end blocks the name without any work.
fn max_hold(class: &Class) -> Option<ClassProblem> {
    let ttl = class.ttl.get();
    let max_hold = class.max_hold.filter(|max_hold| *max_hold < ttl)?;
    Some(ClassProblem {
        section: "max_hold",
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

/// Values of zero that would mean "never try".
fn zero_values(class: &Class) -> Vec<ClassProblem> {
    let mut found = Vec::new();
    if class.renew.max_failures == 0 {
        found.push(ClassProblem {
            section: "renew.max_failures",
            fields: &[Field::RenewMaxFailures],
            given: "0".into(),
            why: "must be at least 1: a hold cannot have failed before it was renewed".into(),
        });
    }
    if class.release.attempts == 0 && class.release.when == ReleaseWhen::Finished {
        found.push(ClassProblem {
            section: "release.attempts",
            fields: &[Field::ReleaseAttempts, Field::ReleaseWhen],
            given: "0".into(),
            why: "must be at least 1, or every finished hold would be debt. To hold to the TTL on purpose, set \
                  release.when to \"expired\""
                .into(),
        });
    }
    for (about, fields, value) in [
        ("acquire.retry", &[Field::AcquireRetry], Some(class.acquire.retry)),
        ("acquire.timeout", &[Field::AcquireTimeout], Some(class.acquire.timeout)),
        ("acquire.retry_after", &[Field::AcquireRetryAfter], Some(class.acquire.retry_after)),
        ("renew.every", &[Field::RenewEvery], class.renew.every),
        ("renew.timeout", &[Field::RenewTimeout], Some(class.renew.timeout)),
        ("release.timeout", &[Field::ReleaseTimeout], Some(class.release.timeout)),
    ] {
        // Also catches `ttl/1000` of a TTL so short that the result is below a millisecond.
        if value.is_some_and(|value| value < Duration::from_millis(1)) {
            found.push(ClassProblem {
                section: about,
                fields,
                given: human(value.unwrap_or_default()),
                why: "must be at least 1ms: a store cannot be asked in no time".into(),
            });
        }
    }
    found
}
