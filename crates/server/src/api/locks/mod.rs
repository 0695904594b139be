//! Client-kept locks: each route is one call to the store, with the client's own token.

mod acquire;
mod break_lease;
mod inspect;
mod release;
mod renew;
mod wait;

pub(crate) use acquire::*;
pub(crate) use break_lease::*;
pub(crate) use inspect::*;
pub(crate) use release::*;
pub(crate) use renew::*;
pub(crate) use wait::*;

use std::time::Duration;

use leasehold_core::Token;
use leasehold_wire::Secret;

use crate::api::problem::Refusal;

// The store timeout if the caller names none.
pub(crate) const DEFAULT_STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Parses a token. The error does not repeat it.
pub(crate) fn parse_token(text: &Secret) -> Result<Token, Refusal> {
    Ok(Token::parse(text.expose())?)
}

/// The store timeout that the caller asks for, or the default.
pub(crate) fn parse_store_timeout(millis: Option<u64>) -> Result<Duration, Refusal> {
    parse_duration("within_ms", millis, 1, 60_000).map(|within| within.unwrap_or(DEFAULT_STORE_TIMEOUT))
}

/// Checks a number of milliseconds against bounds.
pub(crate) fn parse_duration(
    field: &str,
    millis: Option<u64>,
    least: u64,
    most: u64,
) -> Result<Option<Duration>, Refusal> {
    match millis {
        Some(millis) if !(least..=most).contains(&millis) => {
            Err(Refusal::invalid(field, format!("{field} {millis}: must be from {least} to {most}")))
        }
        other => Ok(other.map(Duration::from_millis)),
    }
}

/// Checks a TTL.
pub(crate) fn parse_ttl(millis: u64) -> Result<leasehold::Ttl, Refusal> {
    leasehold::Ttl::new(Duration::from_millis(millis))
        .map_err(|invalid| Refusal::invalid("ttl_ms", format!("ttl_ms {millis}: {}", invalid.allowed)))
}
