//! Opening: who may be first, what is refused, and in which words.

use std::os::unix::fs::PermissionsExt;

use leasehold_core::store::{Cause, Promise, Store};
use leasehold_sqlite::{Durability, SqliteOptions, SqliteStore};

use crate::process::Process;
use crate::scene::{Scene, WITHIN, Who};

#[tokio::test]
async fn eight_processes_may_open_a_new_file_at_once() {
    for _ in 0..8 {
        let scene = Scene::new();
        let path = scene.path().with_file_name("new").join("folder").join("locks.db");
        let mut processes: Vec<_> = (0..8).map(|_| Process::start("open", &path)).collect();
        for process in &processes {
            assert_eq!(process.hears().as_deref(), Some("ready"));
        }
        for process in &mut processes {
            process.go();
        }
        for process in &processes {
            let fence = process.hears().expect("every one of them gets its lease");
            fence.parse::<u64>().unwrap();
        }
        let store = SqliteStore::open(SqliteOptions::new(&path)).unwrap();
        assert_eq!(store.list("job:", 100, WITHIN).await.unwrap().leases.len(), 8);
        let left: Vec<_> = std::fs::read_dir(path.parent().unwrap())
            .unwrap()
            .flatten()
            .collect();
        assert!(
            left.iter()
                .all(|entry| !entry.file_name().to_string_lossy().contains(".new-")),
            "{left:?}"
        );
    }
}

#[tokio::test]
async fn eight_threads_may_open_a_new_file_at_once() {
    let scene = Scene::new();
    let stores: Vec<_> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..8).map(|_| scope.spawn(|| scene.open())).collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let who = Who::new("a", "job");
    who.gets(&stores[0]).await;
    for store in &stores {
        assert!(who.sees(store).await.is_some());
    }
}

#[test]
fn the_file_is_for_its_owner_only() {
    let scene = Scene::new();
    let _store = scene.open();
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        let mode = scene
            .path()
            .with_file_name(file)
            .metadata()
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

fn refused(options: SqliteOptions) -> (Cause, String) {
    let failure = SqliteStore::open(options).unwrap_err();
    assert!(!failure.unknown, "{failure}");
    (failure.cause, failure.message().to_owned())
}

#[test]
fn a_newer_schema_is_refused() {
    let scene = Scene::new();
    drop(scene.open());
    scene.raw().pragma_update(None, "user_version", 2).unwrap();
    let (cause, said) = refused(scene.options());
    assert_eq!(cause, Cause::Misconfigured);
    assert!(
        said.contains("version 2") && said.contains("update this program"),
        "{said}"
    );
}

#[test]
fn another_programs_database_is_refused_and_untouched() {
    let scene = Scene::new();
    scene
        .raw()
        .execute_batch("CREATE TABLE invoices (number INTEGER)")
        .unwrap();
    let before = std::fs::read(scene.path()).unwrap();
    let (cause, said) = refused(scene.options());
    assert_eq!(cause, Cause::Misconfigured);
    assert!(said.contains("another program's"), "{said}");
    assert_eq!(std::fs::read(scene.path()).unwrap(), before);
}

#[test]
fn what_is_no_database_is_refused_and_untouched() {
    let scene = Scene::new();
    let text = "Dear diary, this is not a database at all. ".repeat(100);
    std::fs::write(scene.path(), &text).unwrap();
    let (cause, said) = refused(scene.options());
    assert_eq!(cause, Cause::Misconfigured);
    assert!(said.contains("not an SQLite database"), "{said}");
    assert_eq!(std::fs::read_to_string(scene.path()).unwrap(), text);
}

#[test]
fn places_where_no_file_can_be_are_refused() {
    let scene = Scene::new();
    std::fs::create_dir(scene.path()).unwrap();
    let (cause, said) = refused(scene.options());
    assert_eq!(cause, Cause::Misconfigured, "{said}");
    assert!(said.contains("not a file"), "{said}");

    let (cause, said) = refused(SqliteOptions::new(""));
    assert_eq!(cause, Cause::Misconfigured, "{said}");

    let file = scene.path().with_file_name("file");
    std::fs::write(&file, "x").unwrap();
    let (_, said) = refused(SqliteOptions::new(file.join("locks.db")));
    assert!(said.contains("check the path"), "{said}");

    let (_, said) = refused(SqliteOptions::new("/proc/leasehold/locks.db"));
    assert!(said.contains("/proc/leasehold"), "{said}");

    let link = scene.path().with_file_name("link");
    std::os::unix::fs::symlink(scene.path().with_file_name("nowhere"), &link).unwrap();
    let (_, said) = refused(SqliteOptions::new(&link));
    assert!(said.contains("cannot find"), "{said}");
}

#[tokio::test]
async fn an_empty_file_and_a_link_are_fine() {
    let scene = Scene::new();
    std::fs::write(scene.path(), "").unwrap();
    let link = scene.path().with_file_name("link.db");
    std::os::unix::fs::symlink(scene.path(), &link).unwrap();
    let clock = std::sync::Arc::<crate::scene::HandClock>::clone(&scene.clock);
    let linked = SqliteStore::open(SqliteOptions::new(&link).clock(clock).boot_id("boot-1")).unwrap();
    let who = Who::new("a", "job");
    who.gets(&linked).await;
    assert!(
        who.sees(&scene.open()).await.is_some(),
        "both paths lead to the same leases"
    );
}

#[tokio::test]
async fn a_file_that_was_removed_is_made_anew_for_everyone() {
    let scene = Scene::new();
    let (one, two) = (scene.open(), scene.open());
    let who = Who::new("a", "job");
    let before = who.gets(&one).await;
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        std::fs::remove_file(scene.path().with_file_name(file)).unwrap();
    }
    scene.clock.pass(std::time::Duration::from_millis(1));
    let next = Who::new("b", "job");
    assert!(next.gets(&one).await > before);
    // The other value must not go on in the file that is gone.
    assert_eq!(next.sees(&two).await.unwrap().holder, "b");
    assert_eq!(
        who.renews(&two, before).await,
        leasehold_core::store::Renewed::NotOwned
    );
}

#[tokio::test]
async fn full_durability_serves_the_same_leases() {
    let scene = Scene::new();
    let full = SqliteStore::open(scene.options().durability(Durability::Full)).unwrap();
    let who = Who::new("a", "job");
    who.gets(&full).await;
    assert!(who.sees(&scene.open()).await.is_some());
    let promised = full.promise(WITHIN).await.unwrap();
    assert_eq!(promised.promise, Promise::Durable);
    assert!(
        promised.because.iter().all(|why| !why.contains("durability")),
        "{promised:?}"
    );
    let promised = scene.open().promise(WITHIN).await.unwrap();
    assert_eq!(promised.promise, Promise::Durable);
}
