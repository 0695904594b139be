//! Explores every order in which four callers can use the gate: enter, take a permit, cancel while
//! waiting or while the permit is in transit, and leave.
//!
//! The gate does all its work under one lock, so an interleaving of callers is an order of these
//! steps (see ADR 15). Each order is run from the beginning. At any time at most one caller is
//! inside, a waiter can enter as soon as the gate is free, and nothing is left at the end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::Name;
use leasehold_core::clock::{Clock, Moment, Sleep};
use leasehold_core::gate::{Gate, HeldLocally, Permit};

const CALLER_COUNT: usize = 4;

/// No timeout ever fires: a caller that gives up is dropped.
#[derive(Debug)]
struct FrozenClock;

impl Clock for FrozenClock {
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

type EnterFuture<'a> = Pin<Box<dyn Future<Output = Result<Permit, HeldLocally>> + 'a>>;

enum Caller<'a> {
    Outside,
    Waiting(EnterFuture<'a>),
    #[allow(dead_code, reason = "held, and dropped to leave")]
    Inside(Permit),
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GateStep {
    /// Enters at once or starts to wait.
    Enter(usize),
    /// Polls for its turn.
    Poll(usize),
    /// Is dropped while it waits, whether or not its permit is in transit.
    Cancel(usize),
    Leave(usize),
}

struct GateRun<'a> {
    gate: &'a Gate,
    name: &'a Name,
    callers: Vec<Caller<'a>>,
    /// Callers that polled in vain since the last caller left or gave up. Another poll would repeat
    /// the same order.
    polled_in_vain: [bool; CALLER_COUNT],
}

impl<'a> GateRun<'a> {
    fn new(gate: &'a Gate, name: &'a Name) -> Self {
        let callers = (0..CALLER_COUNT).map(|_| Caller::Outside).collect();
        Self { gate, name, callers, polled_in_vain: [false; CALLER_COUNT] }
    }

    fn possible_steps(&self) -> Vec<GateStep> {
        let mut steps = Vec::new();
        // Callers are identical until they come, so one order of their numbers stands for all.
        let next = self.callers.iter().position(|one| matches!(one, Caller::Outside));
        for (who, caller) in self.callers.iter().enumerate() {
            match caller {
                Caller::Outside if next == Some(who) => steps.push(GateStep::Enter(who)),
                Caller::Waiting(_) => {
                    if !self.polled_in_vain[who] {
                        steps.push(GateStep::Poll(who));
                    }
                    steps.push(GateStep::Cancel(who));
                }
                Caller::Inside(_) => steps.push(GateStep::Leave(who)),
                Caller::Outside | Caller::Gone => {}
            }
        }
        steps
    }

    fn apply_step(&mut self, step: GateStep) {
        let here = Location::caller();
        match step {
            GateStep::Enter(who) => {
                let entering = self.gate.enter(self.name, here, Moment::FAR, &FrozenClock);
                self.callers[who] = Caller::Waiting(Box::pin(entering));
                self.poll_caller(who);
            }
            GateStep::Poll(who) => self.poll_caller(who),
            GateStep::Cancel(who) | GateStep::Leave(who) => {
                self.callers[who] = Caller::Gone;
                self.polled_in_vain = [false; CALLER_COUNT];
            }
        }
        let inside = self.callers.iter().filter(|one| matches!(one, Caller::Inside(_)));
        assert!(inside.count() <= 1, "two inside");
    }

    fn poll_caller(&mut self, who: usize) {
        if let Caller::Waiting(entering) = &mut self.callers[who] {
            self.polled_in_vain[who] = true;
            if let Poll::Ready(permit) = entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                self.callers[who] = Caller::Inside(permit.unwrap());
            }
        }
    }

    /// Asserts that a waiter can enter if the gate is free.
    fn assert_a_waiter_can_enter(mut self) {
        let waits = |one: &Caller<'_>| matches!(one, Caller::Waiting(_));
        if self.callers.iter().any(|one| matches!(one, Caller::Inside(_))) || !self.callers.iter().any(waits)
        {
            return;
        }
        for who in 0..CALLER_COUNT {
            self.poll_caller(who);
        }
        assert!(
            self.callers.iter().any(|one| matches!(one, Caller::Inside(_))),
            "a permit was lost: everybody waits, and nobody is inside"
        );
    }
}

/// Advances to the next order. Each entry is the chosen step and the number of choices.
fn next_order(chosen: &mut Vec<(usize, usize)>) -> bool {
    while let Some((step, of)) = chosen.pop() {
        if step + 1 < of {
            chosen.push((step + 1, of));
            return true;
        }
    }
    false
}

#[test]
fn the_gate_works_in_every_order_of_four_callers() {
    let name = Name::new("n").unwrap();
    let (mut chosen, mut orders, mut waited) = (Vec::new(), 0_u64, 0_u64);
    loop {
        let gate = Gate::default();
        let (mut context, mut at, mut line) = (GateRun::new(&gate, &name), 0, Vec::new());
        loop {
            let steps = context.possible_steps();
            if steps.is_empty() {
                break;
            }
            if at == chosen.len() {
                chosen.push((0, steps.len()));
            }
            let step = steps[chosen[at].0];
            context.apply_step(step);
            line.push(step);
            at += 1;
        }
        waited += u64::from(line.iter().any(|step| matches!(step, GateStep::Cancel(_))));
        drop(context);
        assert!(gate.is_empty(), "something is left after {line:?}");
        orders += 1;
        check_prefixes(&name, &line);
        if !next_order(&mut chosen) {
            break;
        }
    }
    println!("{orders} orders, somebody gave up in {waited} of them");
    assert!(orders > 1_000 && waited > 0, "{orders}");
}

/// Checks each prefix of an order by itself: can a waiter enter after it?
fn check_prefixes(name: &Name, line: &[GateStep]) {
    for length in 1..line.len() {
        let gate = Gate::default();
        let mut context = GateRun::new(&gate, name);
        for step in &line[..length] {
            context.apply_step(*step);
        }
        context.assert_a_waiter_can_enter();
    }
}
