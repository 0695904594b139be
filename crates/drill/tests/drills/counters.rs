//! Fence counters of a real Redis are not forgotten, and whoever judges a drill would see it if one were.

use leasehold_core::Fence;
use leasehold_core::clock::{BootClock, Clock};
use leasehold_drill::fleet::{HOUR, Stage, StoreKind};

use crate::program;

const DAY: i64 = 24 * HOUR;

async fn stage(skewed: bool) -> Stage {
    Stage::build(StoreKind::Redis, None, "", &program(), skewed)
        .await
        .unwrap()
}

/// How far the server's clock is from the true one, in seconds.
async fn ahead(stage: &Stage) -> i64 {
    let told = stage.command(&["TIME"]).await.unwrap();
    let (seconds, _micros): (u64, u64) = redis::from_redis_value(told).unwrap();
    let true_time = BootClock.wall().duration_since(std::time::UNIX_EPOCH).unwrap();
    seconds.cast_signed() - true_time.as_secs().cast_signed()
}

/// Once the clock has been put right, only the counter knows how far the fences have come: it must know it for as long as
/// nobody asks. Nothing is looked at here but the fences themselves.
#[tokio::test]
async fn fences_of_a_clock_that_was_ahead_do_not_come_again_after_days_of_silence() {
    let stage = stage(true).await;
    let mut last = Fence::MIN;
    for (days, when) in [
        (30, "while the server's clock is a month ahead"),
        (0, "when it has been put right"),
        (2, "after two days in which nobody asked"),
    ] {
        stage.skew().unwrap().set(days * DAY).unwrap();
        let off = ahead(&stage).await - days * DAY;
        assert!(off.abs() < HOUR, "the clock was not set: it is off by {off} s");
        let fence = stage.granted("job:1").await.unwrap();
        assert!(fence > last, "{when}: {fence} after {last}");
        last = fence;
    }
}

/// What every drill on Redis ends with.
#[tokio::test]
async fn no_counter_has_a_time_to_live_and_one_that_had_would_be_seen() {
    let stage = stage(false).await;
    assert_eq!(stage.mortal_counters().await.unwrap(), Some(0));
    let keys = stage.command(&["KEYS", "lh1:fence:*"]).await.unwrap();
    let keys: Vec<String> = redis::from_redis_value(keys).unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
    stage.command(&["PEXPIRE", &keys[0], "86400000"]).await.unwrap();
    assert_eq!(stage.mortal_counters().await.unwrap(), Some(1));
}
