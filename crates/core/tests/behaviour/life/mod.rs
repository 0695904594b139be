//! One test for each rule of the hold machine. Times are milliseconds since the acquire request was
//! sent. `src/life/tests` has the tests that set the state of a machine directly.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod healing;
mod late_requests;
mod policy;
mod releasing;
mod renewing;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::event::{EventKind, Loss};
use leasehold_core::life::{Effect, HoldMachine, HoldState, Input, ReleaseOutcome, ReleaseResult};
use leasehold_core::policy::{Class, OnFailure, PolicyBook};
use leasehold_core::store::Grant;
use leasehold_core::types::{Fence, Ttl};

// TTL 30 s, drift 320 ms, renewed every 10 s with timeout 2 s, three failures, fenced, two release
// attempts of 2 s.
fn class(change: impl FnOnce(&mut Class)) -> Arc<Class> {
    static BOOK: LazyLock<PolicyBook> = LazyLock::new(PolicyBook::builtin);
    let mut class = (*BOOK.class("workflow-critical", Moment::ZERO).unwrap()).clone();
    change(&mut class);
    Arc::new(class)
}

fn continuing(class: &mut Class) {
    class.renew.on_failure = OnFailure::Continue;
}

fn with_shorter_ttl(class: &mut Class) {
    class.ttl = Ttl::new(Duration::from_secs(5)).unwrap();
    class.drift = Class::default_drift(class.ttl.get());
    class.renew.every = Some(Duration::from_secs(1));
    class.renew.timeout = Duration::from_millis(500);
}

// Milliseconds after the acquire request was sent.
fn at(millis: u64) -> Moment {
    Moment::from_nanos((1_000_000 + millis) * 1_000_000)
}

fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

fn grant(number: u64) -> Grant {
    Grant::new(fence(number))
}

// Request sent at 0, response at 10 ms.
fn held(class: Arc<Class>) -> HoldMachine {
    HoldMachine::granted(class, 7, at(0), grant(5), at(10))
}

fn local(class: Arc<Class>) -> HoldMachine {
    HoldMachine::local_only(class, 7, false, at(0))
}

fn step(life: &mut HoldMachine, input: Input, millis: u64) -> Vec<Effect> {
    let mut effects = Vec::new();
    life.step(input, at(millis), &mut effects);
    effects
}

fn tick(life: &mut HoldMachine, millis: u64) -> Vec<Effect> {
    step(life, Input::Tick, millis)
}

fn renewed(sent: u64) -> Input {
    Input::Renewed { sent_at: at(sent), remaining_before: None }
}

fn healed(sent: u64, number: u64) -> Input {
    Input::Healed { sent_at: at(sent), fence: fence(number), ttl: None }
}

fn released(answer: ReleaseResult) -> Input {
    Input::ReleaseAnswered(answer)
}

fn unknown() -> Input {
    Input::RenewFailed { unknown: true }
}

fn proven_until(life: &HoldMachine) -> Moment {
    match life.state() {
        HoldState::Proven { deadline } => deadline,
        other => panic!("not proven but {other:?}"),
    }
}

fn event_labels(effects: &[Effect]) -> Vec<&'static str> {
    let label = |effect: &Effect| match effect {
        Effect::Emit(what) => Some(what.label()),
        _ => None,
    };
    effects.iter().filter_map(label).collect()
}

fn finish(effects: &[Effect]) -> Option<ReleaseOutcome> {
    effects.iter().find_map(|effect| match effect {
        Effect::Finish(outcome) => Some(*outcome),
        _ => None,
    })
}

fn abandoned(effects: &[Effect], loss: Loss) -> bool {
    let counted = |effect: &&Effect| matches!(effect, Effect::Emit(EventKind::Abandoned { reason, .. }) if *reason == loss);
    let fired = |effect: &&Effect| **effect == Effect::Cancel(loss);
    effects.iter().filter(counted).count() == 1 && effects.iter().filter(fired).count() == 1
}
