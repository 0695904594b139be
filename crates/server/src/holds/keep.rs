//! Ends holds that are over: lost, or without a client.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::ClockExt;

use crate::app::App;
use crate::audit::Act;
use crate::auth::Principal;
use crate::record::Ended;

/// How often holds are looked at. A lost hold is known to its client at its heartbeat, whatever happens here.
const LOOK: Duration = Duration::from_millis(200);

/// For as long as the daemon lives.
pub(crate) async fn watch(app: Arc<App>) {
    loop {
        let now = app.clock.now();
        app.kept.expire(now);
        for (id, reason) in app.holds.due(now) {
            let Some((hold, name)) = app.holds.take(&id, &reason, now) else {
                continue;
            };
            let fence = hold.unfenced().ok().flatten();
            tracing::warn!(%name, id, reason, "a hold that the daemon kept is over");
            app.audit.act(
                Act::new("end", &Principal::new("daemon", []))
                    .name(&name)
                    .fence_of(fence)
                    .detail(&reason),
            );
            let app = Arc::clone(&app);
            tokio::spawn(async move {
                hold.release().await;
                if let Some(fence) = fence.filter(|_| reason == "client_gone") {
                    app.recorder.history.ended(&name, fence, Ended::ClientGone);
                }
            });
        }
        app.clock.sleep(LOOK).await;
    }
}
