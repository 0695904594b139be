//! Follows a daemon's server-sent events, with resumption after a broken connection.

use std::fmt;

use http::header::{ACCEPT, HeaderName};
use http::{HeaderValue, Method};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use leasehold_core::store::{StoreError, StoreErrorKind};

use crate::connection::Connections;
use crate::daemon::DaemonClient;
use crate::error;
use crate::store::escape_segment;

/// The header with the id of the last event received.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
// No daemon sends a larger event; the limit keeps a faulty peer from filling memory.
const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// One event of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServerEvent {
    /// The event's id, for resuming after it; empty if it has none.
    pub id: String,
    /// The kind of event: `acquired`, `released`, `gap`, …
    pub event: String,
    /// The event as JSON.
    pub data: String,
}

/// An open stream of events.
pub struct EventStream {
    body: Incoming,
    parser: EventParser,
    /// hyper closes the connection when its sender is dropped.
    _sender: crate::connection::RequestSender,
}

impl DaemonClient {
    /// Follows the events of names that begin with `prefix`, after the event `after` if given.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the request.
    pub async fn follow(&self, prefix: &str, after: Option<&str>) -> Result<EventStream, StoreError> {
        let query =
            if prefix.is_empty() { String::new() } else { format!("?prefix={}", escape_segment(prefix)) };
        let connections: &Connections = self.connections();
        let mut request = connections.request(Method::GET, &format!("/v1/events{query}"), Bytes::new())?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(after) = after {
            let value =
                HeaderValue::from_str(after).map_err(|_| error::malformed_response("an event's id"))?;
            headers.insert(LAST_EVENT_ID, value);
        }
        // A stream occupies its connection for as long as it lasts, so it does not use a pooled
        // one.
        let mut sender = connections.connect().await?;
        // Following changes nothing, so its failures are never *unknown*.
        let response = sender.http.send_request(request).await.map_err(|err| {
            StoreError::not_done(StoreErrorKind::Unreachable, "the connection ended before the answer")
                .with_source(err)
        })?;
        if response.status() != http::StatusCode::OK {
            let answer = connections.read(sender, response).await?;
            return Err(error::mark_read_only(error::error_from_response(&answer)));
        }
        Ok(EventStream { body: response.into_body(), parser: EventParser::default(), _sender: sender })
    }
}

impl EventStream {
    /// The next event; `None` when the daemon has ended the stream.
    ///
    /// # Errors
    /// The connection broke. Follow again after the last event received.
    pub async fn next(&mut self) -> Result<Option<ServerEvent>, StoreError> {
        loop {
            if let Some(event) = self.parser.next_event() {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(err)) => {
                    let why = "the stream of events was cut off";
                    return Err(StoreError::not_done(StoreErrorKind::Unreachable, why).with_source(err));
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.parser.push(&data)?;
                    }
                }
            }
        }
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}

/// Bytes received that are not yet an event. An empty line ends an event; a line that begins with
/// `:` is a keepalive comment.
#[derive(Debug, Default)]
struct EventParser {
    pending: Vec<u8>,
}

impl EventParser {
    fn push(&mut self, data: &[u8]) -> Result<(), StoreError> {
        if self.pending.len() + data.len() > MAX_EVENT_BYTES {
            return Err(error::mark_read_only(error::malformed_response("events")));
        }
        // Lines may end with CRLF; without the CR the separator is always an empty line.
        self.pending.extend(data.iter().filter(|byte| **byte != b'\r'));
        Ok(())
    }

    fn next_event(&mut self) -> Option<ServerEvent> {
        loop {
            let end = self.pending.windows(2).position(|pair| pair == b"\n\n")?;
            let block: Vec<u8> = self.pending.drain(..end + 2).collect();
            let mut event = ServerEvent::default();
            for line in String::from_utf8_lossy(&block).lines() {
                let (field, value) = line.split_once(':').unwrap_or((line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                match field {
                    "id" => event.id = value.to_owned(),
                    "event" => event.event = value.to_owned(),
                    "data" => event.data.push_str(value),
                    _ => {}
                }
            }
            // A block without data is a comment or a retry hint, not an event.
            if !event.data.is_empty() {
                return Some(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed_whatever_the_chunk_size() {
        let text = "retry: 1000\n\n: still here\n\nid: a-1\nevent: acquired\ndata: {\"x\":1}\n\nevent: gap\r\ndata: {}\r\n\r\n";
        for size in [1, 2, 7, text.len()] {
            let mut lines = EventParser::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                lines.push(piece).unwrap();
                found.extend(std::iter::from_fn(|| lines.next_event()));
            }
            let seen: Vec<_> =
                found.iter().map(|e| (e.id.as_str(), e.event.as_str(), e.data.as_str())).collect();
            assert_eq!(seen, [("a-1", "acquired", "{\"x\":1}"), ("", "gap", "{}")], "cut to {size}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut lines = EventParser::default();
        let piece = vec![b'x'; MAX_EVENT_BYTES];
        lines.push(&piece).unwrap();
        assert!(lines.push(b"x").is_err());
    }
}
