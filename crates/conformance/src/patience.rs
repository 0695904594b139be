//! Waiting in real time for what other processes do: for a condition, never for a duration.

use std::time::Duration;

use anyhow::bail;
use leasehold_core::clock::{BootClock, Clock, ClockExt};

/// Asks `condition` until it answers, for at most `limit`.
///
/// # Errors
/// It did not within the limit; `what` says what was waited for.
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
            bail!("waited {limit:?} for {what}, in vain");
        }
        BootClock.sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn asks_until_it_is_answered_or_in_vain() {
        let mut asked = 0;
        let answer = wait_for("the third time", Duration::from_secs(60), async || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(answer.await.unwrap(), 3);
        let never = wait_for("what never comes", Duration::from_millis(30), async || None::<()>);
        assert!(
            never
                .await
                .unwrap_err()
                .to_string()
                .contains("what never comes, in vain")
        );
    }
}
