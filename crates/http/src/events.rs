//! Following what happens in a daemon: server-sent events, resumed where they were cut off.

use std::fmt;

use http::header::{ACCEPT, HeaderName};
use http::{HeaderValue, Method};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use leasehold_core::store::{Cause, Failure};

use crate::connection::Connections;
use crate::daemon::Daemon;
use crate::error;
use crate::store::segment;

/// The header that says behind which event a stream goes on.
const LAST: HeaderName = HeaderName::from_static("last-event-id");
/// A single event larger than this is not one of ours.
const LARGEST: usize = 1024 * 1024;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServerEvent {
    /// To go on behind it; empty if it has none.
    pub id: String,
    /// What it is: `acquired`, `released`, `gap`, …
    pub event: String,
    /// The rest, as JSON.
    pub data: String,
}

/// A stream of events.
pub struct Events {
    body: Incoming,
    lines: Lines,
    /// The connection is open as long as its sender is.
    _sender: crate::connection::Sender,
}

impl Daemon {
    /// Follows what happens to names that begin with `prefix`, behind the event `after` if one is named.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub async fn follow(&self, prefix: &str, after: Option<&str>) -> Result<Events, Failure> {
        let query = if prefix.is_empty() {
            String::new()
        } else {
            format!("?prefix={}", segment(prefix))
        };
        let connections: &Connections = self.connections();
        let mut request = connections.request(Method::GET, &format!("/v1/events{query}"), Bytes::new())?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(after) = after {
            let value = HeaderValue::from_str(after).map_err(|_| error::nonsense("an event's id"))?;
            headers.insert(LAST, value);
        }
        let mut sender = connections.connect().await?;
        let response = sender.send_request(request).await.map_err(|err| {
            Failure::not_done(Cause::Unreachable, "the connection ended before the answer").with_source(err)
        })?;
        if response.status() != http::StatusCode::OK {
            let answer = connections.read(sender, response).await?;
            return Err(error::read_only(error::refused(&answer)));
        }
        Ok(Events {
            body: response.into_body(),
            lines: Lines::default(),
            _sender: sender,
        })
    }
}

impl Events {
    /// The next one; `None` when the daemon has ended the stream.
    ///
    /// # Errors
    /// The connection broke. Follow again, behind the last event that came.
    pub async fn next(&mut self) -> Result<Option<ServerEvent>, Failure> {
        loop {
            if let Some(event) = self.lines.event() {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(err)) => {
                    let why = "the stream of events was cut off";
                    return Err(Failure::not_done(Cause::Unreachable, why).with_source(err));
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.lines.push(&data)?;
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// What has come and is not yet an event. Events are parted by an empty line; a line that begins with `:` is only a sign
/// of life.
#[derive(Debug, Default)]
struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    fn push(&mut self, data: &[u8]) -> Result<(), Failure> {
        if self.pending.len() + data.len() > LARGEST {
            return Err(error::read_only(error::nonsense("events")));
        }
        self.pending.extend(data.iter().filter(|byte| **byte != b'\r'));
        Ok(())
    }

    fn event(&mut self) -> Option<ServerEvent> {
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
    fn events_come_whole_however_they_are_cut() {
        let text = "retry: 1000\n\n: still here\n\nid: a-1\nevent: acquired\ndata: {\"x\":1}\n\nevent: gap\r\ndata: {}\r\n\r\n";
        for size in [1, 2, 7, text.len()] {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                lines.push(piece).unwrap();
                found.extend(std::iter::from_fn(|| lines.event()));
            }
            let seen: Vec<_> = found
                .iter()
                .map(|e| (e.id.as_str(), e.event.as_str(), e.data.as_str()))
                .collect();
            assert_eq!(
                seen,
                [("a-1", "acquired", "{\"x\":1}"), ("", "gap", "{}")],
                "cut to {size}"
            );
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; LARGEST];
        lines.push(&piece).unwrap();
        assert!(lines.push(b"x").is_err());
    }
}
