//! What a start finds after files were removed, replaced or opened to others.

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::time::Duration;

use leasehold::clock::{BootClock, ClockExt};
use rusqlite::Connection;

use super::tests::AuditFixture;
use super::*;
use crate::state::state_db::{DatabaseTask, DatabaseWriter, WriterFull};

impl AuditFixture {
    fn forget_head(&self) {
        let db = Connection::open(self.path("daemon.db")).unwrap();
        assert_eq!(db.execute("DELETE FROM audit_head", []).unwrap(), 1);
    }

    /// Starts, stops, and returns what the gauge shows.
    async fn damage_shown(&self) -> usize {
        let state_db = Arc::new(StateDb::open(Some(self.folder.path())).unwrap());
        let audit = self.open(&state_db).await;
        audit.flush().await;
        state_db.close().await;
        audit.set_aside
    }

    fn set_mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }

    fn mode(&self, name: &str) -> u32 {
        std::fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o777
    }
}

/// A removed file leaves nothing to set aside: the alert must fire all the same, until somebody has looked.
#[tokio::test]
async fn finding_15_a_missing_segment_is_shown_until_its_note_is_removed() {
    for truncated in [false, true] {
        let fixture = AuditFixture::new();
        fixture.record_five().await;
        let path = fixture.path("audit.jsonl");
        if truncated {
            std::fs::write(&path, "").unwrap()
        } else {
            std::fs::remove_file(&path).unwrap()
        }
        for _ in 0..2 {
            assert_eq!(fixture.damage_shown().await, 1, "truncated: {truncated}");
        }
        let note = if truncated { "audit.jsonl.damaged-1" } else { "audit.missing.damaged-1" };
        if !truncated {
            assert!(fixture.read(note).contains("segment 1, which the daemon remembers, is missing"));
        }
        std::fs::remove_file(fixture.path(note)).unwrap();
        assert_eq!(fixture.damage_shown().await, 0);
    }
}

/// Without the head, lines removed from the end are not missed: that it was removed must be seen itself.
#[tokio::test]
async fn finding_15_a_removed_head_is_damage() {
    for whole_log in [false, true] {
        let fixture = AuditFixture::new();
        fixture.record_five().await;
        let (path, text) = (fixture.path("audit.jsonl"), fixture.read("audit.jsonl"));
        if whole_log {
            std::fs::remove_file(&path).unwrap();
        } else {
            std::fs::write(&path, &text[..=text.trim_end().rfind('\n').unwrap()]).unwrap();
        }
        fixture.forget_head();
        assert!(matches!(fixture.verify(), Err(AuditError::Unusable(why)) if why.contains("no head")));
        assert_eq!(fixture.damage_shown().await, 1);
        let why = fixture.broken();
        assert!(why.contains("recorded at") && why.contains("has no head"), "{why}");
        assert!(fixture.read("audit.jsonl").contains("\"head-missing\""));
        assert_eq!(fixture.damage_shown().await, 1);
        assert!(fixture.broken().contains("recorded at"));
    }
}

/// Anyone can write an unkeyed log. It is carried over only by the start that makes the first key.
#[tokio::test]
async fn finding_15_an_unkeyed_log_is_refused_where_a_key_was() {
    let fixture = AuditFixture::new();
    fixture.record_five().await;
    let forged = fixture.write_unkeyed("audit.jsonl", 3);
    fixture.forget_head();
    fixture.record_five().await;
    assert_eq!(fixture.read("audit.jsonl.damaged-1"), forged);
    assert!(fixture.broken().contains("have no seals"), "{}", fixture.broken());
    assert!(!fixture.path("audit-000001.jsonl").exists());
    // A start that was killed before it made the key goes on.
    let fixture = AuditFixture::new();
    fixture.write_unkeyed("audit.jsonl", 3);
    fixture.record_five().await;
    assert_eq!(fixture.damage_shown().await, 0);
    fixture.verify().unwrap();
}

/// A caller that only acquires, releases and submits fills all segments. What an administrator did stays.
#[tokio::test]
async fn finding_15_administrative_lines_outlive_their_segment() {
    let mut fixture = AuditFixture::new();
    fixture.limits = SegmentLimits { max_bytes: 4096, max_segments: 3 };
    let state_db = Arc::new(StateDb::open(Some(fixture.folder.path())).unwrap());
    let audit = fixture.open(&state_db).await;
    let (boss, worker) = (Principal::new("boss", []), Principal::new("worker", []));
    assert!(audit.record_before(AuditEntry::new("break", &boss).detail("by mistake").forced(true)).await);
    assert!(audit.record_before(AuditEntry::new("policy.set", &boss).detail("workflow")).await);
    for _ in 0..200 {
        audit.record(AuditEntry::new("acquire", &worker));
        audit.record(AuditEntry::new("release", &worker));
        audit.record(AuditEntry::new("job.command", &worker));
        audit.record(AuditEntry::new("run.command", &worker));
    }
    audit.flush().await;
    state_db.close().await;
    let verified = fixture.verify().unwrap();
    assert_eq!(verified.segments, 3);
    assert!(verified.lines > 400, "{verified:?}");
    let files = std::fs::read_dir(fixture.folder.path()).unwrap().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().ends_with(".jsonl"));
    let text: String = files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
    let kept: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kept: Vec<_> = kept.iter().filter(|line| line["actor"] == "boss").collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert_eq!((&kept[0]["action"], &kept[0]["carried_from"]), (&"break".into(), &2.into()));
    assert_eq!((&kept[0]["detail"], &kept[0]["forced"]), (&"by mistake".into(), &true.into()));
    assert_eq!((&kept[1]["action"], &kept[1]["carried_from"]), (&"policy.set".into(), &3.into()));
    assert!(!text.lines().any(|line| line.contains("\"worker\"") && line.contains("carried_from")));
}

/// A line is sealed anew when it is carried over: one that was changed must not become genuine by it.
#[tokio::test]
async fn finding_15_a_changed_line_is_not_carried_over() {
    let mut fixture = AuditFixture::new();
    fixture.limits = SegmentLimits { max_bytes: 2048, max_segments: 3 };
    fixture.record_five().await;
    let text = fixture.read("audit.jsonl");
    fixture.record_five().await;
    let closed = fixture.path("audit-000001.jsonl");
    let text_now = std::fs::read_to_string(&closed).unwrap();
    assert!(text_now.starts_with(&text[..200]));
    std::fs::write(&closed, text_now.replacen("reason 2", "reason 9", 1)).unwrap();
    for _ in 0..6 {
        fixture.record_five().await;
    }
    assert!(!closed.exists());
    let files = std::fs::read_dir(fixture.folder.path()).unwrap().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().ends_with(".jsonl"));
    let text: String = files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
    assert!(!text.contains("reason 9"), "{text}");
}

/// A writer whose next tasks are refused, as if the disk had stalled.
struct StallingWriter {
    db: Mutex<Connection>,
    refusals: Mutex<u32>,
}

impl DatabaseWriter for StallingWriter {
    fn submit(&self, step: DatabaseTask) -> Result<(), WriterFull> {
        let mut refusals = self.refusals.lock().unwrap();
        if *refusals > 0 {
            *refusals -= 1;
            return Err(WriterFull);
        }
        step(&self.db.lock().unwrap());
        Ok(())
    }
}

/// A save of the head that fails is tried again, although no further line is written.
#[tokio::test]
async fn finding_15_a_failed_save_of_the_head_is_repeated() {
    let fixture = AuditFixture::new();
    let db = Mutex::new(Connection::open_in_memory().unwrap());
    let writer = Arc::new(StallingWriter { db, refusals: Mutex::new(0) });
    let state_db = Arc::new(StateDb::with_writer(Arc::clone(&writer) as _));
    let audit = fixture.open(&state_db).await;
    // The save of the start comes before.
    audit.flush().await;
    *writer.refusals.lock().unwrap() = 1;
    assert!(audit.record_before(AuditEntry::new("break", &Principal::new("ci", []))).await);
    let saved = async || state_db.read(head::load).await.ok().flatten().map(|head| head.seq);
    let mut looks = 0;
    while saved().await != Some(2) {
        looks += 1;
        assert!(looks < 200, "the head is still at {:?}", saved().await);
        BootClock.sleep(Duration::from_millis(50)).await;
    }
}

/// The last newline is changed: the line looks unfinished, but the head covers it.
#[tokio::test]
async fn finding_15_a_line_that_the_head_covers_is_never_cut_off() {
    let fixture = AuditFixture::new();
    fixture.record_five().await;
    let text = fixture.read("audit.jsonl");
    let damaged = format!("{} ", text.trim_end());
    std::fs::write(fixture.path("audit.jsonl"), &damaged).unwrap();
    fixture.record_five().await;
    assert_eq!(fixture.read("audit.jsonl.damaged-1"), damaged);
    assert!(fixture.broken().contains("lines 6 to 6 at its end are missing"), "{}", fixture.broken());
}

/// A key that cannot be used costs the verification of the log before it, not the lock service.
#[tokio::test]
async fn finding_15_a_damaged_key_is_replaced_and_recorded() {
    for damage in ["bad byte", "empty", "no text", "a folder", "removed"] {
        let fixture = AuditFixture::new();
        fixture.record_five().await;
        let (path, key) = (fixture.path("audit.key"), fixture.read("audit.key"));
        std::fs::remove_file(&path).unwrap();
        match damage {
            "bad byte" => std::fs::write(&path, key.replacen(|_: char| true, "x", 1)).unwrap(),
            "empty" => std::fs::write(&path, "").unwrap(),
            "no text" => std::fs::write(&path, [0xff; 64]).unwrap(),
            "a folder" => std::fs::create_dir(&path).unwrap(),
            _ => {}
        }
        fixture.record_five().await;
        assert_eq!(fixture.path("audit.key.damaged-1").exists(), damage != "removed", "{damage}");
        assert!(fixture.path("audit.jsonl.damaged-1").exists(), "{damage}");
        assert_eq!(fixture.mode("audit.key"), 0o600);
        let why = fixture.broken();
        assert!(why.contains("recorded at") && why.contains("new key was made"), "{damage}: {why}");
        // The next starts use the new key.
        fixture.record_five().await;
        assert_eq!(fixture.read("audit.jsonl").lines().count(), 11, "{damage}");
    }
}

/// The key is taken from others who could read it. The log may be read by a program that copies it.
#[tokio::test]
async fn finding_15_modes_never_keep_the_daemon_from_starting() {
    let fixture = AuditFixture::new();
    fixture.record_five().await;
    fixture.set_mode("audit.key", 0o660);
    fixture.set_mode("audit.jsonl", 0o640);
    assert_eq!(fixture.damage_shown().await, 0);
    assert_eq!((fixture.mode("audit.key"), fixture.mode("audit.jsonl")), (0o600, 0o640));
    assert!(fixture.read("audit.jsonl").contains("\"key-exposed\""));
    fixture.verify().unwrap();
    // A link could lead the log into another file; a folder cannot be written.
    for link in [true, false] {
        let fixture = AuditFixture::new();
        fixture.record_five().await;
        let path = fixture.path("audit.jsonl");
        std::fs::remove_file(&path).unwrap();
        let victim = fixture.path("victim");
        std::fs::write(&victim, "not a log").unwrap();
        if link {
            std::os::unix::fs::symlink(&victim, &path).unwrap();
        } else {
            std::fs::create_dir(&path).unwrap();
        }
        assert_eq!(fixture.damage_shown().await, 1);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "not a log");
        assert!(fixture.broken().contains("is not a regular file"), "{}", fixture.broken());
    }
}
