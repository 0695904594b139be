//! What the log survives, and what its verification finds.

use std::path::PathBuf;

use leasehold::clock::BootClock;
use leasehold_core::rng::OsRandom;

use super::*;

const LIMITS: SegmentLimits = SegmentLimits { max_bytes: 16 * 1024 * 1024, max_segments: 64 };

pub(super) struct AuditFixture {
    pub(super) folder: tempfile::TempDir,
    pub(super) limits: SegmentLimits,
}

impl AuditFixture {
    pub(super) fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        Self { folder, limits: LIMITS }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Starts, records five lines as an administrator, and stops in order.
    pub(super) async fn record_five(&self) {
        let state_db = Arc::new(StateDb::open(Some(self.folder.path())).unwrap());
        let audit = self.open(&state_db).await;
        let who = Principal::new("ci", []);
        for number in 0..5 {
            let entry = AuditEntry::new("break", &who).detail(&format!("reason {number}"));
            assert!(audit.record_before(entry).await);
        }
        audit.flush().await;
        state_db.close().await;
    }

    pub(super) async fn open(&self, state_db: &Arc<StateDb>) -> Audit {
        let folder = Some(self.folder.path());
        let random = OsRandom::shared();
        Audit::open(folder, state_db, BootClock::shared(), &random, self.limits).await.unwrap()
    }

    pub(super) fn verify(&self) -> Result<VerifiedAudit, AuditError> {
        verify(self.folder.path(), None)
    }

    pub(super) fn broken(&self) -> String {
        match self.verify() {
            Err(AuditError::Broken(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Writes lines as versions without a key have written them.
    pub(super) fn write_unkeyed(&self, name: &str, count: u64) -> String {
        let mut prev = head::GENESIS.to_owned();
        let mut text = String::new();
        for seq in 1..=count {
            let entry = AuditEntry::new("break", &Principal::new("ci", [])).detail("before the upgrade");
            let mut line = line::AuditLine::new(seq, "2026-11-01T00:00:00Z".to_owned(), entry, prev);
            prev = line.unkeyed_hash();
            line.hash = Some(prev.clone());
            text.push_str(&line.text());
        }
        use std::os::unix::fs::OpenOptionsExt;
        let mut file = std::fs::File::options();
        let mut file =
            file.write(true).create(true).truncate(true).mode(0o600).open(self.path(name)).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        text
    }
}

/// A changed, removed, inserted or moved line is found, at the end of the log too.
#[tokio::test]
async fn finding_15_verification_names_the_first_tampered_line() {
    let fixture = AuditFixture::new();
    fixture.record_five().await;
    let text = fixture.read("audit.jsonl");
    assert_eq!(fixture.verify().unwrap(), VerifiedAudit { lines: 6, segments: 1 });
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let without = |gone: &[usize]| {
        let kept = lines.iter().enumerate().filter(|(at, _)| !gone.contains(at));
        kept.map(|(_, line)| *line).collect::<String>()
    };
    let swapped = [0, 1, 3, 2, 4, 5].map(|at| lines[at]).concat();
    for (bad, expected) in [
        (text.replace("reason 2", "reason 9"), "audit.jsonl: line 4: was changed"),
        (without(&[1]), "audit.jsonl: line 2: does not follow"),
        (without(&[0]), "audit.jsonl: line 1: does not open a segment"),
        (without(&[5]), "lines 6 to 6 at its end are missing"),
        (without(&[3, 4, 5]), "lines 4 to 6 at its end are missing"),
        (String::new(), "segment 1, which the daemon remembers, is missing"),
        (swapped, "audit.jsonl: line 3: does not follow"),
        (text.replacen("\"actor\":\"ci\"", "\"actor\":\"me\"", 1), "audit.jsonl: line 2: was changed"),
        (format!("{text}{{}}\n"), "audit.jsonl: line 7: is not a line"),
    ] {
        std::fs::write(fixture.path("audit.jsonl"), bad).unwrap();
        let why = fixture.broken();
        assert!(why.starts_with(expected), "{expected}: {why}");
    }
    // All lines written anew without the key: their hashes are right by the rule of earlier versions.
    fixture.write_unkeyed("audit.jsonl", 6);
    assert!(fixture.broken().contains("have no seals"), "{}", fixture.broken());
    std::fs::write(fixture.path("audit.jsonl"), &text).unwrap();
    assert_eq!(fixture.verify().unwrap().lines, 6);
    // With another key, every seal is wrong.
    std::fs::write(fixture.path("audit.key"), "0".repeat(64)).unwrap();
    assert!(fixture.broken().contains("another key"), "{}", fixture.broken());
}

/// The daemon starts on a damaged log, keeps it under another name, and says so in the log.
#[tokio::test]
async fn finding_15_a_damaged_segment_is_set_aside_and_recorded() {
    for (damage, expected) in [
        ("changed", "line 3: was changed"),
        ("shortened", "lines 6 to 6 at its end are missing"),
        ("removed", "segment 1, which the daemon remembers, is missing"),
    ] {
        let fixture = AuditFixture::new();
        fixture.record_five().await;
        let path = fixture.path("audit.jsonl");
        let text = fixture.read("audit.jsonl");
        match damage {
            "changed" => std::fs::write(&path, text.replace("reason 1", "reason 7")).unwrap(),
            "shortened" => std::fs::write(&path, &text[..=text.trim_end().rfind('\n').unwrap()]).unwrap(),
            _ => std::fs::remove_file(&path).unwrap(),
        }
        fixture.record_five().await;
        let kept = if damage == "removed" { "audit.missing.damaged-1" } else { "audit.jsonl.damaged-1" };
        assert!(fixture.path(kept).exists(), "{damage}");
        let after = fixture.read("audit.jsonl");
        let first: serde_json::Value = serde_json::from_str(after.lines().next().unwrap()).unwrap();
        assert_eq!((&first["action"], &first["segment"]), (&"segment.open".into(), &2.into()), "{first}");
        assert_eq!((&first["damaged_from"], &first["seq"]), (&1.into(), &7.into()), "{first}");
        assert!(first["detail"].as_str().unwrap().contains(expected), "{first}");
        let why = fixture.broken();
        assert!(why.contains("recorded at") && why.contains(expected), "{why}");
        // Later starts go on in the new segment.
        fixture.record_five().await;
        assert_eq!(fixture.read("audit.jsonl").lines().count(), 11);
        assert!(fixture.broken().contains("recorded at"), "{damage}");
    }
}

/// A crash leaves the saved head behind the log, at any line and between two segments.
#[tokio::test]
async fn finding_15_a_head_behind_the_log_is_no_damage() {
    for (max_bytes, kept_heads) in [(LIMITS.max_bytes, 6), (700, 11)] {
        let mut fixture = AuditFixture::new();
        fixture.limits.max_bytes = max_bytes;
        let mut heads = Vec::new();
        {
            let state_db = Arc::new(StateDb::open(Some(fixture.folder.path())).unwrap());
            let audit = fixture.open(&state_db).await;
            for _ in 0..kept_heads {
                heads.push(state_db.read(head::load).await.unwrap().unwrap());
                assert!(audit.record_before(AuditEntry::new("break", &Principal::new("ci", []))).await);
            }
            audit.flush().await;
            state_db.close().await;
        }
        for head in heads {
            {
                let state_db = StateDb::open(Some(fixture.folder.path())).unwrap();
                let saved = head.clone();
                state_db.write_confirmed(move |db| head::save(db, &saved)).await.unwrap();
                state_db.close().await;
            }
            fixture.verify().unwrap();
            let state_db = Arc::new(StateDb::open(Some(fixture.folder.path())).unwrap());
            let audit = fixture.open(&state_db).await;
            assert_eq!(audit.set_aside, 0, "{head:?}");
            audit.flush().await;
            state_db.close().await;
        }
    }
}

/// Segments are closed at their size, and the oldest ones go, which the log says.
#[tokio::test]
async fn finding_15_segments_are_bounded_and_a_missing_one_is_found() {
    let mut fixture = AuditFixture::new();
    fixture.limits = SegmentLimits { max_bytes: 1, max_segments: 64 };
    fixture.record_five().await;
    // Every line after the first begins a segment: each opening line already fills one.
    let verified = fixture.verify().unwrap();
    assert_eq!(verified.segments, 6, "{verified:?}");
    let hidden = fixture.path("hidden");
    for number in [1, 2, 5] {
        let path = fixture.path(&format!("audit-{number:06}.jsonl"));
        std::fs::rename(&path, &hidden).unwrap();
        assert!(fixture.broken().contains(&format!("segment {number} is missing")), "{}", fixture.broken());
        std::fs::rename(&hidden, &path).unwrap();
    }
    let newest = fixture.path("audit.jsonl");
    std::fs::rename(&newest, &hidden).unwrap();
    assert!(fixture.broken().contains("missing"), "{}", fixture.broken());
    std::fs::rename(&hidden, &newest).unwrap();
    fixture.limits.max_segments = 3;
    fixture.record_five().await;
    let verified = fixture.verify().unwrap();
    assert_eq!(verified.segments, 3);
    assert!(!fixture.path("audit-000001.jsonl").exists());
    assert!(fixture.read("audit.jsonl").contains("\"segment.remove\""), "{}", fixture.read("audit.jsonl"));
    let oldest = std::fs::read_dir(fixture.folder.path()).unwrap().flatten().map(|entry| entry.path());
    let oldest = oldest.filter(|path| path.to_string_lossy().contains("audit-")).min().unwrap();
    std::fs::remove_file(oldest).unwrap();
    assert!(fixture.broken().contains("no line says"), "{}", fixture.broken());
}

/// The log of a version without a key is verified by its own rule and becomes segment 1.
#[tokio::test]
async fn finding_15_a_log_of_an_earlier_version_is_carried_over() {
    let fixture = AuditFixture::new();
    let old = fixture.write_unkeyed("audit.jsonl", 3);
    fixture.record_five().await;
    assert_eq!(fixture.read("audit-000001.jsonl"), old);
    assert_eq!(fixture.verify().unwrap(), VerifiedAudit { lines: 9, segments: 2 });
    let last: serde_json::Value = serde_json::from_str(old.lines().last().unwrap()).unwrap();
    let text = fixture.read("audit.jsonl");
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((&first["prev"], &first["seq"]), (&last["hash"], &4.into()));
    // The carried hash covers it: sealed anew, it does not fit any more.
    let path = fixture.path("audit-000001.jsonl");
    std::fs::remove_file(&path).unwrap();
    fixture.write_unkeyed("audit-000001.jsonl", 2);
    assert!(!fixture.broken().is_empty());
    // A damaged one is set aside.
    let fixture = AuditFixture::new();
    let old = fixture.write_unkeyed("audit.jsonl", 3);
    std::fs::write(fixture.path("audit.jsonl"), old.replacen("ci", "me", 1)).unwrap();
    fixture.record_five().await;
    assert!(fixture.broken().contains("line 1: was changed"), "{}", fixture.broken());
    assert!(fixture.path("audit.jsonl.damaged-1").exists());
}

/// Old segments are not read at the start: its time does not grow with the log.
#[tokio::test]
async fn finding_15_the_start_reads_only_the_newest_segment() {
    let mut fixture = AuditFixture::new();
    fixture.limits.max_bytes = 1;
    fixture.record_five().await;
    std::fs::write(fixture.path("audit-000002.jsonl"), "not read at the start\n").unwrap();
    fixture.record_five().await;
    assert!(!fixture.path("audit-000002.jsonl.damaged-1").exists());
    assert!(
        fixture.broken().starts_with("audit-000002.jsonl: line 1: is not a line"),
        "{}",
        fixture.broken()
    );
}

/// A power loss cut a line short: the log opens again and records what happened.
#[tokio::test]
async fn a_truncated_last_line_is_removed_and_recorded() {
    for cut in [1, 20, 100] {
        let fixture = AuditFixture::new();
        fixture.record_five().await;
        let path = fixture.path("audit.jsonl");
        let text = fixture.read("audit.jsonl");
        let unfinished = text.lines().last().unwrap().replace("reason 4", "reason 5");
        std::fs::write(&path, format!("{text}{}", &unfinished[..unfinished.len() - cut])).unwrap();
        fixture.record_five().await;
        let after = fixture.read("audit.jsonl");
        let lines: Vec<_> = after.lines().collect();
        assert_eq!(lines.len(), 6 + 1 + 5, "{after}");
        assert!(lines[6].contains("\"action\":\"mended\"") && lines[6].contains("cut off"), "{}", lines[6]);
        assert_eq!(fixture.verify().unwrap().lines, 12);
    }
}

#[tokio::test]
async fn a_restart_continues_the_chain() {
    let fixture = AuditFixture::new();
    fixture.record_five().await;
    fixture.record_five().await;
    assert_eq!(fixture.read("audit.jsonl").lines().count(), 11);
    assert_eq!(fixture.verify().unwrap(), VerifiedAudit { lines: 11, segments: 1 });
}
