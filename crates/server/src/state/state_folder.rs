//! Takes the state folder back from a group that something else has opened it to.
//!
//! At a mount, the kubelet gives the files of a volume to the pod's `fsGroup` and makes them writable for it.
//! The daemon refuses a state folder that others can look into, and would not start any more.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const GROUP_BITS: u32 = 0o070;
const OTHERS_BITS: u32 = 0o007;

/// Makes a folder in which a daemon has worked, and its files, private again if a group has got access. A
/// folder that is open to all users stays as it is, and is refused: who has read it is not known.
pub(crate) fn restore_private_modes(folder: &Path) {
    match restore(folder) {
        Ok(false) => {}
        Ok(true) => tracing::warn!(
            "{}: a group had access to the state folder; it is private again (in Kubernetes, set fsGroupChangePolicy: OnRootMismatch)",
            folder.display()
        ),
        Err(error) => tracing::warn!(%error, "{}: cannot be made private again", folder.display()),
    }
}

fn restore(folder: &Path) -> io::Result<bool> {
    let Ok(found) = fs::symlink_metadata(folder) else { return Ok(false) };
    // A folder without the daemon's files was never private: its mode is the user's decision.
    let is_state = fs::symlink_metadata(folder.join("daemon.db")).is_ok_and(|db| db.is_file());
    if !found.is_dir() || !is_state || !is_open_to_group(&found) {
        return Ok(false);
    }
    // The folder first: from then on, nobody else can exchange a file in it for a link.
    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let found = fs::symlink_metadata(&path)?;
        if found.is_file() && is_open_to_group(&found) {
            let private = found.mode() & 0o7777 & !GROUP_BITS;
            fs::set_permissions(&path, Permissions::from_mode(private))?;
        }
    }
    Ok(true)
}

/// Whether its group has access, and nobody else. Of another owner's files, nothing is changed.
fn is_open_to_group(found: &Metadata) -> bool {
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    is_own && found.mode() & GROUP_BITS != 0 && found.mode() & OTHERS_BITS == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn finding_07_only_a_daemons_folder_is_taken_back_from_a_group() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, db) = (folder.path(), folder.path().join("daemon.db"));
        let victim = tempfile::NamedTempFile::new().unwrap();
        set_mode(victim.path(), 0o660);
        // Not a daemon's folder: nothing in it is changed.
        set_mode(folder, 0o2770);
        restore_private_modes(folder);
        assert_eq!(mode(folder), 0o2770);
        fs::write(&db, "").unwrap();
        set_mode(&db, 0o660);
        std::os::unix::fs::symlink(victim.path(), folder.join("link")).unwrap();
        restore_private_modes(folder);
        assert_eq!((mode(folder) & 0o777, mode(&db)), (0o700, 0o600));
        assert_eq!(mode(victim.path()), 0o660, "a link is not followed");
        // Open to all users: who has read it is not known, and the daemon refuses it.
        set_mode(folder, 0o755);
        restore_private_modes(folder);
        assert_eq!(mode(folder), 0o755);
    }
}
