//! "May I have this lease?" over the wire.

use std::time::Duration;

use leasehold_core::store::{Answer, Ask, Busy, Cause, Failure, Grant};

use crate::connection::Connections;
use crate::error;
use crate::store::route;
use crate::wire::{Acquire, Granted, ModeWord, Secret, millis};

pub(crate) async fn acquire(
    connections: &Connections,
    ask: &Ask,
    within: Duration,
) -> Result<Answer, Failure> {
    let Some((mode, permits)) = ModeWord::of(ask.mode) else {
        return Err(Failure::not_done(
            Cause::Unsupported,
            "this mode is newer than the wire",
        ));
    };
    let document = Acquire {
        token: Some(Secret::new(ask.token.expose())),
        ttl_ms: Some(ask.ttl.as_millis()),
        lock_delay_ms: Some(millis(ask.lock_delay)),
        floor: ask.floor,
        queue_ms: ask.queue.map(|keep| millis(keep).max(1)),
        within_ms: Some(millis(within).max(1)),
        mode: Some(mode),
        permits,
        ..Acquire::default()
    };
    let answer = connections.post(&route(&ask.name, "/acquire"), &document).await?;
    if answer.status == 200 {
        let granted: Granted = answer.document("acquire")?;
        return Ok(Answer::Granted(Grant {
            fence: granted.fence,
            ttl: granted.kept_ms.map(Duration::from_millis),
        }));
    }
    let problem = answer.problem();
    match problem.as_ref().map(|problem| problem.code.as_str()) {
        Some("busy") if answer.status == 409 => Ok(Answer::Busy(busy(problem.unwrap_or_default()))),
        Some("void") if answer.status == 410 => Ok(Answer::Void),
        _ => Err(error::refused(&answer)),
    }
}

fn busy(problem: crate::wire::Problem) -> Busy {
    Busy {
        holder: problem.holder.unwrap_or_default(),
        class: problem.class,
        fence: problem.fence,
        remaining: problem.remaining_ms.map(Duration::from_millis),
        queued: problem.queued.unwrap_or(false),
    }
}
