//! Promises about single requests, which show where the history has what the store executed.

use leasehold_core::Fence;
use leasehold_drill::history::{HistoryEntry, RecordedRelease, StoreExecution, StoreVerb, StoredLease};

use crate::script::{HistoryScript, MS, NAME};

/// A lease as the test writes it: fence, and end in milliseconds.
type Lease = Option<(u64, u64)>;

fn executed(script: &mut HistoryScript, at: u64, request: StoreVerb, own: bool, leases: (Lease, Lease)) {
    executed_with(script, at, request, own, leases, |_| {});
}

fn executed_with(
    script: &mut HistoryScript,
    at: u64,
    request: StoreVerb,
    own: bool,
    (before, after): (Lease, Lease),
    change: impl FnOnce(&mut StoreExecution),
) {
    let lease = |lease: Lease| {
        lease.and_then(|(fence, expires)| {
            Some(StoredLease { fence: Fence::new(fence)?, expires: expires * MS })
        })
    };
    let mut execution = StoreExecution {
        request,
        name: NAME.into(),
        client: "a".into(),
        sent: at * MS,
        own,
        done: true,
        stale: false,
        repeated: false,
        fence: None,
        before: lease(before),
        after: lease(after),
    };
    if request == StoreVerb::Renew {
        execution.fence = execution.before.or(execution.after).map(|lease| lease.fence);
    }
    change(&mut execution);
    script.push_record(at, "store", HistoryEntry::Executed(execution));
}

fn answered(script: &mut HistoryScript, at: u64, outcome: RecordedRelease, until: Option<u64>) {
    let until = until.map(|until| until * MS);
    script.push_record(at, "a", HistoryEntry::ReleaseAnswered { attempt: 1, outcome, until });
}

/// A hold of `a` with the lease 7, which the store keeps until 1003 ms.
fn held() -> HistoryScript {
    let mut script = HistoryScript::new();
    executed(&mut script, 3, StoreVerb::Acquire, false, (None, Some((7, 1003))));
    script.hold(0, "a", 1, 7);
    script
}

#[test]
fn the_life_of_a_lease_breaks_nothing() {
    let mut script = held();
    script.claim(10, "a", 1, 900, 7);
    executed(&mut script, 300, StoreVerb::Renew, true, (Some((7, 1003)), Some((7, 1300))));
    executed_with(
        &mut script,
        400,
        StoreVerb::Acquire,
        false,
        (Some((7, 1300)), Some((7, 1300))),
        |executed| {
            executed.done = false;
        },
    );
    executed(&mut script, 500, StoreVerb::Release, true, (Some((7, 1300)), Some((8, 1000))));
    script.release(500, "a", 1);
    answered(&mut script, 506, RecordedRelease::Released, None);
    // The waiter confirms the lease that it was handed; its own TTL is shorter.
    executed(&mut script, 510, StoreVerb::Acquire, true, (Some((8, 1000)), Some((8, 700))));
    script.assert_broken(&[]);
}

#[test]
fn i4_is_broken_by_each_forbidden_change() {
    use StoreVerb::{Acquire, Break, LeaveQueue, Release, Renew, Undo};
    let (seven, longer, eight) = (Some((7, 1000)), Some((7, 2000)), Some((8, 2000)));
    let cases: [(StoreVerb, bool, (Lease, Lease)); 11] = [
        (Renew, false, (None, seven)),
        (Renew, false, (seven, longer)),
        (Renew, false, (seven, seven)),
        (Release, false, (seven, None)),
        (Undo, false, (seven, seven)),
        (Acquire, false, (seven, eight)),
        (LeaveQueue, false, (seven, None)),
        (Acquire, true, (longer, seven)),
        (Renew, true, (seven, None)),
        (Break, false, (seven, None)),
        (LeaveQueue, false, (None, seven)),
    ];
    for (request, own, leases) in cases {
        let mut script = HistoryScript::new();
        executed(&mut script, 10, request, own, leases);
        script.assert_broken(&["I4"]);
    }
}

#[test]
fn i5_a_proof_beyond_the_stores_lease() {
    let mut script = held();
    executed(&mut script, 300, StoreVerb::Renew, true, (Some((7, 1003)), Some((7, 1300))));
    script.event_of(305, "a", 1, "renewed", 7, Some(5), None);
    script.claim(310, "a", 1, 1200, 7);
    script.assert_broken(&[]);
    executed(&mut script, 320, StoreVerb::Renew, true, (Some((7, 1300)), Some((7, 1300))));
    script.class(330, "a", "strict", 3000);
    script.claim(340, "a", 1, 1301, 7);
    script.assert_broken(&["I5"]);
}

#[test]
fn i5_work_after_the_store_ended_the_lease() {
    let mut script = held();
    executed(&mut script, 100, StoreVerb::Release, true, (Some((7, 1003)), None));
    script.claim(110, "a", 1, 900, 7);
    script.assert_broken(&["I5"]);
    // What a loss of data ended is no broken promise.
    let mut script = held();
    script.push_record(90, "director", HistoryEntry::Forgot);
    script.claim(110, "a", 1, 900, 7);
    script.assert_broken(&[]);
}

#[test]
fn i5_work_after_not_owned() {
    let mut script = held();
    script.push_record(100, "a", HistoryEntry::NotOwned { name: NAME.into(), fence: Fence::new(7).unwrap() });
    script.claim(110, "a", 1, 900, 7);
    script.assert_broken(&["I5"]);
}

#[test]
fn i7_a_lease_is_left_after_its_release() {
    for outcome in [RecordedRelease::Released, RecordedRelease::AlreadyLost] {
        let mut script = held();
        answered(&mut script, 100, outcome, None);
        script.assert_broken(&["I7"]);
    }
}

#[test]
fn i7_lost_by_its_own_release() {
    for (repeated, broken) in [(false, &["I7"][..]), (true, &[])] {
        let mut script = held();
        let leases = (Some((7, 1003)), None);
        executed_with(&mut script, 100, StoreVerb::Release, true, leases, |executed| {
            executed.repeated = repeated
        });
        answered(&mut script, 110, RecordedRelease::AlreadyLost, None);
        script.assert_broken(broken);
    }
}

#[test]
fn i7_a_lease_outlives_the_expiry_its_caller_got() {
    for (outcome, (stale, repeated), broken) in [
        (RecordedRelease::Kept, (false, false), &["I7"][..]),
        (RecordedRelease::Debt, (false, false), &["I7"]),
        (RecordedRelease::Kept, (true, false), &[]),
        (RecordedRelease::Kept, (false, true), &[]),
        (RecordedRelease::Skipped, (false, false), &[]),
    ] {
        let mut script = held();
        answered(&mut script, 100, outcome, Some(1020));
        script.assert_broken(&[]);
        let leases = (Some((7, 1003)), Some((7, 1200)));
        executed_with(&mut script, 200, StoreVerb::Renew, true, leases, |executed| {
            (executed.stale, executed.repeated) = (stale, repeated);
        });
        script.assert_broken(broken);
    }
}

#[test]
fn i9_a_request_after_abandonment() {
    for (detail, request, broken) in [
        ("deadline", StoreVerb::Renew, &["I9"][..]),
        ("deadline", StoreVerb::Release, &["I9"]),
        ("deadline", StoreVerb::Undo, &[]),
        ("shutdown", StoreVerb::Release, &[]),
    ] {
        let mut script = held();
        script.event_of(100, "a", 1, "abandoned", 7, None, Some(detail));
        let after = (request == StoreVerb::Renew).then_some((7, 1200));
        executed(&mut script, 200, request, true, (Some((7, 1003)), after));
        script.assert_broken(broken);
    }
}
