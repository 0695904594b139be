//! Waits in real time for what other processes do: for a condition, never for a fixed time.

use std::time::Duration;

use anyhow::bail;
use leasehold_core::clock::{BootClock, Clock, ClockExt};

/// Calls `condition` until it returns a value, for at most `limit`.
///
/// # Errors
/// The limit passed; the text names `what` it waited for.
pub async fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let end = BootClock.now() + limit;
    loop {
        if let Some(answer) = condition().await {
            return Ok(answer);
        }
        if BootClock.now() >= end {
            bail!("timed out after {limit:?} waiting for {what}");
        }
        // Real time even under a paused runtime: other processes do not share virtual time.
        BootClock.sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_until_the_condition_holds_or_the_limit_passes() {
        let mut asked = 0;
        let answer = wait_for("the third time", Duration::from_secs(60), async || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(answer.await.unwrap(), 3);
        let never = wait_for("what never comes", Duration::from_millis(30), async || None::<()>);
        assert!(never.await.unwrap_err().to_string().contains("waiting for what never comes"));
    }
}
