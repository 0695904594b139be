//! Takes up what the last life of the daemon held, or reports it lost.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::ClockExt;
use leasehold::leasehold_core::{Request, Resumed, Tweaks};
use leasehold::{Error, Hold, Invalid, Name};

use super::book::Held;
use super::heirs::HoldHeirs;
use super::saved::Row;
use crate::app::App;
use crate::problem::Refusal;

/// Takes up every hold in the file. Those whose lease is gone are over, and their clients hear so.
pub(crate) async fn resume(app: &Arc<App>) {
    let rows = match app.holds.saved().await {
        Ok(rows) => rows,
        Err(error) => {
            tracing::error!(error, "what the daemon held before cannot be read");
            return;
        }
    };
    // Their ids are taken from the first request on.
    for row in &rows {
        if let Ok(name) = Name::new(&row.name)
            && let Ok(held) = held(app, row, &name)
        {
            app.holds.restore(&row.id, held);
        }
    }
    let tasks: Vec<_> = rows
        .into_iter()
        .map(|row| {
            let app = Arc::clone(app);
            tokio::spawn(async move { one(&app, row).await })
        })
        .collect();
    for task in tasks {
        let _ = task.await;
    }
}

async fn one(app: &Arc<App>, row: Row) {
    let Ok(name) = Name::new(&row.name) else { return };
    match attempt(app, &row, &name).await {
        Ok(Some(hold)) => {
            tracing::info!(%name, id = row.id, "a hold of the last life goes on");
            // Its client could not be heard while the daemon was down: its time begins now.
            app.holds.hold(&row.id, hold, app.clock.now());
        }
        Ok(None) => {
            tracing::warn!(%name, id = row.id, "a hold of the last life is lost");
            app.holds
                .lost(&row.id, name, row.owner, "daemon_down", app.clock.now());
        }
        Err(_) => app
            .holds
            .lost(&row.id, name, row.owner, "policy_gone", app.clock.now()),
    }
}

/// Asks until the store has answered, or until the lease must be over.
async fn attempt(app: &Arc<App>, row: &Row, name: &Name) -> Result<Option<Hold>, Refusal> {
    let class = app.class(&row.class)?;
    let token = super::token(app, row, &row.attempt)?;
    let heirs = HoldHeirs::new(app, row.clone(), token.clone());
    let ttl = row.ttl_ms.map(Duration::from_millis);
    let request = Request::new(&class.name, name)?
        .token(token)
        .heirs(heirs)
        .tweaks(Tweaks::default().ttl(ttl));
    let age = u64::try_from(app.wall_micros().saturating_sub(row.since)).unwrap_or(0);
    let age = Duration::from_micros(age);
    let give_up = app.clock.now() + ttl.unwrap_or(class.ttl.get());
    loop {
        match app.locks.resume(request.clone(), row.fence, age).await {
            Ok(Resumed::Held(hold)) => return Ok(Some(hold)),
            Ok(Resumed::Gone) => return Ok(None),
            Err(Error::Invalid(invalid)) => return Err(invalid.into()),
            Err(_) if app.clock.now() < give_up => app.clock.sleep(Duration::from_millis(200)).await,
            Err(_) => return Ok(None),
        }
    }
}

fn held(app: &App, row: &Row, name: &Name) -> Result<Held, Invalid> {
    let class = app.class(&row.class)?;
    let heartbeat = Duration::from_millis(row.heartbeat_ms);
    Ok(Held {
        hold: None,
        name: name.clone(),
        owner: row.owner.clone(),
        holder: row.holder.clone(),
        class: row.class.clone(),
        heartbeat,
        // No life has told it more than that, whatever the policy was then.
        due: app.clock.now() + heartbeat,
        on_failure: class.renew.on_failure,
        ttl: row.ttl_ms.map_or(class.ttl.get(), Duration::from_millis),
        asked: None,
        retaken: None,
    })
}
