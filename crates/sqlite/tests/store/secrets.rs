//! The file holds no secrets, and people can read the rest.

use leasehold_core::store::{ReleaseRequest, Store};

use crate::fixture::{CALL_TIMEOUT, Fixture, TestClient};

#[tokio::test]
async fn no_token_is_anywhere_on_the_disk_or_in_debug() {
    let context = Fixture::new();
    let store = context.open();
    let (holder, waiter, undone) =
        (TestClient::new("h", "job"), TestClient::new("w", "job"), TestClient::new("u", "job"));
    let listener = store.listen(&waiter.name, &waiter.token);
    holder.expect_granted(&store).await;
    waiter.expect_queued(&store).await;
    let undo = ReleaseRequest::undo(undone.name.clone(), undone.token.clone());
    store.release(&undo, CALL_TIMEOUT).await.unwrap();
    let mut written = format!("{store:?} {listener:?}").into_bytes();
    for file in ["locks.db", "locks.db-wal"] {
        written.extend(std::fs::read(context.path().with_file_name(file)).unwrap());
    }
    let contains = |text: &str| written.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(contains("special"), "the classes are there, so the search works");
    for who in [holder, waiter, undone] {
        assert!(!contains(who.token.random()), "{who:?}");
    }
}

#[tokio::test]
async fn people_can_read_the_view() {
    let context = Fixture::new();
    // The view uses SQLite's own wall clock, so this test cannot use the manual one.
    let store =
        leasehold_sqlite::SqliteStore::open(leasehold_sqlite::SqliteOptions::new(context.path())).unwrap();
    let (holder, waiter) = (TestClient::new("web-1:7", "job"), TestClient::new("web-2:8", "job"));
    let fence = holder.expect_granted(&store).await;
    waiter.expect_queued(&store).await;
    let row = context
        .raw_connection()
        .query_row("SELECT name, holder, class, fence, remaining_ms, waiting FROM locks", [], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, i64>(3)?,
                row.get::<_, i64>(4)?,
                row.get::<_, i64>(5)?,
            ))
        })
        .unwrap();
    assert_eq!((row.0.as_str(), row.1.as_str(), row.2.as_str()), ("job", "web-1:7", "special"));
    assert_eq!((u64::try_from(row.3).unwrap(), row.5), (fence.get(), 1));
    assert!((1..=60_000).contains(&row.4), "{}", row.4);
}
