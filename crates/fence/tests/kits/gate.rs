//! `FenceGate`: the kit for data in one process's memory.

// Helpers outside `#[test]` functions unwrap as well: their panic is the failure message.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use crate::fences::{
    FenceSource, HOSTILE_NAMES, Model, assert_never_goes_back, fence, name, steps, verdict_as_result,
};
use leasehold_core::store::StoreErrorKind;
use leasehold_fence::{FenceGate, Verdict};
use proptest::prelude::*;

#[test]
fn older_is_refused_equal_and_newer_are_admitted() {
    let (gate, job) = (FenceGate::new(), name("job:42"));
    assert!(gate.admit(&job, fence(5)).unwrap().is_admitted());
    assert!(gate.admit(&job, fence(5)).unwrap().is_admitted());
    assert!(gate.admit(&job, fence(9)).unwrap().is_admitted());
    let Verdict::Stale(stale) = gate.admit(&job, fence(8)).unwrap() else {
        panic!("8 was admitted after 9");
    };
    assert_eq!((stale.offered, stale.newest), (fence(8), fence(9)));
    assert_eq!(stale.resource, "job:42");
    let message = stale.to_string();
    assert!(message.contains("`job:42`") && message.contains('8') && message.contains('9'), "{message}");
    assert_eq!(gate.newest(&job), Some(fence(9)));
}

#[test]
fn a_stale_writers_work_does_not_run() {
    let (gate, job) = (FenceGate::new(), name("job:42"));
    assert_eq!(gate.admit_with(&job, fence(9), || "wrote").unwrap(), Verdict::Admitted("wrote"));
    let refused = gate.admit_with(&job, fence(8), || panic!("ran")).unwrap();
    assert!(!refused.is_admitted());
}

#[test]
fn hostile_names_are_ordinary_names() {
    let gate = FenceGate::new();
    for (at, text) in HOSTILE_NAMES.iter().enumerate() {
        assert!(gate.admit(&name(text), fence(100 - at as u64)).unwrap().is_admitted(), "{text}");
    }
    assert_eq!(gate.len(), HOSTILE_NAMES.len());
}

/// The log is written inside the atomic section, so its order is the order of the writes.
#[test]
fn racing_writers_never_go_back() {
    let (gate, job) = (FenceGate::new(), name("job:42"));
    let (front, log, start) = (FenceSource::default(), Mutex::new(Vec::new()), Barrier::new(8));
    thread::scope(|scope| {
        for seed in 0..8 {
            let (gate, job, front, log, start) = (&gate, &job, &front, &log, &start);
            scope.spawn(move || {
                start.wait();
                for fence in front.offers(seed, 500) {
                    let write = || {
                        // Gives a second writer that was wrongly admitted the time to show up.
                        thread::yield_now();
                        log.lock().unwrap().push(fence.get());
                    };
                    if let Verdict::Stale(stale) = gate.admit_with(job, fence, write).unwrap() {
                        assert!(stale.newest > fence);
                    }
                }
            });
        }
    });
    assert_never_goes_back(&log.into_inner().unwrap());
}

/// A newer holder must wait for a write that an older one has begun, and not overtake it.
#[test]
fn no_fence_is_admitted_during_a_write() {
    let (gate, job) = (Arc::new(FenceGate::new()), name("job:42"));
    let (begun, has_begun) = mpsc::channel();
    let (finish, may_finish) = mpsc::channel::<()>();
    let order = Arc::new(Mutex::new(Vec::new()));
    let older = thread::spawn({
        let (gate, job, order) = (Arc::clone(&gate), job.clone(), Arc::clone(&order));
        move || {
            let write = || {
                begun.send(()).unwrap();
                may_finish.recv().unwrap();
                order.lock().unwrap().push("older");
            };
            gate.admit_with(&job, fence(1), write).unwrap().is_admitted()
        }
    });
    has_begun.recv().unwrap();
    let newer = thread::spawn({
        let (gate, job, order) = (Arc::clone(&gate), job.clone(), Arc::clone(&order));
        move || gate.admit_with(&job, fence(2), || order.lock().unwrap().push("newer")).unwrap().is_admitted()
    });
    // Another resource is not blocked meanwhile.
    assert!(gate.admit(&name("job:43"), fence(1)).unwrap().is_admitted());
    for _ in 0..1000 {
        thread::yield_now();
    }
    assert!(!newer.is_finished());
    finish.send(()).unwrap();
    assert!(older.join().unwrap() && newer.join().unwrap());
    assert_eq!(*order.lock().unwrap(), ["older", "newer"]);
}

#[test]
fn a_panicking_write_leaves_the_gate_usable_and_the_mark_set() {
    let (gate, job) = (FenceGate::new(), name("job:42"));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _ = gate.admit_with(&job, fence(9), || panic!("half-way"));
    }));
    assert!(panicked.is_err());
    assert!(!gate.admit(&job, fence(8)).unwrap().is_admitted());
    assert!(gate.admit(&job, fence(9)).unwrap().is_admitted());
}

/// A bounded memory that forgets would admit an older fence again. So the gate does not forget.
#[test]
fn a_full_gate_refuses_new_resources_and_forgets_none() {
    let gate = FenceGate::with_capacity(2);
    for known in ["a", "b"] {
        assert!(gate.admit(&name(known), fence(9)).unwrap().is_admitted());
    }
    let failure = gate.admit_with(&name("c"), fence(99), || panic!("ran")).unwrap_err();
    assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Overloaded, false));
    for known in ["a", "b"] {
        assert!(!gate.admit(&name(known), fence(8)).unwrap().is_admitted());
        assert!(gate.admit(&name(known), fence(10)).unwrap().is_admitted());
    }
    assert_eq!((gate.len(), gate.capacity()), (2, 2));

    // Only an explicit `forget` makes room.
    assert_eq!(gate.forget(&name("a")), Some(fence(10)));
    assert_eq!(gate.forget(&name("a")), None);
    assert!(gate.admit(&name("c"), fence(1)).unwrap().is_admitted());
    assert_eq!(gate.newest(&name("a")), None);
}

/// `forget` removes a slot while writers wait for it. They must meet again at one new slot.
#[test]
fn forgetting_under_load_never_lets_two_writers_in() {
    let (gate, job, front, inside) =
        (FenceGate::new(), name("job:42"), FenceSource::default(), Mutex::new(()));
    thread::scope(|scope| {
        for seed in 0..4 {
            let (gate, job, front, inside) = (&gate, &job, &front, &inside);
            scope.spawn(move || {
                for fence in front.offers(seed, 2000) {
                    let alone = || {
                        let guard = inside.try_lock();
                        thread::yield_now();
                        guard.is_ok()
                    };
                    if let Verdict::Admitted(alone) = gate.admit_with(job, fence, alone).unwrap() {
                        assert!(alone, "two writers at once");
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..2000 {
                gate.forget(&job);
                thread::yield_now();
            }
        });
    });
    assert!(gate.len() <= 1);
}

proptest! {
    #[test]
    fn agrees_with_the_model(steps in steps()) {
        let (gate, mut model) = (FenceGate::new(), Model::default());
        for step in &steps {
            let resource = format!("job:{}", step.resource);
            let verdict = gate.admit(&name(&resource), step.fence).unwrap();
            prop_assert_eq!(verdict_as_result(verdict, &resource, step.fence), model.admit(step, true));
        }
        for resource in 0..3 {
            prop_assert_eq!(gate.newest(&name(&format!("job:{resource}"))), model.newest(resource));
        }
    }
}
