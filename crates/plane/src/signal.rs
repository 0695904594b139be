//! Wishes about a job whose lock someone else holds: written down beside it, granted by its owner.
//!
//! A replica holds the lock of the job it works on, so nobody else can cancel it meanwhile. Who wants to leaves a
//! signal; the owner sees it within one poll, stops the work and writes CANCELLED itself.

use leasehold_core::Hold;
use serde_json::{Value, json};

use crate::error::PlaneError;
use crate::ledger::Ledger;
use crate::store::{Doc, Entry, Kind, Query, Refusal, Write, Written};

const OPEN: &str = "OPEN";
const DONE: &str = "DONE";

impl Ledger {
    /// Leaves the wish that a job be called off. Said twice, it counts once.
    pub(crate) async fn wish_off(&self, job: &str, why: &str) -> Result<(), PlaneError> {
        let write = Write {
            id: self.fresh_id(),
            entry: entry(job, OPEN, why),
            expect: None,
            from: Vec::new(),
            fence: None,
            also: Vec::new(),
            send: Vec::new(),
        };
        match self.call(self.store.write(&write)).await? {
            Written::Done { .. } | Written::Refused(Refusal::Exists) => Ok(()),
            Written::Refused(refusal) => Err(refusal.into()),
        }
    }

    /// Does anyone want the job to be called off? Answers why.
    pub(crate) async fn wished_off(&self, job: &str) -> Result<Option<String>, PlaneError> {
        let doc = self.call(self.store.read(Kind::Signal, job)).await?;
        Ok(doc.filter(|doc| doc.state == OPEN).map(|doc| reason(&doc)))
    }

    /// Wishes that nobody has granted yet.
    pub(crate) async fn open_wishes(&self, limit: usize) -> Result<Vec<Doc>, PlaneError> {
        let query = Query {
            kind: Kind::Signal,
            states: vec![OPEN],
            due: false,
            shelf: None,
            limit,
        };
        Ok(self.call(self.store.list(&query)).await?)
    }

    /// The wish is granted, or beside the point: the job has ended.
    pub(crate) async fn close_wish(&self, hold: &Hold, doc: &Doc) -> Result<(), PlaneError> {
        let write = Write {
            id: self.fresh_id(),
            entry: entry(&doc.id, DONE, &reason(doc)),
            expect: Some(doc.version),
            from: vec![OPEN],
            fence: None,
            also: Vec::new(),
            send: Vec::new(),
        };
        match self.commit(hold, write).await {
            Ok(_) | Err(PlaneError::Refused(Refusal::Version { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The wish that a job be called off, to be written together with something else.
pub(crate) fn wish(job: &str, why: &str) -> Entry {
    entry(job, OPEN, why)
}

fn entry(job: &str, state: &'static str, why: &str) -> Entry {
    Entry {
        kind: Kind::Signal,
        id: job.to_owned(),
        state,
        due_in: None,
        shelf: String::new(),
        key: None,
        body: json!({"cancel": why}).to_string(),
        event: json!({"to": state}).to_string(),
    }
}

fn reason(doc: &Doc) -> String {
    let body: Value = serde_json::from_str(&doc.body).unwrap_or_default();
    body["cancel"].as_str().unwrap_or("called off").to_owned()
}
