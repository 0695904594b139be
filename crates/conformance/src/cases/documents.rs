//! Documents: compare-and-set, expiry, listing and wake-ups.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use leasehold_core::Name;
use leasehold_core::store::{
    Document, DocumentOutcome, DocumentQuery, DocumentWrite, Documents, ExpectedVersion, MAX_DOCUMENT_BYTES,
    MAX_DOCUMENT_TTL, MAX_DOCUMENTS_LISTED, SharedStore, StoreErrorKind,
};

use crate::case::CaseResult;
use crate::client::{CALL_TIMEOUT, TestClient, expiry_slack, long_ttl};
use crate::fixture::Fixture;

/// How long a notification may take to arrive.
const WAKE_TIMEOUT: Duration = Duration::from_secs(10);

fn documents_of(store: &SharedStore) -> anyhow::Result<&dyn Documents> {
    store.documents().context("the store says that it has documents, and `documents` returns none")
}

fn name(text: &str) -> anyhow::Result<Name> {
    Ok(Name::new(text)?)
}

async fn read(store: &SharedStore, at: &str) -> anyhow::Result<Option<Document>> {
    Ok(documents_of(store)?.read(&name(at)?, CALL_TIMEOUT).await?.document)
}

async fn write(store: &SharedStore, request: DocumentWrite) -> anyhow::Result<u64> {
    match documents_of(store)?.write(&request, CALL_TIMEOUT).await? {
        DocumentOutcome::Changed(version) => Ok(version),
        conflict => bail!("{request:?} was answered with {conflict:?}"),
    }
}

async fn put(store: &SharedStore, at: &str, value: &str) -> anyhow::Result<u64> {
    write(store, DocumentWrite::new(name(at)?, value)).await
}

async fn delete(store: &SharedStore, at: &str, expected: ExpectedVersion) -> anyhow::Result<DocumentOutcome> {
    Ok(documents_of(store)?.delete(&name(at)?, expected, CALL_TIMEOUT).await?)
}

async fn list(store: &SharedStore, query: &DocumentQuery) -> anyhow::Result<(Vec<String>, bool)> {
    let page = documents_of(store)?.list(query, CALL_TIMEOUT).await?;
    Ok((page.documents.iter().map(|document| document.name.to_string()).collect(), page.truncated))
}

/// A store has documents exactly if its capabilities say so.
pub async fn the_capability_is_true(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (declared, has) = (store.capabilities().documents, store.documents().is_some());
    ensure!(declared == has, "the capabilities say documents: {declared}; the store has them: {has}");
    Ok(())
}

/// A read returns exactly what was written last, also through another handle.
pub async fn a_read_returns_the_last_write(fixture: &dyn Fixture) -> CaseResult {
    let (writer, reader) = (fixture.open().await?, fixture.open().await?);
    ensure!(read(&reader, "policy").await?.is_none(), "a document that was never written exists");
    let longest = "ü".repeat(MAX_DOCUMENT_BYTES / 2);
    let values = ["", "{\"a\": [1, null]}", "'; DROP TABLE documents; --", "line\nline\u{0}end", &longest];
    for value in values {
        let version = put(&writer, "policy", value).await?;
        let found = read(&reader, "policy").await?.context("a written document is not found")?;
        ensure!(
            found.name.as_str() == "policy" && found.version == version && found.remaining.is_none(),
            "written as version {version} without an expiry, read as {found:?}"
        );
        ensure!(found.value == value, "{} bytes were written, {} read", value.len(), found.value.len());
    }
    Ok(())
}

/// Versions of a name grow, also past a deletion and an expiry.
pub async fn versions_grow(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let first = put(&store, "policy", "a").await?;
    let second = put(&store, "policy", "a").await?;
    ensure!(first > 0, "the first version is {first}");
    ensure!(second > first, "an overwrite changed version {first} to {second}");
    let deleted = delete(&store, "policy", ExpectedVersion::Any).await?;
    ensure!(deleted == DocumentOutcome::Changed(second), "a deletion of version {second} said {deleted:?}");
    let ttl = fixture.short_ttl().get();
    let third = write(&store, DocumentWrite::new(name("policy")?, "b").with_ttl(ttl)).await?;
    ensure!(third > second, "after the deletion of version {second} came {third}");
    fixture.wait(ttl + expiry_slack(&store)).await;
    let fourth = put(&store, "policy", "c").await?;
    ensure!(fourth > third, "after the expiry of version {third} came {fourth}");
    Ok(())
}

/// Versions continue after the store was closed, and so does the document if the store is durable.
pub async fn versions_grow_across_reopening(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let durable = store.capabilities().promise > leasehold_core::store::Promise::Volatile;
    put(&store, "gone", "a").await?;
    let gone = put(&store, "gone", "b").await?;
    let kept = put(&store, "kept", "a").await?;
    let _ = delete(&store, "gone", ExpectedVersion::Any).await?;
    drop(store);
    let store = fixture.reopen().await?;
    let found = read(&store, "kept").await?;
    ensure!(
        !durable || found.as_ref().is_some_and(|found| found.version == kept),
        "version {kept} was written; after the store was opened again it is {found:?}"
    );
    let again = put(&store, "gone", "c").await?;
    ensure!(again > gone, "after the deletion of version {gone} and a restart came {again}");
    Ok(())
}

/// A write happens only in the expected state; otherwise it shows the current one.
pub async fn a_write_needs_the_expected_version(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let documents = documents_of(&store)?;
    let request =
        |value: &str, expected| anyhow::Ok(DocumentWrite::new(name("policy")?, value).expecting(expected));
    let early = documents.write(&request("x", ExpectedVersion::Exactly(1))?, CALL_TIMEOUT).await?;
    ensure!(early == DocumentOutcome::Conflict(None), "no document, version 1 expected: {early:?}");
    let first = write(&store, request("a", ExpectedVersion::Absent)?).await?;
    let second = write(&store, request("b", ExpectedVersion::Exactly(first))?).await?;
    for stale in [
        ExpectedVersion::Absent,
        ExpectedVersion::Exactly(first),
        ExpectedVersion::Exactly(second + 1),
        ExpectedVersion::Exactly(0),
    ] {
        let DocumentOutcome::Conflict(Some(current)) =
            documents.write(&request("x", stale)?, CALL_TIMEOUT).await?
        else {
            bail!("version {second} exists, {stale:?} was expected: the write was not refused with it")
        };
        ensure!(
            current.version == second && current.value == "b" && current.name.as_str() == "policy",
            "version {second} with `b` exists; the conflict shows {current:?}"
        );
        let found = read(&store, "policy").await?;
        ensure!(found.as_ref() == Some(&current), "a refused write left {found:?}");
    }
    Ok(())
}

/// A deletion happens only in the expected state.
pub async fn a_deletion_needs_the_expected_version(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let nothing = delete(&store, "policy", ExpectedVersion::Any).await?;
    ensure!(nothing == DocumentOutcome::Changed(0), "the deletion of nothing said {nothing:?}");
    let version = put(&store, "policy", "a").await?;
    put(&store, "policy2", "beside").await?;
    for stale in [ExpectedVersion::Absent, ExpectedVersion::Exactly(version + 1)] {
        let refused = delete(&store, "policy", stale).await?;
        let DocumentOutcome::Conflict(Some(current)) = &refused else {
            bail!("version {version} exists, {stale:?} was expected: the deletion said {refused:?}")
        };
        ensure!(current.version == version && current.value == "a", "the conflict shows {current:?}");
    }
    ensure!(read(&store, "policy").await?.is_some(), "a refused deletion deleted the document");
    let deleted = delete(&store, "policy", ExpectedVersion::Exactly(version)).await?;
    ensure!(deleted == DocumentOutcome::Changed(version), "version {version} deleted: {deleted:?}");
    ensure!(read(&store, "policy").await?.is_none(), "a deleted document exists");
    ensure!(read(&store, "policy2").await?.is_some(), "a deletion deleted another document");
    Ok(())
}

/// Of writers that race with the same expected version, one is successful; no update is lost.
pub async fn racing_writers_lose_no_update(fixture: &dyn Fixture) -> CaseResult {
    const WRITERS: usize = 8;
    const INCREMENTS: usize = 5;
    put(&fixture.open().await?, "counter", "0").await?;
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        let store = fixture.open().await?;
        writers.spawn(async move {
            for _ in 0..INCREMENTS {
                increment(&store).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    let found = read(&fixture.open().await?, "counter").await?.context("the counter is gone")?;
    let wanted = (WRITERS * INCREMENTS).to_string();
    ensure!(
        found.value == wanted,
        "{WRITERS} writers counted {wanted} times, the counter is {}",
        found.value
    );
    Ok(())
}

async fn increment(store: &SharedStore) -> anyhow::Result<()> {
    loop {
        let current = read(store, "counter").await?.context("the counter is gone")?;
        let next = current.value.parse::<usize>()? + 1;
        // Another writer may come in between, also when all tasks share one thread.
        tokio::task::yield_now().await;
        let request = DocumentWrite::new(name("counter")?, next.to_string())
            .expecting(ExpectedVersion::Exactly(current.version));
        match documents_of(store)?.write(&request, CALL_TIMEOUT).await? {
            DocumentOutcome::Changed(_) => return Ok(()),
            _ => continue,
        }
    }
}

/// A document with a lifetime is absent after it, and not before.
pub async fn an_expired_document_is_absent(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let (brief, long) = (fixture.short_ttl().get(), Duration::from_secs(600));
    write(&store, DocumentWrite::new(name("long")?, "a").with_ttl(long)).await?;
    write(&store, DocumentWrite::new(name("brief")?, "a").with_ttl(brief)).await?;
    let left = read(&store, "long").await?.context("a document is absent before its time")?.remaining;
    ensure!(
        left.is_some_and(|left| left <= long && left > long / 2),
        "of {long:?}, {left:?} is left a moment after the write"
    );
    fixture.wait(brief + expiry_slack(&store)).await;
    ensure!(read(&store, "brief").await?.is_none(), "a document exists after its time");
    let (listed, _) = list(&store, &DocumentQuery::new("", 10)).await?;
    ensure!(listed == ["long"], "`long` is live and `brief` has expired; listed are {listed:?}");
    write(&store, DocumentWrite::new(name("brief")?, "b").expecting(ExpectedVersion::Absent)).await?;
    Ok(())
}

/// Each write sets the lifetime anew: one without a lifetime ends the expiry.
pub async fn a_write_replaces_the_lifetime(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let brief = fixture.short_ttl().get();
    for at in ["endless", "longer"] {
        write(&store, DocumentWrite::new(name(at)?, "a").with_ttl(brief)).await?;
    }
    put(&store, "endless", "b").await?;
    write(&store, DocumentWrite::new(name("longer")?, "b").with_ttl(MAX_DOCUMENT_TTL)).await?;
    put(&store, "shorter", "a").await?;
    write(&store, DocumentWrite::new(name("shorter")?, "b").with_ttl(brief)).await?;
    fixture.wait(brief + expiry_slack(&store)).await;
    let (listed, _) = list(&store, &DocumentQuery::new("", 10)).await?;
    ensure!(listed == ["endless", "longer"], "after the first lifetime the store has {listed:?}");
    let endless = read(&store, "endless").await?.context("listed and not found")?;
    ensure!(endless.remaining.is_none(), "written without a lifetime: {endless:?}");
    Ok(())
}

/// Names are compared byte by byte, and a document never shows as a lease or the other way round.
pub async fn names_do_not_collide(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let names = ["a", "A", "a:", "a/b", "a%", "a_", "a*", "a\\", "a'", "é", "documents", "lease:a", "v"];
    for (number, at) in names.iter().enumerate() {
        put(&store, at, &number.to_string()).await?;
    }
    for (number, at) in names.iter().enumerate() {
        let found = read(&store, at).await?.with_context(|| format!("`{at}` is not found"))?;
        ensure!(found.value == number.to_string(), "`{at}` was written with {number}: {found:?}");
    }
    let client = TestClient::new(&store, "a", "holder")?;
    ensure!(client.inspect().await?.is_none(), "a document shows as a lease");
    client.expect_granted(long_ttl()).await?;
    put(&store, "a", "beside the lease").await?;
    ensure!(client.inspect().await?.is_some(), "writing a document ended a lease");
    client.expect_released().await?;
    ensure!(read(&store, "a").await?.is_some(), "a release deleted a document");
    if store.capabilities().list {
        let leases = store.list("", 100, CALL_TIMEOUT).await?.leases;
        ensure!(leases.is_empty(), "documents are listed as leases: {leases:?}");
    }
    Ok(())
}

/// A listing has the names with the prefix, in byte order, page by page.
pub async fn listing_is_in_order_and_in_pages(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    for at in ["h:3", "h:1", "other", "h:é", "h:2", "h", "H:1", "h_1", "h%"] {
        put(&store, at, "x").await?;
    }
    let wanted = ["h:1", "h:2", "h:3", "h:é"];
    for limit in 1..=5 {
        let (mut query, mut all) = (DocumentQuery::new("h:", limit), Vec::new());
        loop {
            let (names, truncated) = list(&store, &query).await?;
            ensure!(names.len() <= limit, "a page of {limit} has {names:?}");
            let more = all.len() + names.len() < wanted.len();
            ensure!(truncated == more, "after {all:?} and {names:?}, truncated: {truncated}");
            let last = names.last().cloned();
            all.extend(names);
            match last {
                Some(last) if truncated => query = query.after(name(&last)?),
                _ => break,
            }
        }
        ensure!(all == wanted, "with the prefix `h:` and pages of {limit} the store lists {all:?}");
    }
    for pattern in ["h_", "h%", "*", "?", "["] {
        let (names, _) = list(&store, &DocumentQuery::new(pattern, 10)).await?;
        ensure!(
            names.iter().all(|at| at.starts_with(pattern)),
            "the prefix `{pattern}` is text, not a pattern; it lists {names:?}"
        );
    }
    let page = documents_of(&store)?.list(&DocumentQuery::new("h:1", 10), CALL_TIMEOUT).await?;
    let found = read(&store, "h:1").await?;
    ensure!(
        page.documents.first() == found.as_ref(),
        "a listing shows {:?}, a read {found:?}",
        page.documents
    );
    Ok(())
}

/// What is beyond the bounds is refused as a mistake of the caller and changes nothing.
pub async fn bounds_are_refused(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let documents = documents_of(&store)?;
    let request = |value: String| anyhow::Ok(DocumentWrite::new(name("policy")?, value));
    for refused in [
        request("x".repeat(MAX_DOCUMENT_BYTES + 1))?,
        request("x".into())?.with_ttl(Duration::ZERO),
        request("x".into())?.with_ttl(MAX_DOCUMENT_TTL + Duration::from_secs(1)),
    ] {
        match documents.write(&refused, CALL_TIMEOUT).await {
            Err(error) if error.kind == StoreErrorKind::Misconfigured && !error.unknown => {}
            other => bail!("{refused:?} was answered with {other:?}"),
        }
    }
    ensure!(read(&store, "policy").await?.is_none(), "a refused write made a document");
    for limit in [0, MAX_DOCUMENTS_LISTED + 1] {
        match documents.list(&DocumentQuery::new("", limit), CALL_TIMEOUT).await {
            Err(error) if error.kind == StoreErrorKind::Misconfigured && !error.unknown => {}
            other => bail!("a listing with the limit {limit} was answered with {other:?}"),
        }
    }
    Ok(())
}

/// The store's clock moves with the fixture's.
pub async fn the_stores_time_passes(fixture: &dyn Fixture) -> CaseResult {
    let store = fixture.open().await?;
    let time = fixture.short_ttl().get();
    let before = documents_of(&store)?.read(&name("policy")?, CALL_TIMEOUT).await?.store_time;
    fixture.wait(time).await;
    let after = documents_of(&store)?.read(&name("policy")?, CALL_TIMEOUT).await?.store_time;
    let passed = after.duration_since(before).context("the store's time went back")?;
    ensure!(passed + expiry_slack(&store) >= time, "{time:?} passed, by the store's clock {passed:?}");
    Ok(())
}

/// Each change notifies each follower of that document, in all handles.
pub async fn a_change_wakes_each_follower(fixture: &dyn Fixture) -> CaseResult {
    let (writer, follower) = (fixture.open().await?, fixture.open().await?);
    let followers = [
        documents_of(&writer)?.watch(&name("policy")?),
        documents_of(&follower)?.watch(&name("policy")?),
        documents_of(&follower)?.watch(&name("policy")?),
    ];
    let stranger = documents_of(&follower)?.watch(&name("polic")?);
    let clock = fixture.clock();
    for change in ["create", "replace", "delete"] {
        // A subscription may notify once when it starts; a wake-up is tied to a change only after that.
        for listener in &followers {
            while within(clock.as_ref(), Duration::from_millis(200), listener).await {}
        }
        if change == "delete" {
            let _ = delete(&writer, "policy", ExpectedVersion::Any).await?;
        } else {
            put(&writer, "policy", change).await?;
        }
        for (number, listener) in followers.iter().enumerate() {
            ensure!(
                within(clock.as_ref(), WAKE_TIMEOUT, listener).await,
                "follower {number} was not notified of `{change}` within {WAKE_TIMEOUT:?}"
            );
        }
    }
    while within(clock.as_ref(), Duration::from_millis(200), &stranger).await {}
    put(&writer, "policy", "again").await?;
    ensure!(
        !within(clock.as_ref(), Duration::from_millis(300), &stranger).await,
        "the follower of another document was notified"
    );
    Ok(())
}

async fn within(
    clock: &dyn leasehold_core::clock::Clock,
    time: Duration,
    listener: &leasehold_core::store::WakeListener,
) -> bool {
    leasehold_core::clock::run_until(clock, clock.now() + time, listener.notified()).await.is_some()
}
