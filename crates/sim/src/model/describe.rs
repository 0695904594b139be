//! Describes a counterexample in words.

use super::client::ClientStep;
use super::network::Message;
use super::protocol::ModelAction;
use super::state::{ClientPhase, MAX_CLIENTS, ModelState, ModelToken};

/// Describes the step `action` from `before` to `after`.
#[must_use]
pub fn describe_step(before: &ModelState, action: &ModelAction, after: &ModelState) -> String {
    match action {
        ModelAction::ClientStarts { who, what } => {
            describe_client_step(before, usize::from(*who), what, after)
        }
        ModelAction::Deliver { slot } => describe_delivery(before, *slot, after),
        ModelAction::DeliverAgain { slot } => {
            format!("{} (and will arrive again)", describe_delivery(before, *slot, after))
        }
        ModelAction::LoseMessage { slot } => format!("lost: {}", describe_message(before, *slot)),
        ModelAction::Tick { forget, .. } => describe_tick(after, *forget),
        ModelAction::Replicate => "the replica catches up with the store".to_owned(),
        ModelAction::StepClock => format!("the store's clock steps to {}", after.store_clock()),
    }
}

fn client_label(who: u8) -> char {
    char::from(b'A'.saturating_add(who))
}

fn token_label(token: ModelToken) -> String {
    format!("{}{}", client_label(token.client), token.attempt + 1)
}

fn describe_client_step(before: &ModelState, who: usize, what: &ClientStep, after: &ModelState) -> String {
    let token = before.token_of(who).map_or_else(String::new, token_label);
    let client = token.chars().next().unwrap_or('?');
    let clock = after.clock(who);
    match what {
        ClientStep::Acquire { .. } => format!("{client} asks for the lease as {token} (its clock: {clock})"),
        ClientStep::RetryAcquire => {
            format!("{client} has no answer and asks again as {token} (its clock: {clock})")
        }
        ClientStep::GiveUp => format!("{client} gives up {token}, not knowing what became of it"),
        ClientStep::Renew => format!("{client} sends a renewal for {token} (its clock: {clock})"),
        ClientStep::Write => match before.clients.get(who).map(|client| client.phase) {
            Some(ClientPhase::Holding { grant, deadline, .. }) => format!(
                "{client} sends a write with fence {} (its clock: {clock}, deadline {deadline})",
                grant.fence
            ),
            _ => format!("{client} sends a write"),
        },
        ClientStep::Release => format!("{client} releases {token}"),
    }
}

fn describe_message(before: &ModelState, slot: u8) -> String {
    let Some(message) = before.network.get(usize::from(slot)) else {
        return "nothing".to_owned();
    };
    match message {
        Message::Acquire { token, sent_at, .. } => {
            format!("the ask of {} sent at {sent_at}", token_label(token))
        }
        Message::Renew { token, sent_at, .. } => {
            format!("the renewal of {} sent at {sent_at}", token_label(token))
        }
        Message::Release { token, undo: true, .. } => format!("the undo of {}", token_label(token)),
        Message::Release { token, .. } => format!("the release of {}", token_label(token)),
        Message::Write { grant } => format!("the write with fence {}", grant.fence),
        Message::Granted { token, grant, .. } => {
            format!("the answer to {}: granted with fence {}", token_label(token), grant.fence)
        }
        Message::Busy { token, .. } => format!("the answer to {}: busy", token_label(token)),
        Message::Renewed { token, .. } => format!("the answer to {}: renewed", token_label(token)),
        Message::NotOwned { token, .. } => format!("the answer to {}: not owned", token_label(token)),
    }
}

fn describe_delivery(before: &ModelState, slot: u8, after: &ModelState) -> String {
    let what = describe_message(before, slot);
    let Some(message) = before.network.get(usize::from(slot)) else {
        return what;
    };
    match message {
        Message::Write { .. } if after.target == before.target && after.breaches == before.breaches => {
            format!("{what} reaches the target, which has admitted {}", after.target.fence)
        }
        Message::Write { .. } => format!("{what} reaches the target and is applied"),
        Message::Acquire { .. } | Message::Renew { .. } | Message::Release { .. } => {
            format!("{what} reaches the store: {}", describe_lease(after))
        }
        _ => format!("{what}, arrives: {}", describe_holders(after)),
    }
}

fn describe_lease(state: &ModelState) -> String {
    match state.live_lease() {
        Some(lease) => format!(
            "leased to {} with fence {} until {} (its clock: {})",
            token_label(lease.token),
            lease.grant.fence,
            lease.expires,
            state.store_clock()
        ),
        None => "the name is free".to_owned(),
    }
}

fn describe_holders(state: &ModelState) -> String {
    let holding: Vec<_> = (0..MAX_CLIENTS)
        .filter_map(|who| match (state.clients.get(who)?.phase, state.token_of(who)?) {
            (ClientPhase::Holding { deadline, .. }, token) => Some(format!(
                "{} holds until {deadline} (its clock: {})",
                token_label(token),
                state.clock(who)
            )),
            _ => None,
        })
        .collect();
    if holding.is_empty() { "no client holds".to_owned() } else { holding.join(", ") }
}

fn describe_tick(after: &ModelState, forget: bool) -> String {
    let clocks: Vec<_> = (0..after.client_count())
        .filter(|&who| after.clients.get(who).is_some_and(|client| client.phase.is_timed()))
        .filter_map(|who| Some(format!("{} {}", client_label(after.token_of(who)?.client), after.clock(who))))
        .collect();
    let forgot = if forget { "; the store has forgotten" } else { "" };
    format!(
        "time passes; clocks: store {} {}{forgot}; {}",
        after.store_clock(),
        clocks.join(" "),
        describe_lease(after)
    )
}
