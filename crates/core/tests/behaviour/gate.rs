//! The gate: order of arrival, timeouts and cancelled waiters. `gate_orders.rs` explores every order of
//! four callers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::Location;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::Name;
use leasehold_core::clock::{Moment, RuntimeClock};
use leasehold_core::gate::{Gate, HeldLocally};

fn name() -> Name {
    Name::new("n").unwrap()
}

#[tokio::test(start_paused = true)]
async fn permits_are_granted_in_arrival_order() {
    let (gate, clock) = (Gate::default(), RuntimeClock::shared());
    let here = Location::caller();
    let first = gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..5 {
        let (gate, clock, order) = (gate.clone(), Arc::clone(&clock), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let permit = gate.enter(&name(), here, Moment::FAR, &*clock).await.unwrap();
            order.lock().unwrap().push(i);
            tokio::task::yield_now().await;
            drop(permit);
        }));
        tokio::task::yield_now().await;
    }
    drop(first);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    assert!(gate.is_empty());
}

#[tokio::test(start_paused = true)]
async fn reports_the_call_site_of_the_holder_and_times_out() {
    let (gate, clock) = (Gate::default(), RuntimeClock::shared());
    let here = Location::caller();
    let inside = gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap();
    assert_eq!((gate.len(), gate.is_empty()), (1, false));
    assert_eq!(gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap_err(), HeldLocally { at: here });
    let end = clock.now() + Duration::from_secs(2);
    assert_eq!(gate.enter(&name(), here, end, &*clock).await.unwrap_err().at, here);
    assert_eq!(clock.now(), end);
    drop(inside);
    assert_eq!((gate.len(), gate.is_empty()), (0, true));
}

#[tokio::test(start_paused = true)]
async fn cancelled_waiters_do_not_block_the_queue() {
    let (gate, clock) = (Gate::default(), RuntimeClock::shared());
    let here = Location::caller();
    let first = gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap();
    let (waits, watch) = (gate.clone(), Arc::clone(&clock));
    let gone = tokio::spawn(async move { waits.enter(&name(), here, Moment::FAR, &*watch).await });
    tokio::task::yield_now().await;
    gone.abort();
    let _ = gone.await;
    drop(first);
    gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_permit_sent_to_a_dropped_waiter_is_passed_on() {
    let (gate, clock) = (Gate::default(), RuntimeClock::shared());
    let here = Location::caller();
    let first = gate.enter(&name(), here, Moment::ZERO, &*clock).await.unwrap();
    let wanted = name();
    let mut waits = Box::pin(gate.enter(&wanted, here, Moment::FAR, &*clock));
    assert!(futures_util::poll!(&mut waits).is_pending());
    drop(first); // the permit is in the channel now
    drop(waits); // and its receiver goes away with it
    assert!(gate.is_empty());
}
