//! Giving back, by its owner or by an operator.

use std::time::Duration;

use leasehold_core::store::{Cause, Claim, Failure, Given, Giving};

use crate::connection::Connections;
use crate::error;
use crate::store::route;
use crate::wire::{Break, Release, Secret, millis};

pub(crate) async fn release(
    connections: &Connections,
    giving: &Giving,
    within: Duration,
) -> Result<Given, Failure> {
    let answer = match &giving.claim {
        Claim::Owner(token) => {
            let document = Release {
                token: Secret::new(token.expose()),
                tombstone_ms: Some(giving.tombstone.map_or(0, millis)),
                within_ms: Some(millis(within).max(1)),
                place_only: false,
            };
            connections
                .post(&route(&giving.name, "/release"), &document)
                .await?
        }
        Claim::Place(token) => {
            let document = Release {
                token: Secret::new(token.expose()),
                tombstone_ms: None,
                within_ms: Some(millis(within).max(1)),
                place_only: true,
            };
            connections
                .post(&route(&giving.name, "/release"), &document)
                .await?
        }
        // The store's verb has no reason; the client's own log and events have it.
        Claim::Seen(fence) => {
            let document = Break {
                reason: "broken by a client of the store".to_owned(),
                fence: Some(*fence),
                force: true,
                alive: None,
                wait_ms: Some(0),
            };
            connections
                .post(&route(&giving.name, "/break"), &document)
                .await?
        }
        _ => {
            return Err(Failure::not_done(
                Cause::Unsupported,
                "this claim is newer than the wire",
            ));
        }
    };
    if answer.status == 200 {
        return Ok(match giving.claim {
            Claim::Place(_) => Given::NotOwned,
            _ => Given::Released,
        });
    }
    match (answer.status, answer.code().as_deref()) {
        (410, Some("not_owned")) | (412, Some("stale_fence")) => Ok(Given::NotOwned),
        _ => Err(error::refused(&answer)),
    }
}
