//! `GET /v1/events`: what happens, as it happens, as server-sent events that can be resumed.

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
use leasehold::clock::until;
use leasehold_http::wire::Problem;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::{Principal, Role};
use crate::document::{Asked, Caller};
use crate::locks::beginning;
use crate::places::Place;
use crate::problem::Refusal;

/// How often something is said even if nothing happens: so that both ends know the other is there.
const QUIET: Duration = Duration::from_secs(15);
/// How many events are looked at in one go.
const BATCH: usize = 256;

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Only of names that begin with this.
    #[param(max_length = 512)]
    prefix: Option<String>,
}

/// Follow what happens
///
/// Server-sent events of the names the caller may see. With `Last-Event-ID` the stream goes on behind that event; if some
/// are gone by then, an event `gap` says so first.
#[utoipa::path(
    get, path = "/v1/events", tag = "daemon", operation_id = "followEvents", params(Which),
    responses(
        (status = 200, description = "A stream of events", body = String, content_type = "text/event-stream"),
        (status = 429, description = "Too many follow", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn follow(
    State(app): State<Arc<App>>,
    Caller(who): Caller,
    Asked(which): Asked<Which>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    if app.stopping.is_cancelled() {
        return Err(Refusal::stopping());
    }
    let place = app.wait(&who)?;
    let feed = &app.recorder.feed;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let mut first = String::from("retry: 1000\n\n");
    let seq = match last.map(|id| feed.seq(id)) {
        None => feed.newest(),
        Some(Ok(seq)) => seq,
        // Of another life of the daemon: everything in between is unknown.
        Some(Err(_)) => {
            gap(&mut first);
            0
        }
    };
    let following = Following {
        bell: feed.follow(),
        app: Arc::clone(&app),
        who,
        prefix: beginning(which.prefix)?,
        seq,
        ready: VecDeque::from([first]),
        _place: place,
    };
    let body = Body::from_stream(stream::unfold(following, Following::next));
    let kind = (CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(([kind], body).into_response())
}

/// One reader.
struct Following {
    app: Arc<App>,
    who: Principal,
    prefix: String,
    /// The last event that was looked at.
    seq: u64,
    bell: watch::Receiver<u64>,
    ready: VecDeque<String>,
    _place: Place,
}

impl Following {
    /// The next piece; ends when the daemon stops. A reader that is slow is behind in the ring, and costs no memory.
    async fn next(mut self) -> Option<(Result<String, Infallible>, Self)> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some((Ok(piece), self));
            }
            if self.app.stopping.is_cancelled() {
                return None;
            }
            let (found, missed) = self.app.recorder.feed.after(self.seq, BATCH);
            if found.is_empty() {
                let quiet = self.app.clock.now() + QUIET;
                let app = Arc::clone(&self.app);
                tokio::select! {
                    () = app.stopping.cancelled() => return None,
                    rung = until(&*app.clock, quiet, self.bell.changed()) => match rung {
                        None => self.ready.push_back(": still here\n\n".to_owned()),
                        Some(Ok(())) => {}
                        Some(Err(_)) => return None,
                    },
                }
                continue;
            }
            let mut text = String::new();
            if missed.is_some() {
                gap(&mut text);
            }
            for entry in &found {
                self.seq = entry.seq();
                let seen = entry.name.as_ref().is_none_or(|name| {
                    self.who.covers(Role::Read, name) && name.as_str().starts_with(&self.prefix)
                });
                if seen {
                    let _ = write!(
                        text,
                        "id: {}\nevent: {}\ndata: {}\n\n",
                        entry.id, entry.label, entry.json
                    );
                }
            }
            if !text.is_empty() {
                self.ready.push_back(text);
            }
        }
    }
}

fn gap(text: &mut String) {
    text.push_str("event: gap\ndata: {\"event\":\"gap\",\"detail\":\"events before this one are gone; look at the locks anew\"}\n\n");
}
