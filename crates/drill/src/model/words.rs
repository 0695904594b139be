//! A counterexample in readable words.

use super::client::Begin;
use super::network::Message;
use super::protocol::Action;
use super::state::{CLIENTS, Phase, State, Token};

/// What happens when `action` is taken in `before` and leads to `after`.
#[must_use]
pub fn tell(before: &State, action: &Action, after: &State) -> String {
    match action {
        Action::Begin { who, what } => begin(before, usize::from(*who), what, after),
        Action::Deliver { slot } => arrival(before, *slot, after),
        Action::Repeat { slot } => format!("{} (and will arrive again)", arrival(before, *slot, after)),
        Action::Lose { slot } => format!("lost: {}", message(before, *slot)),
        Action::Tick { forget, .. } => tick(after, *forget),
        Action::Replicate => "the replica catches up with the store".to_owned(),
        Action::StepClock => format!("the store's clock steps to {}", after.store_clock()),
    }
}

fn name(who: u8) -> char {
    char::from(b'A'.saturating_add(who))
}

fn whose(token: Token) -> String {
    format!("{}{}", name(token.client), token.attempt + 1)
}

fn begin(before: &State, who: usize, what: &Begin, after: &State) -> String {
    let token = before.token_of(who).map_or_else(String::new, whose);
    let client = token.chars().next().unwrap_or('?');
    let clock = after.clock(who);
    match what {
        Begin::Ask { .. } => format!("{client} asks for the lease as {token} (its clock: {clock})"),
        Begin::AskAgain => format!("{client} has no answer and asks again as {token} (its clock: {clock})"),
        Begin::GiveUp => format!("{client} gives up {token}, not knowing what became of it"),
        Begin::Renew => format!("{client} sends a renewal for {token} (its clock: {clock})"),
        Begin::Write => match before.clients.get(who).map(|client| client.phase) {
            Some(Phase::Holding { grant, deadline, .. }) => format!(
                "{client} sends a write with fence {} (its clock: {clock}, deadline {deadline})",
                grant.fence
            ),
            _ => format!("{client} sends a write"),
        },
        Begin::Release => format!("{client} releases {token}"),
    }
}

fn message(before: &State, slot: u8) -> String {
    let Some(message) = before.network.get(usize::from(slot)) else {
        return "nothing".to_owned();
    };
    match message {
        Message::Ask { token, sent_at, .. } => format!("the ask of {} sent at {sent_at}", whose(token)),
        Message::Renew { token, sent_at, .. } => format!("the renewal of {} sent at {sent_at}", whose(token)),
        Message::Release {
            token, undo: true, ..
        } => format!("the undo of {}", whose(token)),
        Message::Release { token, .. } => format!("the release of {}", whose(token)),
        Message::Write { grant } => format!("the write with fence {}", grant.fence),
        Message::Granted { token, grant, .. } => {
            format!(
                "the answer to {}: granted with fence {}",
                whose(token),
                grant.fence
            )
        }
        Message::Busy { token, .. } => format!("the answer to {}: busy", whose(token)),
        Message::Renewed { token, .. } => format!("the answer to {}: renewed", whose(token)),
        Message::NotOwned { token, .. } => format!("the answer to {}: not owned", whose(token)),
    }
}

fn arrival(before: &State, slot: u8, after: &State) -> String {
    let what = message(before, slot);
    let Some(message) = before.network.get(usize::from(slot)) else {
        return what;
    };
    match message {
        Message::Write { .. } if after.target == before.target && after.breaches == before.breaches => {
            format!(
                "{what} reaches the target, which has admitted {}",
                after.target.fence
            )
        }
        Message::Write { .. } => format!("{what} reaches the target and is applied"),
        Message::Ask { .. } | Message::Renew { .. } | Message::Release { .. } => {
            format!("{what} reaches the store: {}", lease(after))
        }
        _ => format!("{what}, arrives: {}", holders(after)),
    }
}

fn lease(state: &State) -> String {
    match state.live_lease() {
        Some(lease) => format!(
            "leased to {} with fence {} until {} (its clock: {})",
            whose(lease.token),
            lease.grant.fence,
            lease.expires,
            state.store_clock()
        ),
        None => "the name is free".to_owned(),
    }
}

fn holders(state: &State) -> String {
    let holding: Vec<_> = (0..CLIENTS)
        .filter_map(
            |who| match (state.clients.get(who)?.phase, state.token_of(who)?) {
                (Phase::Holding { deadline, .. }, token) => Some(format!(
                    "{} holds until {deadline} (its clock: {})",
                    whose(token),
                    state.clock(who)
                )),
                _ => None,
            },
        )
        .collect();
    if holding.is_empty() {
        "nobody holds".to_owned()
    } else {
        holding.join(", ")
    }
}

fn tick(after: &State, forget: bool) -> String {
    let clocks: Vec<_> = (0..after.present())
        .filter(|&who| {
            after
                .clients
                .get(who)
                .is_some_and(|client| client.phase.is_timed())
        })
        .filter_map(|who| {
            Some(format!(
                "{} {}",
                name(after.token_of(who)?.client),
                after.clock(who)
            ))
        })
        .collect();
    let forgot = if forget { "; the store has forgotten" } else { "" };
    format!(
        "time passes; clocks: store {} {}{forgot}; {}",
        after.store_clock(),
        clocks.join(" "),
        lease(after)
    )
}
