//! Documents: small records that outlive the boot. Each operation is one step.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Name;
use leasehold_core::store::{
    DocumentList, DocumentOutcome, DocumentQuery, DocumentRead, DocumentWrite, Documents, ExpectedVersion,
    StoreError, WakeListener,
};

use crate::backend::SqliteStore;
use crate::document_rows::{self, DocumentTime};
use crate::error::StepError;
use crate::step::Step;
use crate::wake::WakeSender;
use crate::worker::Priority;

#[async_trait]
impl Documents for SqliteStore {
    async fn read(&self, name: &Name, within: Duration) -> Result<DocumentRead, StoreError> {
        let name = name.clone();
        self.reader
            .run(Priority::High, within, move |session, left| {
                session.read(left, |step| {
                    let now = DocumentTime::of(step)?;
                    Ok(DocumentRead::new(document_rows::find(step, now, &name)?, now.to_wall()))
                })
            })
            .await
    }

    async fn list(&self, query: &DocumentQuery, within: Duration) -> Result<DocumentList, StoreError> {
        query.check()?;
        let query = query.clone();
        self.reader
            .run(Priority::Normal, within, move |session, left| {
                session.read(left, |step| document_rows::list(step, DocumentTime::of(step)?, &query))
            })
            .await
    }

    async fn write(&self, request: &DocumentWrite, within: Duration) -> Result<DocumentOutcome, StoreError> {
        request.check()?;
        let (request, sender) = (request.clone(), Arc::clone(&self.wake_sender));
        // Behind renewals and releases, like an acquire.
        self.writer
            .run(Priority::Normal, within, move |session, left| {
                let outcome = session.write(left, |step| write(step, &request))?;
                notify_followers(&sender, &request.name, &outcome);
                Ok(outcome)
            })
            .await
    }

    async fn delete(
        &self,
        name: &Name,
        expected: ExpectedVersion,
        within: Duration,
    ) -> Result<DocumentOutcome, StoreError> {
        let (name, sender) = (name.clone(), Arc::clone(&self.wake_sender));
        self.writer
            .run(Priority::Normal, within, move |session, left| {
                let outcome = session.write(left, |step| delete(step, &name, expected))?;
                notify_followers(&sender, &name, &outcome);
                Ok(outcome)
            })
            .await
    }

    fn watch(&self, name: &Name) -> WakeListener {
        self.wake_sender.follow(name)
    }
}

/// After the commit: a follower woken earlier would read the old state.
fn notify_followers(sender: &WakeSender, name: &Name, outcome: &DocumentOutcome) {
    if matches!(outcome, DocumentOutcome::Changed(version) if *version > 0) {
        sender.notify_followers(name);
    }
}

fn write(step: &Step<'_>, request: &DocumentWrite) -> Result<DocumentOutcome, StepError> {
    let now = DocumentTime::of(step)?;
    let current = document_rows::find(step, now, &request.name)?;
    if !request.expected.allows(current.as_ref().map(|document| document.version)) {
        return Ok(DocumentOutcome::Conflict(current));
    }
    document_rows::purge(step, now)?;
    let version = document_rows::put(step, now, request)?;
    // Leases end with the boot, documents do not: a power cut must not lose a confirmed change.
    step.require_sync();
    Ok(DocumentOutcome::Changed(version))
}

fn delete(step: &Step<'_>, name: &Name, expected: ExpectedVersion) -> Result<DocumentOutcome, StepError> {
    let current = document_rows::find(step, DocumentTime::of(step)?, name)?;
    let version = current.as_ref().map(|document| document.version);
    if !expected.allows(version) {
        return Ok(DocumentOutcome::Conflict(current));
    }
    if version.is_some() {
        document_rows::remove(step, name)?;
        step.require_sync();
    }
    Ok(DocumentOutcome::Changed(version.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use leasehold_core::clock::Moment;
    use rusqlite::Connection;

    use super::*;
    use crate::schema;

    #[test]
    fn each_change_requires_a_sync() {
        let db = Connection::open_in_memory().unwrap();
        schema::ensure_tables(&db).unwrap();
        document_rows::start_clock(&db, "boot", Moment::ZERO, SystemTime::UNIX_EPOCH).unwrap();
        let name = Name::new("policy").unwrap();
        let run = |work: &dyn Fn(&Step<'_>) -> Result<DocumentOutcome, StepError>| {
            let step = Step::new(&db, Moment::ZERO, SystemTime::UNIX_EPOCH);
            let outcome = work(&step).unwrap();
            (matches!(outcome, DocumentOutcome::Changed(_)), step.is_sync_required())
        };
        let created = DocumentWrite::new(name.clone(), "a").expecting(ExpectedVersion::Absent);
        assert_eq!(run(&|step| write(step, &created)), (true, true));
        assert_eq!(run(&|step| write(step, &created)), (false, false));
        assert_eq!(run(&|step| delete(step, &name, ExpectedVersion::Absent)), (false, false));
        assert_eq!(run(&|step| delete(step, &name, ExpectedVersion::Any)), (true, true));
        assert_eq!(run(&|step| delete(step, &name, ExpectedVersion::Any)), (true, false));
    }
}
