//! Resumes the holds of the daemon's previous run, or reports them lost.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::ClockExt;
use leasehold::{Error, Hold, InvalidInput, Name};
use leasehold_core::deadline::latest_expiry;
use leasehold_core::{HeartbeatDeadline, Request, RequestOptions, ResumeOutcome};

use super::registry::HoldEntry;
use super::saved_holds::SavedHold;
use super::token_source::HoldTokenSource;
use crate::problem::Refusal;
use crate::state::app::App;

/// Resumes every hold in the database. A hold whose lease is gone has ended, and its client is told
/// so.
pub(crate) async fn resume_holds(app: &Arc<App>) {
    let rows = match app.holds.load_saved().await {
        Ok(rows) => rows,
        Err(error) => {
            tracing::error!(error, "what the daemon held before cannot be read");
            return;
        }
    };
    // Reserve all ids before the first store call: no request may take one meanwhile.
    for row in &rows {
        if let Ok(name) = Name::new(&row.name)
            && let Ok(held) = entry_from_row(app, row, &name)
        {
            app.holds.restore(&row.key(), held);
        }
    }
    // In parallel: each hold may wait for the store for as long as its TTL.
    let tasks: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let app = Arc::clone(app);
            tokio::spawn(async move { resume_one(&app, row).await })
        })
        .collect();
    for task in tasks {
        let _ = task.await;
    }
}

async fn resume_one(app: &Arc<App>, row: SavedHold) {
    let Ok(name) = Name::new(&row.name) else { return };
    match resume_until_answered(app, &row, &name).await {
        Ok(Some(hold)) => {
            tracing::info!(%name, id = row.id, "a hold kept before the restart goes on");
            // The client could not send heartbeats while the daemon was down, so its time starts
            // now.
            app.holds.activate(&row.key(), hold, app.clock.now());
        }
        Ok(None) => {
            tracing::warn!(%name, id = row.id, "a hold kept before the restart is lost");
            app.holds.mark_lost(&row.key(), name, "daemon_down", app.clock.now());
        }
        Err(_) => app.holds.mark_lost(&row.key(), name, "policy_gone", app.clock.now()),
    }
}

/// Retries until the store has answered, or until the lease must have expired.
async fn resume_until_answered(
    app: &Arc<App>,
    row: &SavedHold,
    name: &Name,
) -> Result<Option<Hold>, Refusal> {
    let class = app.class(&row.class)?;
    let token = super::attempt_token(app, row, &row.attempt)?;
    let token_source = HoldTokenSource::new(app, row.clone(), token.clone());
    let ttl = row.ttl_ms.map(Duration::from_millis);
    let request = Request::new(&class.name, name)?
        .token(token)
        .token_source(token_source)
        .options(RequestOptions::default().ttl(ttl));
    let age = u64::try_from(app.wall_micros().saturating_sub(row.since)).unwrap_or(0);
    let age = Duration::from_micros(age);
    // One TTL after the start, no lease of the previous run can be left.
    let give_up = latest_expiry(app.clock.now(), ttl.unwrap_or(class.ttl.get()), class.drift);
    loop {
        match app.locks.resume(request.clone(), row.fence, age).await {
            Ok(ResumeOutcome::Held(hold)) => return Ok(Some(hold)),
            Ok(ResumeOutcome::Gone) => return Ok(None),
            Err(Error::Invalid(invalid)) => return Err(invalid.into()),
            Err(_) if app.clock.now() < give_up => app.clock.sleep(Duration::from_millis(200)).await,
            Err(_) => return Ok(None),
        }
    }
}

fn entry_from_row(app: &App, row: &SavedHold, name: &Name) -> Result<HoldEntry, InvalidInput> {
    let class = app.class(&row.class)?;
    let heartbeat = Duration::from_millis(row.heartbeat_ms);
    let ttl = row.ttl_ms.map_or(class.ttl.get(), Duration::from_millis);
    Ok(HoldEntry {
        hold: None,
        name: name.clone(),
        holder: row.holder.clone(),
        class: row.class.clone(),
        // No run can have promised the client more than a heartbeat interval, whatever the policy
        // was then.
        client: HeartbeatDeadline::new(heartbeat, class.renew.on_failure, ttl)
            .promised(app.clock.now() + heartbeat),
        release_request: None,
        retaken_row: None,
    })
}
