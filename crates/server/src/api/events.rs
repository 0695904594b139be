//! `GET /v1/events`: lock and policy events as server-sent events that can be resumed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use leasehold::clock::{Moment, run_until};
use leasehold_wire::Problem;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use crate::api::document::{Caller, QueryParams};
use crate::api::locks::check_prefix;
use crate::api::policies::sees_reasons;
use crate::api::problem::Refusal;
use crate::auth::{Principal, Right};
use crate::state::app::App;
use crate::state::shares::Share;

// A comment line at this interval keeps proxies from closing the stream, and shows both ends that
// the other is alive.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
// Bounds the text that one read of the ring builds.
const MAX_EVENTS_PER_READ: usize = 256;

/// The query of the event stream.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventQuery {
    /// Only events of names that begin with this prefix.
    #[param(max_length = 512)]
    prefix: Option<String>,
}

/// Follow what happens
///
/// Server-sent events of the names that the caller may read. With `Last-Event-ID` the stream
/// continues after that event. If events in between are no longer kept, an event `gap` comes first. Events of
/// policies have no name and come to every caller; who changed a class and why is shown to callers with `read:*`.
#[utoipa::path(
    get, path = "/v1/events", tag = "daemon", operation_id = "followEvents", params(EventQuery),
    responses(
        (status = 200, description = "A stream of events", body = String, content_type = "text/event-stream"),
        (status = 429, description = "Too many follow", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn follow(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    QueryParams(which): QueryParams<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    if app.stopping.is_cancelled() {
        return Err(Refusal::stopping());
    }
    // A stream keeps its connection busy like a waiting request, so it needs a slot too.
    let place = app.take_wait_slot(&who)?;
    let feed = &app.recorder.feed;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let mut first = String::from("retry: 1000\n\n");
    let seq = match last.map(|id| feed.parse_event_id(id)) {
        // A new stream starts with the next event, not with the whole ring.
        None => feed.newest(),
        Some(Ok(seq)) => seq,
        // The id is from before a restart: the events in between are unknown.
        Some(Err(_)) => {
            push_gap_event(&mut first);
            0
        }
    };
    let following = EventSubscriber {
        wakeups: feed.subscribe(),
        app: Arc::clone(&app),
        who,
        prefix: check_prefix(which.prefix)?,
        seq,
        ready: VecDeque::from([first]),
        keepalive_at: app.clock.now() + KEEPALIVE_INTERVAL,
        _slot: place,
    };
    let body = Body::from_stream(stream::unfold(following, EventSubscriber::next));
    let kind = (CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(([kind], body).into_response())
}

/// One client that follows the events.
struct EventSubscriber {
    app: Arc<App>,
    who: Principal,
    prefix: String,
    /// The last event that was read from the ring, sent or filtered out.
    seq: u64,
    wakeups: watch::Receiver<u64>,
    ready: VecDeque<String>,
    /// When a silent stream sends a comment line.
    keepalive_at: Moment,
    _slot: Share,
}

impl EventSubscriber {
    /// The next chunk of the body; ends when the daemon stops. A slow client falls behind in the
    /// ring and costs no memory.
    async fn next(mut self) -> Option<(Result<String, Infallible>, Self)> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some((Ok(piece), self));
            }
            if self.app.stopping.is_cancelled() {
                return None;
            }
            // A revoked token must not see what happened since, and reduced grants count at once.
            self.who = self.app.still_admitted(&self.who)?;
            let (found, missed) = self.app.recorder.feed.after(self.seq, MAX_EVENTS_PER_READ);
            if found.is_empty() {
                let app = Arc::clone(&self.app);
                let wake_at = app.next_access_check().min(self.keepalive_at);
                tokio::select! {
                    () = app.stopping.cancelled() => return None,
                    rung = run_until(&*app.clock, wake_at, self.wakeups.changed()) => match rung {
                        None if app.clock.now() >= self.keepalive_at => {
                            self.keepalive_at = app.clock.now() + KEEPALIVE_INTERVAL;
                            self.ready.push_back(": still here\n\n".to_owned());
                        }
                        None | Some(Ok(())) => {}
                        Some(Err(_)) => return None,
                    },
                }
                continue;
            }
            let sees_reasons = sees_reasons(&self.who);
            let mut text = String::new();
            if missed.is_some() {
                push_gap_event(&mut text);
            }
            for entry in &found {
                self.seq = entry.seq();
                // Rights are checked per event: an event without a name is a policy event, which
                // every caller may read without the reason.
                let seen = entry.name.as_ref().is_none_or(|name| {
                    self.who.covers(Right::Read, name) && name.as_str().starts_with(&self.prefix)
                });
                if seen {
                    let json = entry.json(sees_reasons);
                    let _ = write!(text, "id: {}\nevent: {}\ndata: {json}\n\n", entry.id, entry.label);
                }
            }
            if !text.is_empty() {
                self.keepalive_at = self.app.clock.now() + KEEPALIVE_INTERVAL;
                self.ready.push_back(text);
            }
        }
    }
}

fn push_gap_event(text: &mut String) {
    text.push_str("event: gap\ndata: {\"event\":\"gap\",\"detail\":\"events before this one are gone; list the locks again\"}\n\n");
}
