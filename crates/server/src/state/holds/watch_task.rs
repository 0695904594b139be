//! The task that ends daemon-kept holds: those lost, and those whose clients are gone.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::ClockExt;

use crate::auth::Principal;
use crate::state::app::App;
use crate::state::audit::AuditEntry;
use crate::state::record::HoldEnd;

// Short enough for names to become free soon. A client learns of a loss from its heartbeat,
// independent of this task.
const HOLD_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Checks all holds at an interval, until the task is aborted.
pub(crate) async fn watch_holds(app: Arc<App>) {
    loop {
        let now = app.clock.now();
        app.client_leases.expire(now);
        for (key, reason) in app.holds.holds_to_end(now) {
            let Some((hold, name)) = app.holds.remove(&key, &reason, now) else {
                continue;
            };
            let fence = hold.fence_if_any().ok().flatten();
            tracing::warn!(%name, id = key.id, reason, "a hold that the daemon kept is over");
            app.audit.record(
                AuditEntry::new("end", &Principal::new("daemon", []))
                    .name(&name)
                    .fence_if_any(fence)
                    .detail(&reason),
            );
            let app = Arc::clone(&app);
            // In its own task: a store that does not answer must not delay the end of the other
            // holds.
            tokio::spawn(async move {
                hold.release().await;
                if let Some(fence) = fence.filter(|_| reason == "client_gone") {
                    app.recorder.history.correct_end(&name, fence, HoldEnd::ClientGone);
                }
            });
        }
        app.clock.sleep(HOLD_CHECK_INTERVAL).await;
    }
}
