//! Every rule of a hold's life, pointed at in one test each. Time is plain numbers: the grant was sent at 0 s.

mod forgetting;
mod healing;
mod policy;
mod releasing;
mod renewing;
mod total;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::{Effect, Input, Life, Outcome, ReleaseAnswer, State};
use crate::clock::Moment;
use crate::event::{Loss, What};
use crate::policy::{Class, OnFailure, PolicyBook};
use crate::store::Grant;
use crate::word::{Fence, Ttl};

/// TTL 30 s, drift 320 ms, renewed every 10 s for 2 s, three strikes, fenced, released twice for 2 s.
fn class(change: impl FnOnce(&mut Class)) -> Arc<Class> {
    static BOOK: LazyLock<PolicyBook> = LazyLock::new(PolicyBook::builtin);
    let mut class = (*BOOK.class("workflow-critical", Moment::ZERO).unwrap()).clone();
    change(&mut class);
    Arc::new(class)
}

fn going_on(class: &mut Class) {
    class.renew.on_failure = OnFailure::Continue;
}

fn shorter(class: &mut Class) {
    class.ttl = Ttl::new(Duration::from_secs(5)).unwrap();
    class.drift = Class::default_drift(class.ttl.get());
    class.renew.every = Some(Duration::from_secs(1));
    class.renew.timeout = Duration::from_millis(500);
}

/// So many milliseconds after the grant was sent.
fn at(millis: u64) -> Moment {
    Moment::from_nanos((1_000_000 + millis) * 1_000_000)
}

fn fence(number: u64) -> Fence {
    Fence::new(number).unwrap()
}

fn grant(number: u64) -> Grant {
    Grant {
        fence: fence(number),
        ttl: None,
    }
}

/// A hold whose grant was sent at 0 and heard at 10 ms.
fn held(class: Arc<Class>) -> Life {
    Life::granted(class, 7, at(0), grant(5), at(10))
}

fn local(class: Arc<Class>) -> Life {
    Life::local_only(class, 7, false, at(0))
}

fn step(life: &mut Life, input: Input, millis: u64) -> Vec<Effect> {
    let mut effects = Vec::new();
    life.step(input, at(millis), &mut effects);
    effects
}

fn tick(life: &mut Life, millis: u64) -> Vec<Effect> {
    step(life, Input::Tick, millis)
}

fn renewed(sent: u64) -> Input {
    Input::Renewed {
        sent_at: at(sent),
        was_left: None,
    }
}

fn healed(sent: u64, number: u64) -> Input {
    Input::Healed {
        sent_at: at(sent),
        fence: fence(number),
        ttl: None,
    }
}

fn released(answer: ReleaseAnswer) -> Input {
    Input::ReleaseAnswer(answer)
}

fn unknown() -> Input {
    Input::RenewFailed { unknown: true }
}

fn proven_until(life: &Life) -> Moment {
    match life.state() {
        State::Proven { deadline } => deadline,
        other => panic!("not proven but {other:?}"),
    }
}

/// The events among the effects, by their names.
fn told(effects: &[Effect]) -> Vec<&'static str> {
    let label = |effect: &Effect| match effect {
        Effect::Emit(what) => Some(what.label()),
        _ => None,
    };
    effects.iter().filter_map(label).collect()
}

fn finish(effects: &[Effect]) -> Option<Outcome> {
    effects.iter().find_map(|effect| match effect {
        Effect::Finish(outcome) => Some(*outcome),
        _ => None,
    })
}

fn abandoned(effects: &[Effect], loss: Loss) -> bool {
    let counted =
        |effect: &&Effect| matches!(effect, Effect::Emit(What::Abandoned { reason, .. }) if *reason == loss);
    let fired = |effect: &&Effect| **effect == Effect::Cancel(loss);
    effects.iter().filter(counted).count() == 1 && effects.iter().filter(fired).count() == 1
}
