//! Release by the owner, leaving the queue, and break by an operator.

use std::time::Duration;

use leasehold_core::store::{ReleaseAuthority, ReleaseRequest, ReleaseResponse, StoreError, StoreErrorKind};

use crate::connection::Connections;
use crate::error;
use crate::store::{CAPABILITIES, lock_path};
use crate::wire::{Break, ErrorCode, Release, Secret, millis};

pub(crate) async fn release(
    connections: &Connections,
    request: &ReleaseRequest,
    within: Duration,
) -> Result<ReleaseResponse, StoreError> {
    CAPABILITIES.check_names(&request.names)?;
    let name = request.names.first();
    let answer = match &request.authority {
        ReleaseAuthority::Owner(token) => {
            let document = Release {
                token: Secret::new(token.expose()),
                // An explicit zero: without the field the daemon would apply its default tombstone.
                tombstone_ms: Some(request.tombstone.map_or(0, millis)),
                within_ms: Some(millis(within).max(1)),
                place_only: false,
            };
            connections.post(&lock_path(name, "/release"), &document).await?
        }
        ReleaseAuthority::Waiter(token) => {
            let document = Release {
                token: Secret::new(token.expose()),
                tombstone_ms: None,
                within_ms: Some(millis(within).max(1)),
                place_only: true,
            };
            connections.post(&lock_path(name, "/release"), &document).await?
        }
        // The store trait has no reason for a break; the client's own log and events have it.
        ReleaseAuthority::Operator(fence) => {
            let document = Break {
                reason: "broken by a client of the store".to_owned(),
                fence: Some(*fence),
                // The decision was made on the client's side, so the daemon must neither ask nor
                // wait.
                force: true,
                alive: None,
                wait_ms: Some(0),
            };
            connections.post(&lock_path(name, "/break"), &document).await?
        }
        _ => {
            return Err(StoreError::not_done(
                StoreErrorKind::Unsupported,
                "this claim is newer than the wire",
            ));
        }
    };
    if answer.status == 200 {
        return Ok(match request.authority {
            // Leaving the queue releases nothing, and the store trait calls that *not owned*.
            ReleaseAuthority::Waiter(_) => ReleaseResponse::NotOwned,
            _ => ReleaseResponse::Released,
        });
    }
    match answer.error_code() {
        Some(ErrorCode::NotOwned | ErrorCode::StaleFence) => Ok(ReleaseResponse::NotOwned),
        _ => Err(error::error_from_response(&answer)),
    }
}
