//! The file holds no secrets, and people can read the rest.

use leasehold_core::store::{Giving, Store};

use crate::scene::{Scene, WITHIN, Who};

#[tokio::test]
async fn no_token_is_anywhere_on_the_disk_or_in_debug() {
    let scene = Scene::new();
    let store = scene.open();
    let (holder, waiter, undone) = (Who::new("h", "job"), Who::new("w", "job"), Who::new("u", "job"));
    let listener = store.listen(&waiter.name, &waiter.token);
    holder.gets(&store).await;
    waiter.queues(&store).await;
    let undo = Giving::undo(undone.name.clone(), undone.token.clone());
    store.release(&undo, WITHIN).await.unwrap();
    let mut written = format!("{store:?} {listener:?}").into_bytes();
    for file in ["locks.db", "locks.db-wal"] {
        written.extend(std::fs::read(scene.path().with_file_name(file)).unwrap());
    }
    let contains = |text: &str| written.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(contains("special"), "the classes are there, so the search works");
    for who in [holder, waiter, undone] {
        assert!(!contains(who.token.random()), "{who:?}");
    }
}

#[tokio::test]
async fn people_can_read_the_view() {
    let scene = Scene::new();
    // The view tells the time by the real wall clock.
    let store =
        leasehold_sqlite::SqliteStore::open(leasehold_sqlite::SqliteOptions::new(scene.path())).unwrap();
    let (holder, waiter) = (Who::new("web-1:7", "job"), Who::new("web-2:8", "job"));
    let fence = holder.gets(&store).await;
    waiter.queues(&store).await;
    let row = scene
        .raw()
        .query_row(
            "SELECT name, holder, class, fence, remaining_ms, waiting FROM locks",
            [],
            |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, i64>(3)?,
                    row.get::<_, i64>(4)?,
                    row.get::<_, i64>(5)?,
                ))
            },
        )
        .unwrap();
    assert_eq!(
        (row.0.as_str(), row.1.as_str(), row.2.as_str()),
        ("job", "web-1:7", "special")
    );
    assert_eq!((u64::try_from(row.3).unwrap(), row.5), (fence.get(), 1));
    assert!((1..=60_000).contains(&row.4), "{}", row.4);
}
