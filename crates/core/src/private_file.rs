//! Which files with secrets are private enough to be used.
//!
//! A secret's file must have no permission bits for its group and for others. Two places are
//! excepted, because what they add is not another person's access: systemd's credentials and mounted
//! Kubernetes secrets.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Whether only the user of this process, and the system's administrator, can read the file.
///
/// # Errors
/// The file is not there, or its folder cannot be searched.
pub fn is_private(path: &Path) -> io::Result<bool> {
    let meta = std::fs::metadata(path)?;
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    Ok(meta.mode() & forbidden_mode_bits(path, &meta, credentials.as_deref()) == 0)
}

/// The permission bits that must be clear.
fn forbidden_mode_bits(path: &Path, meta: &Metadata, credentials: Option<&Path>) -> u32 {
    // systemd gives a credential (`LoadCredential=`) to the service through an access list, and an
    // access list shows up as group bits.
    if credentials.is_some_and(|folder| path.parent() == Some(folder)) {
        0o007
    } else if is_kubernetes_secret(path, meta) {
        0o037
    } else {
        0o077
    }
}

/// Whether this is root's file in a mounted Kubernetes secret. With `fsGroup` the kubelet adds group
/// read, for the pod's own group.
fn is_kubernetes_secret(path: &Path, meta: &Metadata) -> bool {
    let Some(folder) = path.parent() else { return false };
    // The kubelet writes each version into a folder of its own, and `..data` links to the current.
    let data = folder.join("..data");
    let linked = std::fs::symlink_metadata(&data).is_ok_and(|meta| meta.is_symlink() && meta.uid() == 0);
    let inside = match (path.canonicalize(), data.canonicalize()) {
        (Ok(file), Ok(data)) => file.parent() == Some(&data),
        _ => false,
    };
    // The mount itself is sticky and writable: others cannot replace root's entries in it.
    linked && inside && is_roots(meta, false) && root_folder(&data, false) && root_folder(folder, true)
}

fn root_folder(path: &Path, may_be_sticky: bool) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| is_roots(&meta, may_be_sticky))
}

fn is_roots(meta: &Metadata, may_be_sticky: bool) -> bool {
    meta.uid() == 0 && (meta.mode() & 0o022 == 0 || (may_be_sticky && meta.mode() & 0o1000 != 0))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn systemd_credentials_may_have_group_bits() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        fs::write(&file, "x").unwrap();
        let meta = fs::metadata(&file).unwrap();
        assert_eq!(forbidden_mode_bits(&file, &meta, Some(folder.path())), 0o007);
        assert_eq!(forbidden_mode_bits(&file, &meta, None), 0o077);
        assert_eq!(forbidden_mode_bits(&file, &meta, Some(Path::new("/run/credentials/x"))), 0o077);
    }

    #[test]
    fn finding_12_group_read_is_accepted_in_a_kubernetes_secret_only() {
        let folder = tempfile::tempdir().unwrap();
        let version = folder.path().join("..2026_11_18");
        fs::create_dir(&version).unwrap();
        symlink("..2026_11_18", folder.path().join("..data")).unwrap();
        symlink("..data/tokens.toml", folder.path().join("tokens.toml")).unwrap();
        let (file, mounted) = (version.join("tokens.toml"), folder.path().join("tokens.toml"));
        fs::write(&file, "x").unwrap();
        if fs::metadata(&file).unwrap().uid() != 0 {
            eprintln!("NOT TESTED: a Kubernetes secret is root's, and this test does not run as root");
            return;
        }
        for (mode, private) in [(0o400, true), (0o440, true), (0o460, false), (0o444, false), (0o600, true)] {
            fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(is_private(&mounted).unwrap(), private, "{mode:o}");
        }
        // The same file under another name is not in the mount.
        let plain = folder.path().join("plain");
        fs::write(&plain, "x").unwrap();
        fs::set_permissions(&plain, PermissionsExt::from_mode(0o440)).unwrap();
        assert!(!is_private(&plain).unwrap());
        // The kubelet's mount is sticky. In a folder where others can replace entries, the links
        // prove nothing.
        fs::set_permissions(&file, PermissionsExt::from_mode(0o440)).unwrap();
        for (mode, private) in [(0o1777, true), (0o777, false)] {
            fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(is_private(&mounted).unwrap(), private, "{mode:o}");
        }
    }

    #[test]
    fn a_folder_is_roots_if_others_cannot_replace_its_entries() {
        let folder = tempfile::tempdir().unwrap();
        if fs::metadata(folder.path()).unwrap().uid() != 0 {
            eprintln!("NOT TESTED: only root can make folders of root");
            return;
        }
        let cases = [
            (0, 0o755, false, true),
            (0, 0o775, false, false),
            (0, 0o775, true, false),
            (0, 0o1777, false, false),
            (0, 0o1777, true, true),
            (1, 0o755, false, false),
            (1, 0o1777, true, false),
        ];
        for (owner, mode, may_be_sticky, expected) in cases {
            std::os::unix::fs::chown(folder.path(), Some(owner), None).unwrap();
            fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(
                root_folder(folder.path(), may_be_sticky),
                expected,
                "{owner} {mode:o} {may_be_sticky}"
            );
        }
    }

    #[test]
    fn finding_12_a_folder_that_is_no_link_is_no_kubernetes_secret() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("..data");
        fs::create_dir(&data).unwrap();
        let (file, mounted) = (data.join("tokens.toml"), folder.path().join("tokens.toml"));
        fs::write(&file, "x").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o440)).unwrap();
        symlink("..data/tokens.toml", &mounted).unwrap();
        assert!(!is_private(&mounted).unwrap());
    }
}
