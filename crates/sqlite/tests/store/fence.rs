//! Fences only grow, whatever happens to the clock, the file and the boot.

use std::time::Duration;

use leasehold_core::store::{ReleaseAuthority, ReleaseRequest, Store, StoreErrorKind};
use leasehold_core::{Fence, Name};
use leasehold_sqlite::SqliteStore;
use proptest::prelude::*;

use crate::fixture::{CALL_TIMEOUT, Fixture, TestClient};

/// An event between two grants.
#[derive(Debug, Clone)]
enum HistoryEvent {
    Release,
    Expire,
    Break,
    StepWall(i64),
    Floor(u64),
    HandOver,
    Reopen,
    Reboot,
}

fn happening() -> impl Strategy<Value = HistoryEvent> {
    prop_oneof![
        Just(HistoryEvent::Release),
        Just(HistoryEvent::Expire),
        Just(HistoryEvent::Break),
        (-10_000_000_i64..10_000_000).prop_map(HistoryEvent::StepWall),
        (0_u64..5_000_000).prop_map(HistoryEvent::Floor),
        Just(HistoryEvent::HandOver),
        Just(HistoryEvent::Reopen),
        Just(HistoryEvent::Reboot),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn trap_11_fences_grow_through_every_history(
        history in proptest::collection::vec((0_usize..3, happening()), 1..25)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(grow(history))?;
    }
}

async fn grow(history: Vec<(usize, HistoryEvent)>) -> Result<(), TestCaseError> {
    let context = Fixture::new();
    let mut store = context.open();
    let mut boot = 1;
    let names = ["job:1", "job:2", "job:3"];
    let mut highest = [0; 3];
    for (at, happening) in history {
        let who = TestClient::new("a", names[at]);
        let mut floor = None;
        if let HistoryEvent::Floor(ahead) = happening {
            floor = Fence::new(highest[at] + 1 + ahead);
        }
        let request = who.acquire_request(60_000).with_floor(floor);
        let answer = who.acquire(&store, &request).await.unwrap();
        let leasehold_core::store::AcquireResponse::Granted(grant) = answer else {
            return Err(TestCaseError::fail(format!("{:?} is not free: {answer:?}", who.name)));
        };
        let fence = grant.fence.get();
        prop_assert!(fence > highest[at], "{} after {}", fence, highest[at]);
        prop_assert!(floor.is_none_or(|floor| grant.fence >= floor));
        highest[at] = fence;
        match happening {
            HistoryEvent::Expire => context.clock.advance(Duration::from_secs(61)),
            HistoryEvent::Break => {
                let (name, claim) = (who.name.clone(), ReleaseAuthority::Operator(grant.fence));
                store.release(&ReleaseRequest::new(name, claim), CALL_TIMEOUT).await.unwrap();
            }
            HistoryEvent::HandOver => {
                let next = TestClient::new("b", names[at]);
                next.expect_queued(&store).await;
                who.release(&store).await;
                let handed = next.expect_granted(&store).await.get();
                prop_assert!(handed > highest[at]);
                highest[at] = handed;
                next.release(&store).await;
            }
            HistoryEvent::Reboot => {
                drop(store);
                boot += 1;
                context.clock.reboot();
                store = SqliteStore::open(context.options().boot_id(format!("boot-{boot}"))).unwrap();
                continue;
            }
            other => {
                if let HistoryEvent::StepWall(by) = other {
                    context.clock.step_wall(by);
                }
                if matches!(other, HistoryEvent::Reopen) {
                    store = SqliteStore::open(context.options().boot_id(format!("boot-{boot}"))).unwrap();
                }
                who.release(&store).await;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn recreated_file_continues_from_the_clock_or_the_floor() {
    let context = Fixture::new();
    let before = TestClient::new("a", "job").expect_granted(&context.open()).await;
    context.wait_closed().await;
    context.remove_files();
    let store = context.open();
    context.clock.advance(Duration::from_millis(1));
    let who = TestClient::new("b", "job");
    let by_clock = who.expect_granted(&store).await;
    assert!(by_clock > before);
    who.release(&store).await;

    drop(store);
    context.wait_closed().await;
    context.remove_files();
    // The wall clock goes back too: only the floor that the client has seen is left.
    context.clock.step_wall(-1_000_000);
    let request = who.acquire_request(60_000).with_floor(by_clock);
    let leasehold_core::store::AcquireResponse::Granted(grant) =
        who.acquire(&context.open(), &request).await.unwrap()
    else {
        panic!("free");
    };
    assert!(grant.fence > by_clock);
}

#[tokio::test]
async fn trap_33_counters_are_bounded_in_number() {
    let context = Fixture::new();
    let store = context.open();
    for number in 0..1500 {
        let who = TestClient::new("a", &format!("job:{number}"));
        who.expect_granted(&store).await;
        who.release(&store).await;
    }
    let counters = context.count("fences");
    assert!((500..=1024).contains(&counters), "{counters}");
}

#[tokio::test]
async fn counter_at_its_maximum_refuses_and_does_not_wrap() {
    let context = Fixture::new();
    let store = context.open();
    let (who, next) = (TestClient::new("a", "job"), TestClient::new("b", "job"));
    let last = Fence::new(Fence::MAX.get() - 1);
    let request = who.acquire_request(60_000).with_floor(last);
    who.acquire(&store, &request).await.unwrap();
    assert_eq!(who.inspect(&store).await.unwrap().fence, Some(Fence::MAX));
    who.release(&store).await;
    let failure = store.acquire(&next.acquire_request(60_000), CALL_TIMEOUT).await.unwrap_err();
    assert_eq!((failure.kind, failure.unknown), (StoreErrorKind::Corrupt, false));
    assert_eq!(next.inspect(&store).await, None);
    // Names of other counters are not affected.
    let elsewhere = TestClient { name: Name::new("other").unwrap(), ..next };
    elsewhere.expect_granted(&store).await;
}
