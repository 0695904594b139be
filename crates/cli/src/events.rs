//! The events of a daemon, one line each: `leasehold watch --events`, and the lower half of `top`.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold::StoreUrl;
use leasehold::clock::{BootClock, Clock, ClockExt, Moment, run_until};
use leasehold::http::{DaemonClient, EventStream, ServerEvent};
use leasehold::store::StoreError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::config::Settings;
use crate::daemon;
use crate::message::print_message;
use crate::session::StoreSession;
use crate::watch::{LineFormat, WatchArgs};

/// Between two attempts to reconnect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
// The limit of one attempt: a host that is gone does not refuse the connection, it stays silent.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One event, as the daemon sends it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonEvent {
    /// Sent back on reconnect, so that the stream continues after this event.
    pub(crate) id: String,
    /// By the daemon's wall clock.
    pub(crate) at: String,
    pub(crate) event: String,
    /// The lock; `None` for events of the whole daemon.
    pub(crate) name: Option<String>,
    pub(crate) class: String,
    pub(crate) holder: String,
    pub(crate) fence: Option<String>,
    /// Fields that only this kind of event has.
    pub(crate) detail: Value,
}

impl DaemonEvent {
    /// The rest of a line for people: holder, fence and details.
    pub(crate) fn summary(&self) -> String {
        let mut parts = vec![self.holder.clone()];
        parts.extend(self.fence.iter().map(|fence| format!("fence {fence}")));
        let plain = |value: &Value| match value {
            Value::String(text) => text.clone(),
            // Floating-point details are ratios; two digits are enough.
            Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or_default()),
            other => other.to_string(),
        };
        let detail = self.detail.as_object().cloned().unwrap_or_else(Map::new);
        parts.extend(detail.iter().map(|(key, value)| format!("{key}={}", plain(value))));
        parts.retain(|part| !part.is_empty());
        parts.join(" ")
    }
}

/// An item of the event stream.
pub(crate) enum StreamItem {
    Event(DaemonEvent),
    /// The connection is lost, with the reason.
    Disconnected(String),
    /// The connection is back.
    Reconnected,
}

/// An event stream that reconnects and continues after the last event it received.
pub(crate) struct EventFollower {
    daemon: DaemonClient,
    prefix: String,
    /// The id of the last event received.
    last_id: Option<String>,
    stream: Option<EventStream>,
}

impl EventFollower {
    /// A follower of this daemon; `None` if the store is not a daemon.
    pub(crate) fn open(url: &StoreUrl, prefix: &str) -> Result<Option<Self>, StoreError> {
        let client = daemon::open_client(url)?;
        Ok(client.map(|daemon| Self { daemon, prefix: prefix.to_owned(), last_id: None, stream: None }))
    }

    /// Opens the stream after the last event received, or from now on.
    pub(crate) async fn connect(&mut self) -> Result<(), StoreError> {
        self.stream = Some(self.daemon.follow(&self.prefix, self.last_id.as_deref()).await?);
        Ok(())
    }

    /// The next item. A lost connection is reported once and then retried without limit.
    pub(crate) async fn next(&mut self) -> StreamItem {
        loop {
            if let Some(stream) = &mut self.stream {
                let why = match stream.next().await {
                    Ok(Some(event)) => {
                        if !event.id.is_empty() {
                            self.last_id = Some(event.id.clone());
                        }
                        return StreamItem::Event(parse_event(&event));
                    }
                    Ok(None) => "it ended the stream".to_owned(),
                    Err(failure) => failure.message().to_owned(),
                };
                self.stream = None;
                return StreamItem::Disconnected(why);
            }
            BootClock.sleep(RECONNECT_PAUSE).await;
            // An attempt that fails or takes too long is simply repeated.
            let end = BootClock.now() + RECONNECT_TIMEOUT;
            if let Some(Ok(())) = run_until(&BootClock, end, self.connect()).await {
                return StreamItem::Reconnected;
            }
        }
    }
}

fn parse_event(event: &ServerEvent) -> DaemonEvent {
    let mut told: DaemonEvent = serde_json::from_str(&event.data).unwrap_or_default();
    if told.event.is_empty() {
        told.event.clone_from(&event.event);
    }
    told
}

/// Follows a daemon and prints its events.
pub(crate) fn main(settings: &Settings, args: &WatchArgs) -> anyhow::Result<bool> {
    let session = StoreSession::open(settings)?;
    let prefix = match args.prefixes.as_slice() {
        [] => "",
        [prefix] => prefix,
        _ => bail!("--events follows one prefix; name one, or none for everything"),
    };
    let Some(mut follower) = EventFollower::open(&session.url, prefix)? else {
        bail!(
            "{} is a store, and only a daemon tells events as they happen\n\
             leave --events out, or name a daemon with --store http://HOST:PORT",
            session.url
        );
    };
    session.call(follower.connect()).with_context(|| format!("cannot follow {}", session.url))?;
    // A script may start its own work after this line without missing an event.
    print_message(&format!("following {}", session.url));
    let end = args.lasting.map_or(Moment::FAR, |lasting| BootClock.now() + lasting);
    let mut count = 0;
    loop {
        if args.count.is_some_and(|limit| count >= limit) {
            return Ok(true);
        }
        let Some(news) = session.block_on(run_until(&BootClock, end, follower.next())) else {
            return Ok(args.count.is_none());
        };
        match news {
            StreamItem::Event(told) => {
                print_event(&told, args.output)?;
                count += 1;
            }
            // Without this line, an outage would look like a quiet daemon.
            StreamItem::Disconnected(why) => print_message(&format!(
                "the event stream of {} broke off: {why}\nreconnecting; events follow as soon as it answers",
                session.url
            )),
            StreamItem::Reconnected => print_message(&format!("following {} again", session.url)),
        }
    }
}

fn print_event(told: &DaemonEvent, output: LineFormat) -> anyhow::Result<()> {
    let mut out = crate::output::stdout();
    match output {
        LineFormat::Jsonl => {
            let mut line = json!(told);
            if let Value::Object(map) = &mut line {
                map.insert("schema_version".into(), 1.into());
            }
            writeln!(out, "{line}")?;
        }
        LineFormat::Text => {
            let name = told.name.as_deref().unwrap_or("-");
            out.write_line(&format!("{}  {:14}  {name}  {}", told.at, told.event, told.summary()))?;
        }
    }
    Ok(out.flush()?)
}
