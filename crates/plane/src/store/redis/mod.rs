//! The plane on Redis or Valkey: one Lua script, so that each step is atomic.
//!
//! All keys begin with `{plane}:` and so share one hash slot of a cluster. Due times and ages use the
//! server's clock. Durability depends on the server's configuration: with `appendonly yes`, acknowledged
//! jobs survive a crash within the limits of `appendfsync`.

mod response;

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::StoreError;
use leasehold_fence::redis::FRAGMENT;
use leasehold_redis::{LuaScript, RedisOptions, ScriptClient};
use redis::Value;
use response::NEVER_DUE_SCORE;
use serde_json::{Value as Json, json};

use super::{
    Delivery, Disposition, Document, DocumentEvent, DocumentKey, DocumentKind, DocumentPage, DocumentQuery,
    KeySpace, MAX_DELETED_PER_WRITE, Message, PlaneStore, Queue, Revision, WriteRequest, WriteResponse,
};

/// The upper bound for one script call. Callers apply their own timeout too.
const SCRIPT_CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// How many members of one index a page looks at. The server does nothing else meanwhile.
const MAX_SEARCHED_MEMBERS: usize = 4000;

/// The default prefix of all keys. The braces are a cluster hash tag.
pub const KEY_PREFIX: &str = "{plane}:";

/// A plane store on one Redis server.
#[derive(Debug)]
pub struct RedisPlane {
    scripting: ScriptClient,
    script: LuaScript,
    prefix: String,
}

impl RedisPlane {
    /// Creates the store without connecting. A server that is down shows at the first call.
    ///
    /// # Errors
    /// A file named in the options cannot be used.
    pub fn open(options: RedisOptions) -> Result<Self, StoreError> {
        Ok(Self {
            scripting: ScriptClient::open(options)?,
            script: LuaScript::new(format!("{FRAGMENT}{}", include_str!("plane.lua"))),
            prefix: KEY_PREFIX.to_owned(),
        })
    }

    async fn call_script(&self, verb: &str, arguments: Json) -> Result<Value, StoreError> {
        let arguments = arguments.to_string();
        self.scripting.run(&self.script, &[&self.prefix], &[verb, &arguments], SCRIPT_CALL_TIMEOUT).await
    }
}

fn bounded_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis())
        .unwrap_or(i64::MAX)
        // Added to a time of about 2^41 ms inside Lua, so it must stay far below the 2^53 of exact doubles.
        .min(1 << 50)
}

fn key_json(kind: DocumentKind, key: &DocumentKey) -> Json {
    let mut asked = json!({"space": key.space().name(kind), "text": key.text()});
    if let Some(earlier) = key.earlier() {
        asked["earlier"] = json!({
            "space": KeySpace::Unscoped.name(kind),
            "text": earlier.text,
            "scope": earlier.scope,
        });
    }
    asked
}

fn revision_json(entry: &Revision) -> Json {
    let mut asked = json!({
        "kind": entry.kind.as_str(),
        "id": entry.id,
        "state": entry.state,
        "due": entry.due_in.map_or(-1, bounded_millis),
        "shelf": entry.index_key,
        "owner": entry.owner,
        "body": entry.body,
        "event": entry.event,
    });
    // Omitted rather than null: cjson decodes null as a userdata value, which is true in Lua.
    if let Some(key) = &entry.key {
        asked["key"] = key_json(entry.kind, key);
    }
    asked
}

fn message_json(message: &Message) -> Json {
    json!({
        "queue": message.queue.as_str(),
        "id": message.id,
        "to": message.document_id,
        "body": message.body,
        "due": bounded_millis(message.due_in),
    })
}

fn query_json(query: &DocumentQuery) -> Json {
    let mut asked = json!({
        "kind": query.kind.as_str(),
        "states": query.states,
        "due": query.due_only,
        "limit": query.limit,
        "search": MAX_SEARCHED_MEMBERS,
    });
    // Omitted rather than null, as in `revision_json`.
    if let Some(shelf) = &query.index_key {
        asked["shelf"] = json!(shelf);
    }
    if let Some(owner) = &query.owner {
        asked["owner"] = json!(owner);
    }
    if let Some(scope) = &query.scope {
        asked["scope"] = json!({"ids": scope.ids, "index_keys": scope.index_keys});
    }
    if let Some(after) = &query.after {
        asked["after"] = json!({"due": after.due.unwrap_or(NEVER_DUE_SCORE), "id": after.id});
    }
    asked
}

#[async_trait]
impl PlaneStore for RedisPlane {
    async fn read(&self, kind: DocumentKind, id: &str) -> Result<Option<Document>, StoreError> {
        let asked = json!({"kind": kind.as_str(), "id": id});
        match self.call_script("read", asked).await? {
            Value::Nil => Ok(None),
            found => response::parse_document(found).map(Some),
        }
    }

    async fn write(&self, write: &WriteRequest) -> Result<WriteResponse, StoreError> {
        let fence = write.fence.as_ref();
        let mut asked = json!({
            "id": write.id,
            "entry": revision_json(&write.revision),
            "expect": write.expected_version.unwrap_or(0),
            "from": write.allowed_states,
            "fence_name": fence.map_or("", |(name, _)| name.as_str()),
            // Fences are sent as text: a 64-bit number would lose digits as a Lua double.
            "fence": fence.map(|(_, fence)| fence.to_string()).unwrap_or_default(),
            "also": write.new_documents.iter().map(revision_json).collect::<Vec<_>>(),
            "send": write.messages.iter().map(message_json).collect::<Vec<_>>(),
        });
        if write.only_due_time {
            asked["only_due"] = json!(true);
        }
        if let Some(quota) = &write.quota {
            asked["quota"] = json!({"states": quota.states, "limit": quota.limit});
            if let Some(kept) = &quota.kept_ended {
                asked["quota"]["kept_ended"] = json!(kept.limit);
                asked["quota"]["max_deleted"] = json!(MAX_DELETED_PER_WRITE);
            }
        }
        response::parse_write_response(self.call_script("write", asked).await?, write)
    }

    async fn page(&self, asked: &DocumentQuery) -> Result<DocumentPage, StoreError> {
        response::parse_page(self.call_script("page", query_json(asked)).await?)
    }

    async fn count(&self, asked: &DocumentQuery) -> Result<u64, StoreError> {
        response::parse_number(&self.call_script("count", query_json(asked)).await?)
    }

    async fn find_id_by_key(
        &self,
        kind: DocumentKind,
        key: &DocumentKey,
    ) -> Result<Option<String>, StoreError> {
        let asked = json!({"kind": kind.as_str(), "key": key_json(kind, key)});
        match self.call_script("key", asked).await? {
            Value::Nil => Ok(None),
            found => response::parse_text(&found).map(Some),
        }
    }

    async fn history(&self, kind: DocumentKind, id: &str) -> Result<Vec<DocumentEvent>, StoreError> {
        let asked = json!({"kind": kind.as_str(), "id": id});
        response::parse_history(self.call_script("history", asked).await?)
    }

    async fn receive(
        &self,
        queue: Queue,
        limit: usize,
        visible: Duration,
    ) -> Result<Vec<Delivery>, StoreError> {
        let asked = json!({"queue": queue.as_str(), "limit": limit, "visible": bounded_millis(visible)});
        let found = response::parse_list(self.call_script("take", asked).await?)?;
        found.into_iter().map(|message| response::parse_delivery(queue, message)).collect()
    }

    async fn send(&self, letter: &Message) -> Result<bool, StoreError> {
        Ok(response::parse_number(&self.call_script("send", message_json(letter)).await?)? == 1)
    }

    async fn settle(&self, taken: &Delivery, settle: Disposition) -> Result<bool, StoreError> {
        let again = match settle {
            Disposition::Ack => -1,
            Disposition::Redeliver(after) => bounded_millis(after),
        };
        let asked = json!({
            "queue": taken.queue.as_str(),
            "id": taken.id,
            "tries": taken.tries,
            "again": again,
        });
        Ok(response::parse_number(&self.call_script("settle", asked).await?)? == 1)
    }

    async fn purge(
        &self,
        kind: DocumentKind,
        states: &[&'static str],
        keep: Duration,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let asked =
            json!({"kind": kind.as_str(), "states": states, "keep": bounded_millis(keep), "limit": limit});
        response::parse_number(&self.call_script("purge", asked).await?)
    }
}
