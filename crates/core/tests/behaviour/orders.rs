//! Every order in which four callers of the gate can come, take their permit, give up while they wait or while their permit
//! is on its way, and leave.
//!
//! All that the gate does is done under one lock, so an interleaving of its callers is an order of these steps (see ADR 15).
//! Each order is carried out from the beginning. At any time one is inside at most, somebody who waits can go in as soon as
//! nobody is, and at the end nothing is left.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::Name;
use leasehold_core::clock::{Clock, Moment, Sleep};
use leasehold_core::gate::{Gate, HeldHere, Permit};

const CALLERS: usize = 4;

/// Nobody's time is ever up: who gives up is dropped.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment::ZERO
    }

    fn sleep_until(&self, _: Moment) -> Sleep {
        Box::pin(std::future::pending())
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH
    }
}

type Entering<'a> = Pin<Box<dyn Future<Output = Result<Permit, HeldHere>> + 'a>>;

enum Caller<'a> {
    Outside,
    Waiting(Entering<'a>),
    #[allow(dead_code, reason = "held, and dropped to leave")]
    Inside(Permit),
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Comes, and goes in at once or waits.
    Come(usize),
    /// Looks whether its turn has come.
    Look(usize),
    /// Is dropped while it waits, whether or not its permit is on its way.
    GiveUp(usize),
    Leave(usize),
}

struct Scene<'a> {
    gate: &'a Gate,
    name: &'a Name,
    callers: Vec<Caller<'a>>,
    /// Who has looked in vain since anybody left or gave up: to look again would be the same order.
    looked: [bool; CALLERS],
}

impl<'a> Scene<'a> {
    fn new(gate: &'a Gate, name: &'a Name) -> Self {
        let callers = (0..CALLERS).map(|_| Caller::Outside).collect();
        Self {
            gate,
            name,
            callers,
            looked: [false; CALLERS],
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        // Callers are alike until they come: the order of their numbers stands for all.
        let next = self.callers.iter().position(|one| matches!(one, Caller::Outside));
        for (who, caller) in self.callers.iter().enumerate() {
            match caller {
                Caller::Outside if next == Some(who) => steps.push(Step::Come(who)),
                Caller::Waiting(_) => {
                    if !self.looked[who] {
                        steps.push(Step::Look(who));
                    }
                    steps.push(Step::GiveUp(who));
                }
                Caller::Inside(_) => steps.push(Step::Leave(who)),
                Caller::Outside | Caller::Gone => {}
            }
        }
        steps
    }

    fn take(&mut self, step: Step) {
        let here = Location::caller();
        match step {
            Step::Come(who) => {
                let entering = self.gate.enter(self.name, here, Moment::FAR, &Still);
                self.callers[who] = Caller::Waiting(Box::pin(entering));
                self.look(who);
            }
            Step::Look(who) => self.look(who),
            Step::GiveUp(who) | Step::Leave(who) => {
                self.callers[who] = Caller::Gone;
                self.looked = [false; CALLERS];
            }
        }
        let inside = self.callers.iter().filter(|one| matches!(one, Caller::Inside(_)));
        assert!(inside.count() <= 1, "two inside");
    }

    fn look(&mut self, who: usize) {
        if let Caller::Waiting(entering) = &mut self.callers[who] {
            self.looked[who] = true;
            if let Poll::Ready(permit) = entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                self.callers[who] = Caller::Inside(permit.unwrap());
            }
        }
    }

    /// If nobody is inside, one of those who wait can go in.
    fn moves(mut self) {
        let waits = |one: &Caller<'_>| matches!(one, Caller::Waiting(_));
        if self.callers.iter().any(|one| matches!(one, Caller::Inside(_))) || !self.callers.iter().any(waits)
        {
            return;
        }
        for who in 0..CALLERS {
            self.look(who);
        }
        assert!(
            self.callers.iter().any(|one| matches!(one, Caller::Inside(_))),
            "a permit was lost: everybody waits, and nobody is inside"
        );
    }
}

/// The next order after this one, as the numbers of the steps that were chosen, of how many.
fn next(chosen: &mut Vec<(usize, usize)>) -> bool {
    while let Some((step, of)) = chosen.pop() {
        if step + 1 < of {
            chosen.push((step + 1, of));
            return true;
        }
    }
    false
}

#[test]
fn every_order_of_four_callers() {
    let name = Name::new("n").unwrap();
    let (mut chosen, mut orders, mut waited) = (Vec::new(), 0_u64, 0_u64);
    loop {
        let gate = Gate::default();
        let (mut scene, mut at, mut line) = (Scene::new(&gate, &name), 0, Vec::new());
        loop {
            let steps = scene.steps();
            if steps.is_empty() {
                break;
            }
            if at == chosen.len() {
                chosen.push((0, steps.len()));
            }
            let step = steps[chosen[at].0];
            scene.take(step);
            line.push(step);
            at += 1;
        }
        waited += u64::from(line.iter().any(|step| matches!(step, Step::GiveUp(_))));
        drop(scene);
        assert!(gate.is_empty(), "something is left after {line:?}");
        orders += 1;
        beginnings(&name, &line);
        if !next(&mut chosen) {
            break;
        }
    }
    println!("{orders} orders, somebody gave up in {waited} of them");
    assert!(orders > 1_000 && waited > 0, "{orders}");
}

/// Each beginning of an order by itself: does anybody move?
fn beginnings(name: &Name, line: &[Step]) {
    for length in 1..line.len() {
        let gate = Gate::default();
        let mut scene = Scene::new(&gate, name);
        for step in &line[..length] {
            scene.take(*step);
        }
        scene.moves();
    }
}
