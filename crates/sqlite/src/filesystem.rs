//! Detects filesystems on which SQLite's file locks cannot be trusted.
//!
//! On network filesystems locks often do not work. Other hosts that reach the file have another
//! boot clock, so their lease times cannot be compared.

use std::path::Path;

use leasehold_core::store::{StoreError, StoreErrorKind};

use crate::error;

/// Filesystems that other machines may change, by the magic number of `statfs(2)`.
const NETWORK_FILESYSTEMS: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE (sshfs, virtiofs, s3fs, …)"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x564c, "NCP"),
    (0x786f_4256, "VirtualBox shared folder"),
];

/// Magic numbers of memory filesystems: tmpfs and ramfs.
const MEMORY_FILESYSTEMS: &[u32] = &[0x0102_1994, 0x8584_58f6];

/// Magic number of overlayfs, which container layers use.
const OVERLAYFS_MAGIC: u32 = 0x794c_7630;

/// The kind of filesystem under a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filesystem {
    /// A disk of this machine.
    Local,
    /// In memory: a reboot removes it, fence counters included.
    Memory,
    /// Other machines may use it too. Carries its name.
    Shared(&'static str),
}

impl Filesystem {
    /// Detects the filesystem under a folder.
    pub(crate) fn detect(folder: &Path) -> Result<Self, StoreError> {
        Ok(Self::from_magic(read_magic(folder)?))
    }

    fn from_magic(magic: u32) -> Self {
        match NETWORK_FILESYSTEMS.iter().find(|(known, _)| *known == magic) {
            Some((_, name)) => Self::Shared(name),
            None if MEMORY_FILESYSTEMS.contains(&magic) => Self::Memory,
            None => Self::Local,
        }
    }

    /// Refuses a shared filesystem, unless the operator allowed it.
    pub(crate) fn check(self, folder: &Path, allowed: bool) -> Result<(), StoreError> {
        match self {
            Self::Shared(kind) if !allowed => Err(StoreError::not_done(
                StoreErrorKind::Misconfigured,
                format!(
                    "{} is on {kind}, where file locks cannot be trusted and other hosts' clocks differ: put the file \
                     on a local disk, use a store with a server for several hosts, or allow it explicitly if this host \
                     alone uses the file",
                    folder.display()
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// Whether the folder is in a container layer: other containers do not see it, and it
/// is removed with the container.
pub(crate) fn is_container_layer(folder: &Path) -> bool {
    read_magic(folder).is_ok_and(|magic| magic == OVERLAYFS_MAGIC)
}

fn read_magic(folder: &Path) -> Result<u32, StoreError> {
    let found = rustix::fs::statfs(folder).map_err(|error| {
        error::prepare_error(error.into(), format_args!("cannot look at {}", folder.display()))
    })?;
    // The field is a signed long on some machines; the magic number is its
    // lower half on all of them.
    Ok((i128::from(found.f_type) & 0xffff_ffff) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_filesystems_are_refused_unless_allowed() {
        for magic in [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997] {
            let found = Filesystem::from_magic(magic);
            let refused = found.check(Path::new("/srv"), false).unwrap_err();
            assert_eq!((refused.kind, refused.unknown), (StoreErrorKind::Misconfigured, false));
            assert!(refused.message().contains("/srv"), "{refused}");
            found.check(Path::new("/srv"), true).unwrap();
        }
    }

    #[test]
    fn local_filesystems_are_accepted() {
        // ext4, xfs, btrfs, overlayfs, tmpfs.
        for magic in [0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630, 0x0102_1994] {
            Filesystem::from_magic(magic).check(Path::new("/srv"), false).unwrap();
        }
        assert_eq!(Filesystem::detect(Path::new("/proc")).unwrap(), Filesystem::Local);
        assert_eq!(Filesystem::from_magic(0x0102_1994), Filesystem::Memory);
    }
}
