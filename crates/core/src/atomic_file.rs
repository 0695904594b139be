//! Files that appear under their name complete or not at all, and never through a link.
//!
//! A predictable temporary name in a folder that others can write is a trap: a link planted there would lead the write
//! to another file. Names here are random, and creation fails if anything has the name.
//!
//! Names below `/dev` and `/proc` are streams and devices of the machine (`/dev/stdout`). They are written to and never
//! renamed: for root, a rename would replace them for every process.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::rng::{OsRandom, RandomExt};

/// Who may read a file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileAccess {
    /// Only the owner: 0600.
    Private,
    /// Only the owner: 0600. A file that exists keeps its mode and its owner: a service of another user must still be
    /// able to read what root has changed.
    PrivateKept,
    /// Every user of the machine, whatever the umask is: 0644. A file that exists keeps its mode.
    WorldReadable,
    /// As the umask says. A file that exists keeps its mode.
    Umask,
}

impl FileAccess {
    fn creation_mode(self) -> u32 {
        match self {
            Self::Private | Self::PrivateKept => 0o600,
            Self::WorldReadable => 0o644,
            Self::Umask => 0o666,
        }
    }
}

/// Creates a file that must not exist yet. A link of that name counts as existing.
///
/// # Errors
/// The name is taken, or the folder does not allow it.
pub fn create(path: &Path, access: FileAccess) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(access.creation_mode()).custom_flags(no_follow());
    let file = options.open(path)?;
    if access == FileAccess::WorldReadable {
        file.set_permissions(Permissions::from_mode(access.creation_mode()))?;
    }
    Ok(file)
}

/// Opens a private file to append to it, or creates it.
///
/// # Errors
/// The name is a link, or the file or its folder does not allow it.
pub fn append_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(no_follow());
    options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => io::Error::other("it is a link; name the file itself"),
        _ => error,
    })
}

fn no_follow() -> i32 {
    i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default()
}

/// Replaces a file, or creates it: readers see the old content or the new one. A link is replaced, not followed.
///
/// # Errors
/// The folder or the disk does not allow it; the old file is unchanged then.
pub fn replace(path: &Path, access: FileAccess, content: &[u8]) -> io::Result<()> {
    replace_with(path, access, |file| file.write_all(content))
}

/// Like [`replace`], and the content survives a crash of the machine.
///
/// # Errors
/// As [`replace`].
pub fn replace_durably(path: &Path, access: FileAccess, content: &[u8]) -> io::Result<()> {
    replace_with(path, access, |file| {
        file.write_all(content)?;
        file.sync_all()
    })?;
    sync_folder(path)
}

/// The folder of a file; `.` for a bare name.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names in the folder of `path` durable: without it, a crash of the machine could undo a rename.
///
/// # Errors
/// The folder cannot be opened, or the disk failed.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// Tries whether [`replace`] can write a file of this name, and leaves nothing behind.
///
/// # Errors
/// As [`replace`].
pub fn check_writable(path: &Path) -> io::Result<()> {
    if let Some(folder) = device_folder(path)? {
        return open_device(&folder, path).map(drop);
    }
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let temporary = temporary_name(path);
    drop(create(&temporary, FileAccess::Private)?);
    fs::remove_file(&temporary)
}

// In the same folder: a rename is atomic only within one file system.
fn temporary_name(path: &Path) -> PathBuf {
    path.with_file_name(format!(".leasehold-{:032x}", OsRandom.wide()))
}

/// Like [`replace`], for content that is written piece by piece.
///
/// # Errors
/// As [`replace`], and what `write` returns.
pub fn replace_with(
    path: &Path,
    access: FileAccess,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    // Only what people look at goes to a terminal or a pipe; a secret is always a file of its own.
    if matches!(access, FileAccess::Umask | FileAccess::WorldReadable)
        && let Some(folder) = device_folder(path)?
    {
        return write(&mut open_device(&folder, path)?);
    }
    let temporary = temporary_name(path);
    let mut file = create(&temporary, access)?;
    let written = (|| {
        if access != FileAccess::Private
            && let Some(old) = file_metadata(path)
        {
            let new = file.metadata()?;
            if access == FileAccess::PrivateKept && (new.uid(), new.gid()) != (old.uid(), old.gid()) {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(old.permissions().mode() & 0o777))?;
        }
        write(&mut file)?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// What is known of a regular file; not of a file behind a link.
fn file_metadata(path: &Path) -> Option<fs::Metadata> {
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)
}

/// The real folder of a name below `/dev` or `/proc`; `None` for all other names. Only the folder counts: elsewhere a
/// planted link could name a device.
fn device_folder(path: &Path) -> io::Result<Option<PathBuf>> {
    let folder = folder_of(path).canonicalize()?;
    // Shared memory is a folder of ordinary files.
    let is_device =
        (folder.starts_with("/dev") && !folder.starts_with("/dev/shm")) || folder.starts_with("/proc");
    Ok(is_device.then_some(folder))
}

/// Opens a device or a stream for writing. It is not created.
fn open_device(folder: &Path, path: &Path) -> io::Result<File> {
    // Opened by name, standard output as a file would be written at a position of its own, over what it has already.
    let standard = match (folder.to_str(), path.file_name().and_then(|name| name.to_str())) {
        (Some("/dev"), Some("stdout")) => Some(io::stdout().as_fd().try_clone_to_owned()?),
        (Some("/dev"), Some("stderr")) => Some(io::stderr().as_fd().try_clone_to_owned()?),
        _ => None,
    };
    match standard {
        Some(stream) => Ok(File::from(stream)),
        // A file behind `/dev/fd/3` belongs to the shell that opened it: nothing in it is overwritten.
        None => OpenOptions::new().append(true).open(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn links_are_replaced_and_modes_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (path, secret) = (folder.path().join("out"), folder.path().join("secret"));
        fs::write(&secret, "secret").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        assert_eq!(
            create(&path, FileAccess::Private).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists,
            "a link counts as existing"
        );
        assert!(append_private(&path).unwrap_err().to_string().contains("it is a link"));
        replace(&path, FileAccess::WorldReadable, b"one").unwrap();
        assert_eq!((fs::read_to_string(&secret).unwrap().as_str(), mode(&secret)), ("secret", 0o600));
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(mode(&path), 0o644);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        replace(&path, FileAccess::Umask, b"two").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("two", 0o640));
        replace_durably(&path, FileAccess::Private, b"three").unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        replace_durably(&path, FileAccess::PrivateKept, b"four").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("four", 0o640));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file stays");
    }

    #[test]
    fn a_kept_file_keeps_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        replace(&path, FileAccess::PrivateKept, b"one").unwrap();
        assert_eq!(mode(&path), 0o600);
        // Only root can give a file away; any other user has nothing to keep.
        let given = std::os::unix::fs::chown(&path, Some(65534), Some(65533)).is_ok();
        replace(&path, FileAccess::PrivateKept, b"two").unwrap();
        let (meta, own) = (fs::metadata(&path).unwrap(), fs::metadata(folder.path()).unwrap());
        let expected = if given { (65534, 65533) } else { (own.uid(), own.gid()) };
        assert_eq!((meta.uid(), meta.gid(), mode(&path)), (expected.0, expected.1, 0o600));
        replace(&path, FileAccess::Umask, b"three").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().uid(), own.uid(), "only a private file is given back");
        let _ = std::os::unix::fs::chown(&path, Some(65534), Some(65533));
        replace(&path, FileAccess::Private, b"four").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().uid(), own.uid(), "a private file becomes the writer's");
    }

    #[test]
    fn the_folder_of_a_bare_name_is_the_current_one() {
        assert_eq!(folder_of(Path::new("a")), Path::new("."));
        assert_eq!(folder_of(Path::new("/x/a")), Path::new("/x"));
        assert!(sync_folder(Path::new("/no such folder/a")).is_err());
        let folder = tempfile::tempdir().unwrap();
        sync_folder(&folder.path().join("not there")).unwrap();
    }

    #[test]
    fn a_failed_write_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        replace(&path, FileAccess::Umask, b"old").unwrap();
        let failed = replace_with(&path, FileAccess::Umask, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("disk full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "disk full");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn output_devices_are_written_to() {
        // A pipe, not /dev/null: a mistake in this code would replace that one for the whole machine.
        let (mut reader, writer) = std::io::pipe().unwrap();
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        replace(Path::new(&path), FileAccess::Umask, b"x").unwrap();
        drop(writer);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "x");
    }

    /// Finding 20 of the security review: for root, a rename would replace `/dev/stdout` of the whole machine.
    #[test]
    fn finding_20_below_dev_nothing_is_replaced() {
        use std::os::fd::AsRawFd;
        // A regular file behind the name, as in `--metrics-file /dev/stdout > file`.
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("out")).unwrap();
        for below in ["/dev/fd", "/proc/self/fd", "/dev/../dev/fd"] {
            let path = format!("{below}/{}", file.as_raw_fd());
            replace(Path::new(&path), FileAccess::WorldReadable, b"x\n").unwrap();
        }
        assert_eq!(fs::read_to_string(folder.path().join("out")).unwrap(), "x\nx\nx\n");
        for path in ["/dev/stdout", "/dev/null", "/dev/pts/0", "/proc/self/fd/1"] {
            assert!(
                device_folder(Path::new(path)).is_ok_and(|folder| folder.is_some()) || path == "/dev/pts/0",
                "{path}"
            );
        }
        assert!(replace(Path::new("/dev/leasehold no such device"), FileAccess::Umask, b"x").is_err());
        // Ordinary files below /dev.
        let shared = tempfile::tempdir_in("/dev/shm").unwrap();
        replace(&shared.path().join("a"), FileAccess::Umask, b"one").unwrap();
        replace(&shared.path().join("a"), FileAccess::Umask, b"two").unwrap();
        assert_eq!(fs::read_to_string(shared.path().join("a")).unwrap(), "two");
    }

    /// By name, standard output as a file would be written from its beginning.
    #[test]
    fn finding_20_standard_streams_are_used_as_they_are_open() {
        let flags = |file: &dyn AsFd| rustix::fs::fcntl_getfl(file.as_fd()).unwrap();
        for (name, stream) in [("/dev/stdout", &io::stdout() as &dyn AsFd), ("/dev/stderr", &io::stderr())] {
            let opened = open_device(Path::new("/dev"), Path::new(name)).unwrap();
            assert_eq!(flags(&opened), flags(stream), "{name}");
        }
    }

    #[test]
    fn appending_follows_no_link_and_keeps_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (log, link) = (folder.path().join("log"), folder.path().join("link"));
        for line in [b"one\n", b"two\n"] {
            append_private(&log).unwrap().write_all(line).unwrap();
        }
        assert_eq!((fs::read_to_string(&log).unwrap().as_str(), mode(&log)), ("one\ntwo\n", 0o600));
        std::os::unix::fs::symlink(&log, &link).unwrap();
        assert!(append_private(&link).unwrap_err().to_string().contains("it is a link"));
        let missing = append_private(&folder.path().join("none/log")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn durable_files_are_written_and_their_folders_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        replace_durably(&path, FileAccess::Private, b"x").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("x", 0o600));
        sync_folder(&path).unwrap();
        assert!(sync_folder(&folder.path().join("none/key")).is_err());
    }

    #[test]
    fn a_file_that_cannot_be_written_is_seen_before_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        check_writable(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        check_writable(Path::new("/dev/null")).unwrap();
        assert!(check_writable(&folder.path().join("none/report")).is_err());
        fs::create_dir(&path).unwrap();
        assert!(check_writable(&path).is_err());
    }

    #[test]
    fn a_link_to_a_device_is_replaced_outside_of_dev() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        replace(&path, FileAccess::Umask, b"x").unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
    }

    #[test]
    fn the_umask_counts_where_it_should() {
        let folder = tempfile::tempdir().unwrap();
        let (by_umask, ours) = (folder.path().join("by umask"), folder.path().join("ours"));
        File::create(&by_umask).unwrap();
        replace(&ours, FileAccess::Umask, b"x").unwrap();
        assert_eq!(mode(&ours), mode(&by_umask));
    }
}
