//! What a daemon tells, one line per event: `leasehold watch --events`, and the lower half of `top`.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use leasehold::StoreUrl;
use leasehold::clock::{BootClock, Clock, ClockExt, Moment, until};
use leasehold::http::{Daemon, Events, HttpOptions, ServerEvent};
use leasehold::store::Failure;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::args::Place;
use crate::desk::Desk;
use crate::say::say;
use crate::watch::{Lines, WatchArgs};

/// Between two attempts to follow again.
const PAUSE: Duration = Duration::from_millis(500);
/// How long one of them may take: a machine that is gone does not refuse.
const ANSWER: Duration = Duration::from_secs(5);

/// One event, as a daemon tells it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Told {
    /// To go on behind it.
    pub(crate) id: String,
    /// When, by the daemon's wall clock.
    pub(crate) at: String,
    /// What.
    pub(crate) event: String,
    /// Of which lock, if of one.
    pub(crate) name: Option<String>,
    /// Of which class.
    pub(crate) class: String,
    /// Who.
    pub(crate) holder: String,
    /// With which fence.
    pub(crate) fence: Option<String>,
    /// More of it.
    pub(crate) detail: Value,
}

impl Told {
    /// The rest of a line for people: who, which grant, and the numbers.
    pub(crate) fn summary(&self) -> String {
        let mut parts = vec![self.holder.clone()];
        parts.extend(self.fence.iter().map(|fence| format!("fence {fence}")));
        let plain = |value: &Value| match value {
            Value::String(text) => text.clone(),
            // A share of something: two digits are all that an eye can use.
            Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or_default()),
            other => other.to_string(),
        };
        let detail = self.detail.as_object().cloned().unwrap_or_else(Map::new);
        parts.extend(
            detail
                .iter()
                .map(|(key, value)| format!("{key}={}", plain(value))),
        );
        parts.retain(|part| !part.is_empty());
        parts.join(" ")
    }
}

/// What one who follows a daemon hears.
pub(crate) enum News {
    /// Something happened.
    Told(Told),
    /// Nothing will be heard until it is back; this is why.
    Cut(String),
    /// It is.
    Back,
}

/// A stream of events that goes on by itself behind the last one when it was cut off.
pub(crate) struct Follower {
    daemon: Daemon,
    prefix: String,
    /// The last one that came.
    last: Option<String>,
    stream: Option<Events>,
}

impl Follower {
    /// Of this daemon; `None` if the store is not one.
    pub(crate) fn of(url: &StoreUrl, prefix: &str) -> Result<Option<Self>, Failure> {
        let StoreUrl::Http { url } = url else {
            return Ok(None);
        };
        Ok(Some(Self {
            daemon: Daemon::open(HttpOptions::parse(url)?)?,
            prefix: prefix.to_owned(),
            last: None,
            stream: None,
        }))
    }

    /// Begins to follow; later ones are behind this moment.
    pub(crate) async fn begin(&mut self) -> Result<(), Failure> {
        self.stream = Some(self.daemon.follow(&self.prefix, self.last.as_deref()).await?);
        Ok(())
    }

    /// What comes next, however often the connection has to be made anew.
    pub(crate) async fn next(&mut self) -> News {
        loop {
            if let Some(stream) = &mut self.stream {
                let why = match stream.next().await {
                    Ok(Some(event)) => {
                        if !event.id.is_empty() {
                            self.last = Some(event.id.clone());
                        }
                        return News::Told(told(&event));
                    }
                    Ok(None) => "it ended the stream".to_owned(),
                    Err(failure) => failure.message().to_owned(),
                };
                self.stream = None;
                return News::Cut(why);
            }
            BootClock.sleep(PAUSE).await;
            // A daemon that is away comes back, or does not.
            let end = BootClock.now() + ANSWER;
            if let Some(Ok(())) = until(&BootClock, end, self.begin()).await {
                return News::Back;
            }
        }
    }
}

fn told(event: &ServerEvent) -> Told {
    let mut told: Told = serde_json::from_str(&event.data).unwrap_or_default();
    if told.event.is_empty() {
        told.event.clone_from(&event.event);
    }
    told
}

/// Follows a daemon and prints what it tells.
pub(crate) fn main(place: &Place, args: &WatchArgs) -> anyhow::Result<bool> {
    let desk = Desk::open(place)?;
    let prefix = match args.prefixes.as_slice() {
        [] => "",
        [prefix] => prefix,
        _ => bail!("--events follows one prefix; name one, or none for everything"),
    };
    let Some(mut follower) = Follower::of(&desk.url, prefix)? else {
        bail!(
            "{} is a store, and only a daemon tells events as they happen\n\
             leave --events out, or name a daemon with --store http://HOST:PORT",
            desk.url
        );
    };
    desk.ask(follower.begin())
        .with_context(|| format!("cannot follow {}", desk.url))?;
    // So that a script knows from when on nothing is missed.
    say(&format!("following {}", desk.url));
    let end = args
        .lasting
        .map_or(Moment::FAR, |lasting| BootClock.now() + lasting);
    let mut count = 0;
    loop {
        if args.count.is_some_and(|limit| count >= limit) {
            return Ok(true);
        }
        let Some(news) = desk.wait(until(&BootClock, end, follower.next())) else {
            return Ok(args.count.is_none());
        };
        match news {
            News::Told(told) => {
                print(&told, args.output)?;
                count += 1;
            }
            // Silence must not be taken for calm.
            News::Cut(why) => say(&format!(
                "{} is not heard any more: {why}\nit is followed again as soon as it answers",
                desk.url
            )),
            News::Back => say(&format!("following {} again", desk.url)),
        }
    }
}

fn print(told: &Told, output: Lines) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match output {
        Lines::Jsonl => {
            let mut line = json!(told);
            if let Value::Object(map) = &mut line {
                map.insert("schema_version".into(), 1.into());
            }
            writeln!(out, "{line}")?;
        }
        Lines::Text => {
            let name = told.name.as_deref().unwrap_or("-");
            writeln!(out, "{}  {:14}  {name}  {}", told.at, told.event, told.summary())?;
        }
    }
    Ok(out.flush()?)
}
