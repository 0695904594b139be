//! Following the file: edits, renames, swapped links, bad files, no file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Invalid;
use leasehold_core::clock::Moment;
use leasehold_core::policy::{Change, ChangeKind, FileWatch, PolicyBook};

const NOW: Moment = Moment::from_nanos(7_000_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const FIRST: &str = "[class.report]\nttl = \"45s\"\n";

struct Scene {
    _folder: tempfile::TempDir,
    path: PathBuf,
    book: Arc<PolicyBook>,
    watch: FileWatch,
    now: Moment,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leasehold.toml");
        fs::write(&path, FIRST).unwrap();
        Self::at(folder, path)
    }

    fn at(folder: tempfile::TempDir, path: PathBuf) -> Self {
        let book = Arc::new(PolicyBook::from_file(&path).unwrap());
        let watch = FileWatch::new(Arc::clone(&book), &path);
        let mut scene = Self {
            _folder: folder,
            path,
            book,
            watch,
            now: NOW,
        };
        assert!(scene.look().is_none(), "nothing new at the start");
        scene
    }

    /// One look, that much after the last one.
    fn check_after(&mut self, pause: Duration) -> Option<Result<Vec<Change>, Invalid>> {
        self.now = self.now + pause;
        self.watch.check(self.now)
    }

    /// More looks than it takes to notice anything: what was told, at most once.
    fn look(&mut self) -> Option<Result<Vec<Change>, Invalid>> {
        let mut told: Vec<_> = (0..6)
            .filter_map(|_| self.check_after(Duration::from_secs(1)))
            .collect();
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

fn said(told: Option<Result<Vec<Change>, Invalid>>) -> Vec<String> {
    told.unwrap().unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn an_edit_is_in_force_without_a_restart() {
    let mut scene = Scene::new();
    let changes = scene.book.changes();
    scene.write("\n[class.report]\nttl = \"60s\"\n[class.fresh]\nttl = \"20s\"\n");
    let path = scene.path.display().to_string();
    assert_eq!(
        said(scene.look()),
        [
            format!("class.fresh (added: {path})"),
            format!("class.report.ttl: 45s -> 1m (reloaded: {path}:3)"),
            "class.report.drift: 470ms -> 620ms (reloaded: derived: 20ms + 1% of ttl)".to_owned(),
            "class.report.renew.every: 15s -> 20s (reloaded: built-in scheduler)".to_owned(),
        ]
    );
    assert_eq!(scene.ttl(), 60);
    assert!(changes.has_changed().unwrap());
}

#[test]
fn the_same_length_and_the_same_time_stamp_do_not_hide_an_edit() {
    let mut scene = Scene::new();
    let stamp = fs::metadata(&scene.path).unwrap().modified().unwrap();
    scene.write(&FIRST.replace("45s", "46s"));
    let file = fs::File::options().write(true).open(&scene.path).unwrap();
    file.set_modified(stamp).unwrap();
    drop(file);
    assert_eq!(scene.look().unwrap().unwrap().len(), 3);
    assert_eq!(scene.ttl(), 46);
}

#[test]
fn an_atomic_rename_is_an_edit() {
    let mut scene = Scene::new();
    let second = scene.path.with_extension("new");
    fs::write(&second, FIRST.replace("45s", "50s")).unwrap();
    fs::rename(&second, &scene.path).unwrap();
    assert!(scene.look().unwrap().is_ok());
    assert_eq!(scene.ttl(), 50);
}

#[test]
fn a_swapped_link_is_an_edit() {
    let folder = tempfile::tempdir().unwrap();
    let link =
        |target: &str, name: &str| std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
    fs::write(folder.path().join("v1.toml"), FIRST).unwrap();
    fs::write(folder.path().join("v2.toml"), FIRST.replace("45s", "50s")).unwrap();
    link("v1.toml", "leasehold.toml");
    link("v2.toml", "next");
    let path = folder.path().join("leasehold.toml");
    let mut scene = Scene::at(folder, path);
    fs::rename(scene.path.with_file_name("next"), &scene.path).unwrap();
    assert!(scene.look().unwrap().is_ok());
    assert_eq!(scene.ttl(), 50);
}

#[test]
fn a_bad_file_keeps_the_old_policy_and_is_told_once() {
    let mut scene = Scene::new();
    scene.write("[class.report]\nttl = 45\n");
    let why = scene.look().unwrap().unwrap_err().to_string();
    assert!(
        why.contains("leasehold.toml:2: class.report.ttl \"45\": has no unit"),
        "{why}"
    );
    assert!(
        why.ends_with("the policy that was loaded last stays in force"),
        "{why}"
    );
    assert_eq!(scene.ttl(), 45);
    assert!(scene.look().is_none(), "the same bad file is not told again");

    // Other bad content is other news; and so is the good file that was in force all along.
    scene.write("[class.report]\nttl = 46\n");
    assert!(scene.look().unwrap().is_err());
    scene.write(FIRST);
    assert_eq!(scene.look(), Some(Ok(Vec::new())), "mended");
    assert!(scene.look().is_none());
}

#[test]
fn a_file_that_is_gone_keeps_the_old_policy_and_is_told_once() {
    let mut scene = Scene::new();
    fs::remove_file(&scene.path).unwrap();
    let why = scene.look().unwrap().unwrap_err().to_string();
    assert!(
        why.contains("leasehold.toml is gone: put it back; the policy that was loaded last stays"),
        "{why}"
    );
    assert!(scene.look().is_none());
    assert_eq!(scene.ttl(), 45);
    scene.write(&FIRST.replace("45s", "50s"));
    assert!(scene.look().unwrap().is_ok());
    assert_eq!(scene.ttl(), 50);
}

#[test]
fn a_file_that_cannot_be_read_is_told_once() {
    let mut scene = Scene::new();
    fs::write(&scene.path, b"# \xff").unwrap();
    let why = scene.look().unwrap().unwrap_err().to_string();
    assert!(why.contains("not UTF-8"), "{why}");
    assert!(scene.look().is_none());
}

/// An editor that truncates and then writes: the moment in between is an empty file, which is a valid one.
#[test]
fn a_file_caught_half_written_does_not_count() {
    let mut scene = Scene::new();
    scene.write("");
    assert_eq!(scene.check_after(Duration::from_secs(1)), None);
    for _ in 0..4 {
        assert_eq!(
            scene.check_after(Duration::from_millis(100)),
            None,
            "looks in a hurry prove nothing"
        );
    }
    scene.write(&FIRST.replace("45s", "50s"));
    let told = scene.look().unwrap().unwrap();
    assert!(
        told.iter().all(|change| change.kind == ChangeKind::Reloaded),
        "never removed: {told:?}"
    );
    assert_eq!(scene.ttl(), 50);
}

#[test]
fn overrides_survive_a_reload() {
    let mut scene = Scene::new();
    scene
        .book
        .set("report", "ttl", "30s", "a test", HOUR, NOW)
        .unwrap();
    scene.write("[class.report]\nttl = \"60s\"\nmode = \"shadow\"\n");
    let said = said(scene.look());
    assert_eq!(said.len(), 1, "the ttl in force did not change: {said:?}");
    assert!(said[0].contains("mode: enforce -> shadow"));
    assert_eq!(scene.ttl(), 30);
    assert_eq!(
        scene.book.class("report", NOW + HOUR).unwrap().ttl.get(),
        Duration::from_secs(60)
    );
}

#[test]
fn a_file_refused_because_of_an_override_is_tried_again_when_that_is_gone() {
    let mut scene = Scene::new();
    scene
        .book
        .set("report", "renew.every", "30s", "a test", HOUR, NOW)
        .unwrap();
    scene.write("[class.report]\nttl = \"30s\"\n");
    let why = scene.look().unwrap().unwrap_err().to_string();
    assert!(
        why.contains("no retry fits before the deadline: usable time is ttl 30s"),
        "{why}"
    );
    assert!(why.starts_with("with the overrides in force, "), "{why}");
    assert_eq!(scene.ttl(), 45);
    assert!(scene.look().is_none());
    scene
        .book
        .set("report", "mode", "shadow", "another", HOUR, NOW)
        .unwrap();
    assert!(scene.look().is_none(), "tried again, but still the same trouble");
    scene.book.clear("report", "renew.every", NOW).unwrap();
    assert!(scene.look().unwrap().is_ok());
    assert_eq!(scene.ttl(), 30);
}

#[test]
fn a_class_that_is_gone_takes_its_overrides_along() {
    let mut scene = Scene::new();
    scene
        .book
        .set("report", "ttl", "30s", "a test", HOUR, NOW)
        .unwrap();
    scene.write("");
    let told = scene.look().unwrap().unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].kind, &*told[0].class), (ChangeKind::Removed, "report"));
    assert!(scene.book.class("report", NOW).is_err());
    assert_eq!(scene.book.next_change(NOW), None);
}

#[test]
fn it_says_what_it_follows() {
    let scene = Scene::new();
    assert_eq!(scene.watch.path(), Path::new(&scene.path));
}
