//! Fences only grow, whatever happens to the clock, the file and the boot.

use std::time::Duration;

use leasehold_core::store::{Ask, Cause, Claim, Giving, Store};
use leasehold_core::{Fence, Name};
use leasehold_sqlite::SqliteStore;
use proptest::prelude::*;

use crate::scene::{Scene, WITHIN, Who};

/// Something that may happen between two grants.
#[derive(Debug, Clone)]
enum Happening {
    Release,
    Expire,
    Break,
    StepWall(i64),
    Floor(u64),
    HandOver,
    Reopen,
    Reboot,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        Just(Happening::Release),
        Just(Happening::Expire),
        Just(Happening::Break),
        (-10_000_000_i64..10_000_000).prop_map(Happening::StepWall),
        (0_u64..5_000_000).prop_map(Happening::Floor),
        Just(Happening::HandOver),
        Just(Happening::Reopen),
        Just(Happening::Reboot),
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

async fn grow(history: Vec<(usize, Happening)>) -> Result<(), TestCaseError> {
    let scene = Scene::new();
    let mut store = scene.open();
    let mut boot = 1;
    let names = ["job:1", "job:2", "job:3"];
    let mut highest = [0; 3];
    for (at, happening) in history {
        let who = Who::new("a", names[at]);
        let mut floor = None;
        if let Happening::Floor(ahead) = happening {
            floor = Fence::new(highest[at] + 1 + ahead);
        }
        let ask = Ask {
            floor,
            ..who.ask(60_000)
        };
        let answer = who.put(&store, &ask).await.unwrap();
        let leasehold_core::store::Answer::Granted(grant) = answer else {
            return Err(TestCaseError::fail(format!(
                "{:?} is not free: {answer:?}",
                who.name
            )));
        };
        let fence = grant.fence.get();
        prop_assert!(fence > highest[at], "{} after {}", fence, highest[at]);
        prop_assert!(floor.is_none_or(|floor| grant.fence >= floor));
        highest[at] = fence;
        match happening {
            Happening::Expire => scene.clock.pass(Duration::from_secs(61)),
            Happening::Break => {
                let (name, claim) = (who.name.clone(), Claim::Seen(grant.fence));
                store
                    .release(
                        &Giving {
                            name,
                            claim,
                            tombstone: None,
                        },
                        WITHIN,
                    )
                    .await
                    .unwrap();
            }
            Happening::HandOver => {
                let next = Who::new("b", names[at]);
                next.queues(&store).await;
                who.gives(&store).await;
                let handed = next.gets(&store).await.get();
                prop_assert!(handed > highest[at]);
                highest[at] = handed;
                next.gives(&store).await;
            }
            Happening::Reboot => {
                drop(store);
                boot += 1;
                scene.clock.reboot();
                store = SqliteStore::open(scene.options().boot_id(format!("boot-{boot}"))).unwrap();
                continue;
            }
            other => {
                if let Happening::StepWall(by) = other {
                    scene.clock.step_wall(by);
                }
                if matches!(other, Happening::Reopen) {
                    store = SqliteStore::open(scene.options().boot_id(format!("boot-{boot}"))).unwrap();
                }
                who.gives(&store).await;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_file_made_anew_goes_on_from_the_clock_or_the_floor() {
    let scene = Scene::new();
    let before = Who::new("a", "job").gets(&scene.open()).await;
    scene.closed().await;
    scene.wipe();
    let store = scene.open();
    scene.clock.pass(Duration::from_millis(1));
    let who = Who::new("b", "job");
    let by_clock = who.gets(&store).await;
    assert!(by_clock > before);
    who.gives(&store).await;

    drop(store);
    scene.closed().await;
    scene.wipe();
    // Now the clock goes back too: only what the client has seen is left.
    scene.clock.step_wall(-1_000_000);
    let ask = Ask {
        floor: Some(by_clock),
        ..who.ask(60_000)
    };
    let leasehold_core::store::Answer::Granted(grant) = who.put(&scene.open(), &ask).await.unwrap() else {
        panic!("free");
    };
    assert!(grant.fence > by_clock);
}

#[tokio::test]
async fn trap_33_counters_are_bounded_in_number() {
    let scene = Scene::new();
    let store = scene.open();
    for number in 0..1500 {
        let who = Who::new("a", &format!("job:{number}"));
        who.gets(&store).await;
        who.gives(&store).await;
    }
    let counters = scene.count("fences");
    assert!((500..=1024).contains(&counters), "{counters}");
}

#[tokio::test]
async fn a_counter_at_its_end_refuses_rather_than_wraps() {
    let scene = Scene::new();
    let store = scene.open();
    let (who, next) = (Who::new("a", "job"), Who::new("b", "job"));
    let last = Fence::new(Fence::MAX.get() - 1);
    let ask = Ask {
        floor: last,
        ..who.ask(60_000)
    };
    who.put(&store, &ask).await.unwrap();
    assert_eq!(who.sees(&store).await.unwrap().fence, Some(Fence::MAX));
    who.gives(&store).await;
    let failure = store.acquire(&next.ask(60_000), WITHIN).await.unwrap_err();
    assert_eq!((failure.cause, failure.unknown), (Cause::Corrupt, false));
    assert_eq!(next.sees(&store).await, None);
    // Only this counter's names are concerned.
    let elsewhere = Who {
        name: Name::new("other").unwrap(),
        ..next
    };
    elsewhere.gets(&store).await;
}
