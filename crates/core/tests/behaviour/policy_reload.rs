//! Reload of the policy file: edits, renames, swapped links, bad files, no file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::InvalidInput;
use leasehold_core::clock::Moment;
use leasehold_core::policy::{Change, ChangeKind, FileWatch, PolicyBook};

const NOW: Moment = Moment::from_nanos(7_000_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const INITIAL_POLICY: &str = "[class.report]\nttl = \"45s\"\n";

struct ReloadFixture {
    _folder: tempfile::TempDir,
    path: PathBuf,
    book: Arc<PolicyBook>,
    watch: FileWatch,
    now: Moment,
}

impl ReloadFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leasehold.toml");
        fs::write(&path, INITIAL_POLICY).unwrap();
        Self::at(folder, path)
    }

    fn at(folder: tempfile::TempDir, path: PathBuf) -> Self {
        let book = Arc::new(PolicyBook::from_file(&path).unwrap());
        let watch = FileWatch::new(Arc::clone(&book), &path);
        let mut context = Self { _folder: folder, path, book, watch, now: NOW };
        assert!(context.poll_until_noticed().is_none(), "nothing new at the start");
        context
    }

    /// Polls once, this long after the last poll.
    fn poll_after(&mut self, pause: Duration) -> Option<Result<Vec<Change>, InvalidInput>> {
        self.now = self.now + pause;
        self.watch.poll(self.now)
    }

    /// Polls often enough to notice any change. Returns the result, which may come at most once.
    fn poll_until_noticed(&mut self) -> Option<Result<Vec<Change>, InvalidInput>> {
        let mut told: Vec<_> = (0..6).filter_map(|_| self.poll_after(Duration::from_secs(1))).collect();
        assert!(told.len() <= 1, "told more than once: {told:?}");
        told.pop()
    }

    fn write(&self, text: &str) {
        fs::write(&self.path, text).unwrap();
    }

    fn ttl(&self) -> u64 {
        self.book.class("report", NOW).unwrap().ttl.get().as_secs()
    }
}

fn change_texts(told: Option<Result<Vec<Change>, InvalidInput>>) -> Vec<String> {
    told.unwrap().unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn an_edit_is_in_force_without_a_restart() {
    let mut context = ReloadFixture::new();
    let changes = context.book.changes();
    context.write("\n[class.report]\nttl = \"60s\"\n[class.fresh]\nttl = \"20s\"\n");
    let path = context.path.display().to_string();
    assert_eq!(
        change_texts(context.poll_until_noticed()),
        [
            format!("class.fresh (added: {path})"),
            format!("class.report.ttl: 45s -> 1m (reloaded: {path}:3)"),
            "class.report.drift: 470ms -> 620ms (reloaded: derived: 20ms + 1% of ttl)".to_owned(),
            "class.report.renew.every: 15s -> 20s (reloaded: built-in scheduler)".to_owned(),
        ]
    );
    assert_eq!(context.ttl(), 60);
    assert!(changes.has_changed().unwrap());
}

#[test]
fn the_same_length_and_the_same_time_stamp_do_not_hide_an_edit() {
    let mut context = ReloadFixture::new();
    let stamp = fs::metadata(&context.path).unwrap().modified().unwrap();
    context.write(&INITIAL_POLICY.replace("45s", "46s"));
    let file = fs::File::options().write(true).open(&context.path).unwrap();
    file.set_modified(stamp).unwrap();
    drop(file);
    assert_eq!(context.poll_until_noticed().unwrap().unwrap().len(), 3);
    assert_eq!(context.ttl(), 46);
}

#[test]
fn an_atomic_rename_is_an_edit() {
    let mut context = ReloadFixture::new();
    let second = context.path.with_extension("new");
    fs::write(&second, INITIAL_POLICY.replace("45s", "50s")).unwrap();
    fs::rename(&second, &context.path).unwrap();
    assert!(context.poll_until_noticed().unwrap().is_ok());
    assert_eq!(context.ttl(), 50);
}

#[test]
fn a_swapped_link_is_an_edit() {
    let folder = tempfile::tempdir().unwrap();
    let link =
        |target: &str, name: &str| std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
    fs::write(folder.path().join("v1.toml"), INITIAL_POLICY).unwrap();
    fs::write(folder.path().join("v2.toml"), INITIAL_POLICY.replace("45s", "50s")).unwrap();
    link("v1.toml", "leasehold.toml");
    link("v2.toml", "next");
    let path = folder.path().join("leasehold.toml");
    let mut context = ReloadFixture::at(folder, path);
    fs::rename(context.path.with_file_name("next"), &context.path).unwrap();
    assert!(context.poll_until_noticed().unwrap().is_ok());
    assert_eq!(context.ttl(), 50);
}

#[test]
fn a_bad_file_keeps_the_old_policy_and_is_reported_once() {
    let mut context = ReloadFixture::new();
    context.write("[class.report]\nttl = 45\n");
    let why = context.poll_until_noticed().unwrap().unwrap_err().to_string();
    assert!(why.contains("leasehold.toml:2: class.report.ttl \"45\": has no unit"), "{why}");
    assert!(why.ends_with("the policy that was loaded last stays in force"), "{why}");
    assert_eq!(context.ttl(), 45);
    assert!(context.poll_until_noticed().is_none(), "the same bad file is not told again");

    // Different bad content is reported anew, and so is the return of the good file that was in
    // force all along.
    context.write("[class.report]\nttl = 46\n");
    assert!(context.poll_until_noticed().unwrap().is_err());
    context.write(INITIAL_POLICY);
    assert_eq!(context.poll_until_noticed(), Some(Ok(Vec::new())), "mended");
    assert!(context.poll_until_noticed().is_none());
}

#[test]
fn a_missing_file_keeps_the_old_policy_and_is_reported_once() {
    let mut context = ReloadFixture::new();
    fs::remove_file(&context.path).unwrap();
    let why = context.poll_until_noticed().unwrap().unwrap_err().to_string();
    assert!(
        why.contains("leasehold.toml is gone: put it back; the policy that was loaded last stays"),
        "{why}"
    );
    assert!(context.poll_until_noticed().is_none());
    assert_eq!(context.ttl(), 45);
    context.write(&INITIAL_POLICY.replace("45s", "50s"));
    assert!(context.poll_until_noticed().unwrap().is_ok());
    assert_eq!(context.ttl(), 50);
}

#[test]
fn an_unreadable_file_is_reported_once() {
    let mut context = ReloadFixture::new();
    fs::write(&context.path, b"# \xff").unwrap();
    let why = context.poll_until_noticed().unwrap().unwrap_err().to_string();
    assert!(why.contains("not UTF-8"), "{why}");
    assert!(context.poll_until_noticed().is_none());
}

/// An editor truncates, then writes: in between the file is empty, which is a valid policy.
#[test]
fn a_half_written_file_is_ignored() {
    let mut context = ReloadFixture::new();
    context.write("");
    assert_eq!(context.poll_after(Duration::from_secs(1)), None);
    for _ in 0..4 {
        assert_eq!(context.poll_after(Duration::from_millis(100)), None, "looks in a hurry prove nothing");
    }
    context.write(&INITIAL_POLICY.replace("45s", "50s"));
    let told = context.poll_until_noticed().unwrap().unwrap();
    assert!(told.iter().all(|change| change.kind == ChangeKind::Reloaded), "never removed: {told:?}");
    assert_eq!(context.ttl(), 50);
}

#[test]
fn overrides_survive_a_reload() {
    let mut context = ReloadFixture::new();
    context.book.set_override("report", "ttl", "30s", "a test", HOUR, NOW).unwrap();
    context.write("[class.report]\nttl = \"60s\"\nmode = \"shadow\"\n");
    let message = change_texts(context.poll_until_noticed());
    assert_eq!(message.len(), 1, "the ttl in force did not change: {message:?}");
    assert!(message[0].contains("mode: enforce -> shadow"));
    assert_eq!(context.ttl(), 30);
    assert_eq!(context.book.class("report", NOW + HOUR).unwrap().ttl.get(), Duration::from_secs(60));
}

#[test]
fn a_file_refused_due_to_an_override_is_retried_after_the_override() {
    let mut context = ReloadFixture::new();
    context.book.set_override("report", "renew.every", "30s", "a test", HOUR, NOW).unwrap();
    context.write("[class.report]\nttl = \"30s\"\n");
    let why = context.poll_until_noticed().unwrap().unwrap_err().to_string();
    assert!(why.contains("no retry fits before the deadline: usable time is ttl 30s"), "{why}");
    assert!(why.starts_with("with the overrides in force, "), "{why}");
    assert_eq!(context.ttl(), 45);
    assert!(context.poll_until_noticed().is_none());
    context.book.set_override("report", "mode", "shadow", "another", HOUR, NOW).unwrap();
    assert!(context.poll_until_noticed().is_none(), "tried again, but still the same trouble");
    context.book.clear_override("report", "renew.every", NOW).unwrap();
    assert!(context.poll_until_noticed().unwrap().is_ok());
    assert_eq!(context.ttl(), 30);
}

#[test]
fn a_removed_class_loses_its_overrides() {
    let mut context = ReloadFixture::new();
    context.book.set_override("report", "ttl", "30s", "a test", HOUR, NOW).unwrap();
    context.write("");
    let told = context.poll_until_noticed().unwrap().unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].kind, &*told[0].class), (ChangeKind::Removed, "report"));
    assert!(context.book.class("report", NOW).is_err());
    assert_eq!(context.book.next_change(NOW), None);
}

#[test]
fn the_file_watch_reports_its_path() {
    let context = ReloadFixture::new();
    assert_eq!(context.watch.path(), Path::new(&context.path));
}
