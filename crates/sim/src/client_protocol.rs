//! How a client of the daemon acquires, renews and releases, and what the responses mean for it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::policy::Class;
use leasehold_core::{Fence, Name};
use leasehold_drill::history::RecordedOutcome;
use leasehold_http::DaemonResult;
use leasehold_http::wire::ErrorCode;

use super::drift::Nanos;
use super::http_client::SimHttpClient;

/// A hold, as its client knows it.
pub(super) struct HttpHold {
    pub(super) attempt: u64,
    // The daemon's key for it: the hold's id, or the lease's token.
    pub(super) key: String,
    pub(super) name: Name,
    pub(super) fence: Option<Fence>,
    // Until here no other client can be granted the name.
    pub(super) proven: Option<Moment>,
    // Until here the client may work.
    pub(super) deadline: Moment,
}

/// The hold is lost, so the client stops.
pub(super) struct HoldLost;

/// The outcome of one acquire request.
pub(super) enum AcquireReply {
    Granted(RecordedOutcome, HttpHold),
    Refused(RecordedOutcome),
    Unknown,
}

/// How a client acquires, renews and releases.
pub(super) trait ClientProtocol: Sized + Send + Sync + 'static {
    /// Whether the daemon undoes requests that arrive after the client abandoned its hold.
    const UNDOES_LATE_GRANTS: bool;

    /// How much of a confirmed lease the holder may use, by its own clock.
    fn usable_time(client: &SimHttpClient<Self>) -> Duration;

    /// The class in force at `since` and all later versions, the newest last.
    fn class_versions(client: &SimHttpClient<Self>, since: Nanos) -> Vec<Arc<Class>>;

    /// Whether the class works without a lease when the store is unavailable.
    fn fail_open(class: &Class) -> bool;

    /// Whether the class works on after its lease is no longer proven.
    fn continues(class: &Class) -> bool;

    /// Sends one acquire request; retries use the same id.
    fn acquire(
        client: &SimHttpClient<Self>,
        attempt: u64,
        id: &str,
        name: &Name,
        by: Moment,
    ) -> impl Future<Output = AcquireReply> + Send;

    /// Gives up an acquire whose outcome is unknown.
    fn cancel(client: &SimHttpClient<Self>, id: &str) -> impl Future<Output = ()> + Send;

    /// Renews the hold; `false` if the outcome is unknown.
    fn renew(
        client: &SimHttpClient<Self>,
        held: &mut HttpHold,
    ) -> impl Future<Output = Result<bool, HoldLost>> + Send;

    /// Releases once; `true` if the hold still existed, `None` if the outcome is unknown.
    fn release(client: &SimHttpClient<Self>, held: &HttpHold) -> impl Future<Output = Option<bool>> + Send;
}

/// Splits a response into its value and the outcome of a refusal or a lost response.
pub(super) fn parse_reply<T>(reply: Option<DaemonResult<T>>) -> Result<T, AcquireReply> {
    let problem = match reply {
        Some(Ok(Ok(message))) => return Ok(message),
        Some(Ok(Err(problem))) => problem,
        // Definitely not sent: the same as if the caller had cancelled.
        Some(Err(failure)) if !failure.unknown => {
            return Err(AcquireReply::Refused(RecordedOutcome::Cancelled));
        }
        _ => return Err(AcquireReply::Unknown),
    };
    Err(match problem.error_code() {
        Some(ErrorCode::Busy) => AcquireReply::Refused(RecordedOutcome::Busy),
        Some(ErrorCode::Unavailable) if problem.unknown == Some(true) => AcquireReply::Unknown,
        Some(ErrorCode::Unavailable) => AcquireReply::Refused(RecordedOutcome::Unavailable),
        Some(ErrorCode::InProgress | ErrorCode::Internal) => AcquireReply::Unknown,
        _ => AcquireReply::Refused(RecordedOutcome::Cancelled),
    })
}

#[cfg(test)]
mod tests {
    use leasehold_http::wire::Problem;

    use super::*;

    /// Whether the answer was right is the oracle's decision: in a fail-open class it is wrong.
    #[test]
    fn an_unavailable_lock_is_reported_so_in_every_class() {
        let problem = Problem { code: ErrorCode::Unavailable.as_str().to_owned(), ..Problem::default() };
        let outcome = parse_reply::<()>(Some(Ok(Err(Box::new(problem)))));
        assert!(matches!(outcome, Err(AcquireReply::Refused(RecordedOutcome::Unavailable))));
    }
}
