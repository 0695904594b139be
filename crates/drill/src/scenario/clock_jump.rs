//! Wall clocks jump: the client's by an hour in both directions, then the server's.
//!
//! Leasehold reads no wall clock for leases, so a jump of the client's clock must change nothing.
//! Where leases use the boot clock of the host, there is no server clock to set. Other stores expire
//! leases by the server's wall clock. Set back, leases live longer, and the client reports it. Set
//! ahead, leases expire at once; no client can prevent that, so the fence has to protect.

use std::time::Duration;

use leasehold_core::testbed::TestbedAbility;

use super::context::{ScenarioContext, format_secs, transition};
use super::verdict_builder::VerdictBuilder;
use super::{DRILL_TTL, EVENT_TIMEOUT, HOST_SLACK};
use crate::fleet::{DrillError, FakeWallClock, HOUR_SECONDS};
use crate::history::HistoryEntry;

// Far longer than the drills' TTL, and a realistic step of a bad NTP server.
const SERVER_JUMP_SECONDS: i64 = 60;

pub(super) async fn run(context: &mut ScenarioContext, draft: &mut VerdictBuilder) -> Result<(), DrillError> {
    let clock = FakeWallClock::new(context.testbed.folder(), "client-clock")?;
    let holder = context.worker_spec("holder", "scheduler", "job:1").steps(120, 50);
    context.workers.start_with_prefix(&clock.command_prefix(), holder).await?;
    context.require_event(0, "holder", "renewed").await?;
    jump_client_clock(context, draft, &clock).await?;
    if context.testbed.info().can(TestbedAbility::ServerClock) {
        set_server_clock_back(context, draft).await?;
        set_server_clock_ahead(context, draft).await?;
    }
    Ok(())
}

/// Sets the holder's wall clock an hour ahead, then an hour behind.
async fn jump_client_clock(
    context: &ScenarioContext,
    draft: &mut VerdictBuilder,
    clock: &FakeWallClock,
) -> Result<(), DrillError> {
    for (hours, words) in [(1, "an hour ahead"), (-1, "an hour behind")] {
        let from = context.history.position();
        clock.set_offset(hours * HOUR_SECONDS)?;
        context.record_fault(&format!("the holder's wall clock is set {words}"));
        let real = (clock.measure_offset().await? - hours * HOUR_SECONDS).abs() <= 2;
        let mut renewed = 0;
        let went_on = context
            .history
            .wait_for(from, EVENT_TIMEOUT, |record| {
                renewed += u32::from(is_event(record, "holder", "renewed"));
                renewed == 2
            })
            .await;
        let harm = context.history.snapshot().records.get(from..).unwrap_or_default().iter().any(|record| {
            is_event(record, "holder", "abandoned") || is_event(record, "holder", "clock_jump")
        });
        draft.promise(
            &format!("the client's wall clock {words} changes nothing"),
            real && went_on.is_some() && !harm,
            match (real, harm) {
                (false, _) => "the clock was not set: this shows nothing".to_owned(),
                (true, true) => "the hold was lost".to_owned(),
                (true, false) => format!("renewed {renewed} times more, as before"),
            },
        );
    }
    clock.set_offset(0)?;
    context.record_repair("the holder's wall clock is right again");
    Ok(())
}

/// Sets the server's clock back, so leases live longer than their holders expect.
async fn set_server_clock_back(
    context: &ScenarioContext,
    draft: &mut VerdictBuilder,
) -> Result<(), DrillError> {
    let from = context.history.position();
    context.testbed.server_clock()?.set_offset(-SERVER_JUMP_SECONDS)?;
    context.record_fault(&format!("the server's clock is set back by {SERVER_JUMP_SECONDS} s"));
    let told = context.wait_for_event(from, EVENT_TIMEOUT, "holder", "clock_jump").await;
    let seen = told.as_ref().and_then(transition);
    draft.promise(
        "set back: the jump is reported with the next renewal",
        seen.is_some_and(|seen| seen.detail.as_deref() == Some("behind")),
        seen.and_then(|seen| seen.span).map_or_else(
            || "never told".to_owned(),
            |by| format!("the store is {} behind", format_secs(Duration::from_nanos(by))),
        ),
    );
    let after = context.history.position();
    let renewed = context.wait_for_event(after, EVENT_TIMEOUT, "holder", "renewed").await;
    let lost = context.wait_for_event(from, Duration::ZERO, "holder", "abandoned").await;
    draft.promise(
        "set back: the holder counts on its own clock only and goes on",
        renewed.is_some() && lost.is_none(),
        if lost.is_none() { "renewed as before" } else { "lost" },
    );
    Ok(())
}

/// Sets the server's clock ahead, so a lease expires with most of its time left.
async fn set_server_clock_ahead(
    context: &mut ScenarioContext,
    draft: &mut VerdictBuilder,
) -> Result<(), DrillError> {
    // A new worker with a new task: the old holder's task may end during the jump.
    let in_order = context.workers.end_worker("holder").await.is_clean();
    draft.promise(
        "set back: the holder ends in order",
        in_order,
        if in_order { "it did" } else { "it did not" },
    );
    let before = context.history.position();
    let old = context.worker_spec("old", "scheduler", "job:1").steps(120, 50).rest(2000);
    let rival = context.worker_spec("rival", "scheduler", "job:1").steps(40, 50);
    context.workers.start(old).await?;
    context.require_event(before, "old", "renewed").await?;
    context.workers.start(rival).await?;
    context.wait_for_event(before, EVENT_TIMEOUT, "rival", "busy").await;
    let from = context.history.position();
    context.history.record(HistoryEntry::Forgot);
    context.testbed.server_clock()?.set_offset(0)?;
    let jumped = context.record_fault(&format!("the server's clock jumps ahead by {SERVER_JUMP_SECONDS} s"));
    let learned = context.wait_for_event(from, EVENT_TIMEOUT, "old", "abandoned").await;
    context.history.record(HistoryEntry::Forgot);
    draft.promise_within(
        "set ahead: the holder whose lease is gone learns it with its next renewal",
        jumped,
        learned.as_ref(),
        DRILL_TTL + HOST_SLACK,
    );
    let next = context.wait_for_event(from, EVENT_TIMEOUT, "rival", "acquired").await;
    draft.promise_within(
        "set ahead: the name is granted to the next one, with a greater fence",
        jumped,
        next.as_ref(),
        EVENT_TIMEOUT,
    );
    Ok(())
}

fn is_event(record: &crate::history::HistoryRecord, who: &str, wanted: &str) -> bool {
    record.who == who && transition(record).is_some_and(|seen| seen.event == wanted)
}
