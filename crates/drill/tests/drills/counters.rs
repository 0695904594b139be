//! Fence counters of a real Redis server do not expire, and the drills would notice one that does.

use leasehold_core::Fence;
use leasehold_core::clock::{BootClock, Clock};
use leasehold_drill::fleet::{DrillTestbed, HOUR_SECONDS};

use crate::{program, send_command, throwaway};

const DAY_SECONDS: i64 = 24 * HOUR_SECONDS;

async fn testbed(skewed: bool) -> DrillTestbed {
    DrillTestbed::build(&throwaway("redis"), "", &program(), skewed).await.unwrap()
}

/// The offset of the server's clock from the real time, in seconds.
async fn clock_offset(testbed: &DrillTestbed) -> i64 {
    let (seconds, _micros): (u64, u64) = send_command(testbed, &["TIME"]).await;
    let true_time = BootClock.wall().duration_since(std::time::UNIX_EPOCH).unwrap();
    seconds.cast_signed() - true_time.as_secs().cast_signed()
}

/// After the clock is corrected, only the counter knows the highest fence. It must keep it however
/// long no client acquires. This test looks at fences only, not at keys.
#[tokio::test]
async fn fences_do_not_repeat_after_a_clock_jump_and_days_of_silence() {
    let testbed = testbed(true).await;
    let mut last = Fence::MIN;
    for (days, when) in [
        (30, "while the server's clock is a month ahead"),
        (0, "when it has been put right"),
        (2, "after two days in which nobody asked"),
    ] {
        testbed.server_clock().unwrap().set_offset(days * DAY_SECONDS).unwrap();
        let off = clock_offset(&testbed).await - days * DAY_SECONDS;
        assert!(off.abs() < HOUR_SECONDS, "the clock was not set: it is off by {off} s");
        let fence = testbed.acquire_and_release("job:1").await.unwrap();
        assert!(fence > last, "{when}: {fence} after {last}");
        last = fence;
    }
}

/// Every drill on Redis ends with this check.
#[tokio::test]
async fn no_counter_expires_and_the_check_would_notice_one() {
    let testbed = testbed(false).await;
    assert_eq!(testbed.expiring_fence_counters().await.unwrap(), Some(0));
    let keys: Vec<String> = send_command(&testbed, &["KEYS", "lh1:fence:*"]).await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    let _: bool = send_command(&testbed, &["PEXPIRE", &keys[0], "86400000"]).await;
    assert_eq!(testbed.expiring_fence_counters().await.unwrap(), Some(1));
}
