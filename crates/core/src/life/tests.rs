//! Tests of the hold machine that set its private fields; the others are in `tests/behaviour/life`.
//! Times are milliseconds since the acquire request was sent.

mod transition_table;

use std::sync::{Arc, LazyLock};

use super::{Effect, HoldMachine, HoldState, Input, ReleaseResult};
use crate::clock::Moment;
use crate::event::{EventKind, Loss};
use crate::policy::{Class, OnFailure, PolicyBook};
use crate::store::Grant;
use crate::types::Fence;

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

#[test]
fn continue_class_passes_the_deadline_and_renews_at_once() {
    let mut life = held(class(continuing));
    life.due = Moment::FAR;
    let effects = tick(&mut life, 29_700);
    assert_eq!(effects, [Effect::Emit(EventKind::Unproven), Effect::Renew]);
    assert_eq!(life.deadline().stop_at(), Moment::FAR);
    let since = at(29_680);
    assert!(matches!(life.state(), HoldState::Unproven { since: from, .. } if from == since));
}
