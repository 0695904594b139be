//! What a store's testbed says about itself, and what it does without being told how.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::rng::{Random, SeededRandom};
use leasehold_core::store::Promise;
use leasehold_core::testbed::{
    ExpiryClock, FenceSource, ProcessWrapper, SimProfile, StoreFault, Testbed, TestbedAbility, TestbedError,
    TestbedInfo, TestbedSetup, pick_by_share, random_share,
};

/// A testbed that implements only what it must.
#[derive(Debug)]
struct Bare;

#[async_trait]
impl Testbed for Bare {
    fn url(&self) -> String {
        "bare:".into()
    }

    async fn inject(&self, _: &str, _: Duration, _: &dyn Random) -> Result<(), TestbedError> {
        Ok(())
    }

    async fn remove_leases(&self, _: &[String]) -> Result<usize, TestbedError> {
        Ok(0)
    }
}

#[tokio::test]
async fn a_testbed_refuses_what_it_has_no_ability_for() {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    assert!(Bare.endpoint().is_none() && Bare.single_writer_file().is_none());
    assert!(!Bare.is_following().await.unwrap());
    let refusals = [
        (Bare.url_through(address).map(drop), "this store cannot be reached through a proxy"),
        (Bare.block().await, "this store cannot be blocked"),
        (Bare.stop().await, "this store cannot be stopped"),
        (Bare.restart().await, "this store cannot be restarted"),
        (Bare.evict().await.map(drop), "this store cannot evict leases"),
        (Bare.start_replica(address).await.map(drop), "this store cannot have a replica"),
        (Bare.promote().await, "this store cannot be promoted"),
        (Bare.expiring_fence_counters().await.map(drop), "this store cannot list its fence counters"),
    ];
    for (refused, why) in refusals {
        assert_eq!(refused.unwrap_err().to_string(), why);
    }
}

#[test]
fn an_unmarked_store_says_how_to_allow_a_drill() {
    let refused = TestbedError::not_marked("redis://h", "redis-cli set mark 1").to_string();
    assert!(
        refused.contains("redis://h is not marked") && refused.contains("redis-cli set mark 1"),
        "{refused}"
    );
    assert_eq!(TestbedError::store("no").to_string(), "no");
}

#[test]
fn a_setup_and_a_description_have_what_they_were_given() {
    let wrapper = ProcessWrapper::new(vec!["env".into()]);
    let setup = TestbedSetup::new("/f", "n").with_wrapper(wrapper).with_durability();
    assert_eq!((setup.folder.as_os_str(), &*setup.name, setup.durable), ("/f".as_ref(), "n", true));
    assert_eq!(setup.wrapper.prefix, ["env"]);

    const FAULTS: &[StoreFault] =
        &[StoreFault::new("slow", "it is slow"), StoreFault::losing_leases("flush", "gone")];
    let info = TestbedInfo::new("bare", "nothing")
        .with_faults(FAULTS)
        .with_abilities(&[TestbedAbility::Evict])
        .with_seed_share(3);
    assert_eq!((info.faults, info.seed_share), (FAULTS, 3));
    assert_eq!([FAULTS[0].loses_leases, FAULTS[1].loses_leases], [false, true]);
    assert!(info.can(TestbedAbility::Evict) && !info.can(TestbedAbility::Network));

    let profile = SimProfile::volatile_server("bare").with_seed_share(5);
    assert_eq!((profile.name, profile.promise, profile.seed_share), ("bare", Promise::Volatile, 5));
    assert_eq!(
        (profile.expiry_clock, profile.fence_source),
        (ExpiryClock::ServerWall, FenceSource::ServerClock)
    );
    assert!(profile.refuses_tombstones_when_full);
}

#[test]
fn a_random_share_takes_every_per_cent_between_its_bounds() {
    let random = SeededRandom::new(1);
    let drawn: BTreeSet<_> =
        (0..200).map(|_| random_share(Duration::from_secs(100), &random, 20, 24)).collect();
    assert_eq!(drawn, (20..=24).map(Duration::from_secs).collect());
}

#[test]
fn items_are_picked_by_their_share() {
    let pick =
        |draw| pick_by_share(vec![("a", 2), ("b", 0), ("c", 1)], |item| item.1, |_| draw).map(|item| item.0);
    assert_eq!([0, 1, 2, 3].map(pick), [Some("a"), Some("a"), Some("c"), None]);
    let sum = pick_by_share(vec![2, 3], |share| *share, |sum| sum - 1);
    assert_eq!(sum, Some(3));
}
