//! Is the file where SQLite's locks lock? On network filesystems they often do not, and the other hosts that
//! could reach the file count time on another boot clock.

use std::path::Path;

use leasehold_core::store::{Cause, Failure};

use crate::error;

/// Filesystems whose files other machines may change, by the magic number of `statfs(2)`.
const SHARED: &[(u32, &str)] = &[
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

/// The magic number of memory filesystems.
const MEMORY: &[u32] = &[0x0102_1994, 0x8584_58f6];

/// The magic number of the layers that containers are made of.
const LAYERED: u32 = 0x794c_7630;

/// What a folder lies on, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filesystem {
    /// This machine's own disk.
    Local,
    /// This machine's memory: gone after a reboot, fence counters included.
    Memory,
    /// Other machines may use it too.
    Shared(&'static str),
}

impl Filesystem {
    /// Looks at the filesystem under a folder.
    pub(crate) fn of(folder: &Path) -> Result<Self, Failure> {
        Ok(Self::from_magic(magic(folder)?))
    }

    fn from_magic(magic: u32) -> Self {
        match SHARED.iter().find(|(known, _)| *known == magic) {
            Some((_, name)) => Self::Shared(name),
            None if MEMORY.contains(&magic) => Self::Memory,
            None => Self::Local,
        }
    }

    /// Refuses a shared one, unless the operator answers for it.
    pub(crate) fn check(self, folder: &Path, allowed: bool) -> Result<(), Failure> {
        match self {
            Self::Shared(kind) if !allowed => Err(Failure::not_done(
                Cause::Misconfigured,
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

/// Is it a container's own layer, which other containers do not see and which goes with it?
pub(crate) fn is_layered(folder: &Path) -> bool {
    magic(folder).is_ok_and(|magic| magic == LAYERED)
}

fn magic(folder: &Path) -> Result<u32, Failure> {
    let found = rustix::fs::statfs(folder).map_err(|error| {
        error::preparing(error.into(), format_args!("cannot look at {}", folder.display()))
    })?;
    // The kernel's field is a signed long on some machines; the magic is its lower half everywhere.
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
            assert_eq!((refused.cause, refused.unknown), (Cause::Misconfigured, false));
            assert!(refused.message().contains("/srv"), "{refused}");
            found.check(Path::new("/srv"), true).unwrap();
        }
    }

    #[test]
    fn local_filesystems_are_not() {
        // ext4, xfs, btrfs, overlayfs, tmpfs.
        for magic in [0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630, 0x0102_1994] {
            Filesystem::from_magic(magic)
                .check(Path::new("/srv"), false)
                .unwrap();
        }
        assert_eq!(Filesystem::of(Path::new("/proc")).unwrap(), Filesystem::Local);
        assert_eq!(Filesystem::from_magic(0x0102_1994), Filesystem::Memory);
    }
}
