//! The plane on Redis or Valkey: one script, so that each step is one.
//!
//! All keys begin with `{plane}:` and so share a slot of a cluster. Expiry and age go by the server's clock. Lasting as
//! the server's configuration is: with `appendonly yes`, acknowledged jobs survive a crash up to `appendfsync`.

mod answer;

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::Failure;
use leasehold_fence::redis::FRAGMENT;
use leasehold_redis::{Lua, RedisOptions, Scripting};
use redis::Value;
use serde_json::{Value as Json, json};

use super::{Doc, Entry, Event, Kind, Mail, PlaneStore, Query, Queue, Settle, Taken, Write, Written};

/// The longest one step waits for its answer; callers stop sooner.
const CALL: Duration = Duration::from_secs(2);

/// What every key begins with if nothing else is said.
pub const PREFIX: &str = "{plane}:";

/// A plane store on one Redis server.
#[derive(Debug)]
pub struct RedisPlane {
    line: Scripting,
    script: Lua,
    prefix: String,
}

impl RedisPlane {
    /// Makes the store. Connects to nothing yet: a server that is down shows when it is asked.
    ///
    /// # Errors
    /// A file that the options name cannot be used.
    pub fn open(options: RedisOptions) -> Result<Self, Failure> {
        Ok(Self {
            line: Scripting::open(options)?,
            script: Lua::new(format!("{FRAGMENT}{}", include_str!("plane.lua"))),
            prefix: PREFIX.to_owned(),
        })
    }

    async fn ask(&self, verb: &str, arguments: Json) -> Result<Value, Failure> {
        let arguments = arguments.to_string();
        self.line
            .run(&self.script, &[&self.prefix], &[verb, &arguments], CALL)
            .await
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis())
        .unwrap_or(i64::MAX)
        .min(1 << 50)
}

fn entry(entry: &Entry) -> Json {
    json!({
        "kind": entry.kind.word(),
        "id": entry.id,
        "state": entry.state,
        "due": entry.due_in.map_or(-1, millis),
        "shelf": entry.shelf,
        "key": entry.key.as_deref().unwrap_or_default(),
        "body": entry.body,
        "event": entry.event,
    })
}

fn mail(mail: &Mail) -> Json {
    json!({
        "queue": mail.queue.word(),
        "id": mail.id,
        "to": mail.to,
        "body": mail.body,
        "due": millis(mail.due_in),
    })
}

fn query(query: &Query) -> Json {
    let mut asked = json!({
        "kind": query.kind.word(),
        "states": query.states,
        "due": query.due,
        "limit": query.limit,
    });
    // Left out rather than null, which a script would take for something.
    if let Some(shelf) = &query.shelf {
        asked["shelf"] = json!(shelf);
    }
    asked
}

#[async_trait]
impl PlaneStore for RedisPlane {
    async fn read(&self, kind: Kind, id: &str) -> Result<Option<Doc>, Failure> {
        let asked = json!({"kind": kind.word(), "id": id});
        match self.ask("read", asked).await? {
            Value::Nil => Ok(None),
            found => answer::doc(found).map(Some),
        }
    }

    async fn write(&self, write: &Write) -> Result<Written, Failure> {
        let fence = write.fence.as_ref();
        let asked = json!({
            "id": write.id,
            "entry": entry(&write.entry),
            "expect": write.expect.unwrap_or(0),
            "from": write.from,
            "fence_name": fence.map_or("", |(name, _)| name.as_str()),
            "fence": fence.map(|(_, fence)| fence.to_string()).unwrap_or_default(),
            "also": write.also.iter().map(entry).collect::<Vec<_>>(),
            "send": write.send.iter().map(mail).collect::<Vec<_>>(),
        });
        answer::written(self.ask("write", asked).await?, write)
    }

    async fn list(&self, asked: &Query) -> Result<Vec<Doc>, Failure> {
        let found = answer::list(self.ask("list", query(asked)).await?)?;
        found.into_iter().map(answer::doc).collect()
    }

    async fn count(&self, asked: &Query) -> Result<u64, Failure> {
        answer::number(&self.ask("count", query(asked)).await?)
    }

    async fn by_key(&self, kind: Kind, key: &str) -> Result<Option<String>, Failure> {
        match self.ask("key", json!({"kind": kind.word(), "key": key})).await? {
            Value::Nil => Ok(None),
            found => answer::text(&found).map(Some),
        }
    }

    async fn history(&self, kind: Kind, id: &str) -> Result<Vec<Event>, Failure> {
        let asked = json!({"kind": kind.word(), "id": id});
        let found = answer::list(self.ask("history", asked).await?)?;
        (1..)
            .zip(found)
            .map(|(version, event)| answer::event(version, &event))
            .collect()
    }

    async fn take(&self, queue: Queue, limit: usize, visible: Duration) -> Result<Vec<Taken>, Failure> {
        let asked = json!({"queue": queue.word(), "limit": limit, "visible": millis(visible)});
        let found = answer::list(self.ask("take", asked).await?)?;
        found.into_iter().map(|mail| answer::taken(queue, mail)).collect()
    }

    async fn send(&self, letter: &Mail) -> Result<bool, Failure> {
        Ok(answer::number(&self.ask("send", mail(letter)).await?)? == 1)
    }

    async fn settle(&self, taken: &Taken, settle: Settle) -> Result<bool, Failure> {
        let again = match settle {
            Settle::Ack => -1,
            Settle::Again(after) => millis(after),
        };
        let asked = json!({
            "queue": taken.queue.word(),
            "id": taken.id,
            "tries": taken.tries,
            "again": again,
        });
        Ok(answer::number(&self.ask("settle", asked).await?)? == 1)
    }

    async fn purge(
        &self,
        kind: Kind,
        states: &[&'static str],
        keep: Duration,
        limit: usize,
    ) -> Result<u64, Failure> {
        let asked = json!({"kind": kind.word(), "states": states, "keep": millis(keep), "limit": limit});
        answer::number(&self.ask("purge", asked).await?)
    }
}
