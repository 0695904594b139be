//! Client-kept locks: each route is one question to the store, with the client's own token.

mod acquire;
mod breaking;
mod inspect;
mod leaving;
mod release;
mod renew;
mod wait;

pub(crate) use acquire::*;
pub(crate) use breaking::*;
pub(crate) use inspect::*;
pub(crate) use leaving::Leavings;
pub(crate) use release::*;
pub(crate) use renew::*;
pub(crate) use wait::*;

use std::time::Duration;

use leasehold::leasehold_core::Token;
use leasehold_http::wire::Secret;

use crate::problem::Refusal;

/// How long the store may take if the caller does not say.
pub(crate) const WITHIN: Duration = Duration::from_secs(5);

/// A token from the wire. The message does not repeat it.
pub(crate) fn token(text: &Secret) -> Result<Token, Refusal> {
    Ok(Token::parse(text.expose())?)
}

/// How long the store may take.
pub(crate) fn within(millis: Option<u64>) -> Result<Duration, Refusal> {
    duration("within_ms", millis, 1, 60_000).map(|within| within.unwrap_or(WITHIN))
}

/// Milliseconds within bounds.
pub(crate) fn duration(
    field: &str,
    millis: Option<u64>,
    least: u64,
    most: u64,
) -> Result<Option<Duration>, Refusal> {
    match millis {
        Some(millis) if !(least..=most).contains(&millis) => Err(Refusal::invalid(
            field,
            format!("{field} {millis}: must be from {least} to {most}"),
        )),
        other => Ok(other.map(Duration::from_millis)),
    }
}

/// A time to live.
pub(crate) fn ttl(millis: u64) -> Result<leasehold::Ttl, Refusal> {
    leasehold::Ttl::new(Duration::from_millis(millis))
        .map_err(|invalid| Refusal::invalid("ttl_ms", format!("ttl_ms {millis}: {}", invalid.allowed)))
}
