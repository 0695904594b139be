//! The owner token of a daemon on this machine.
//!
//! A daemon without a tokens file makes a token at each start, in a file that only its user can
//! read. Clients of the same user find it by the daemon's loopback address; other users do not.

use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leasehold_core::store::StoreError;
use leasehold_core::url_options::{misconfigured, unreadable_file};
use rustix::fs::{Mode, OFlags};

// Longer than any token; keeps a wrong file from being read into memory.
const MAX_TOKEN_FILE_BYTES: u64 = 4096;

/// The file of the owner token of a daemon that listens on `address`; `None` if neither
/// `XDG_STATE_HOME` nor `HOME` is set.
#[must_use]
pub fn owner_token_path(address: SocketAddr) -> Option<PathBuf> {
    // XDG base directory specification: a relative path counts as not set.
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("leasehold/tokens").join(address.to_string()))
}

/// A token and the address of the daemon that it belongs to.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct OwnerToken {
    pub(crate) address: IpAddr,
    pub(crate) token: String,
}

impl OwnerToken {
    /// Finds the token of this user's daemon at a loopback host.
    ///
    /// # Errors
    /// There is a file, but it is not this user's or not private.
    pub(crate) fn find(host: &str, port: u16) -> Result<Option<Self>, StoreError> {
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) if address.is_loopback() => vec![address],
            Err(_) if host.eq_ignore_ascii_case("localhost") => {
                vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
            }
            _ => return Ok(None),
        };
        for address in addresses {
            let Some(path) = owner_token_path(SocketAddr::new(address, port)) else { return Ok(None) };
            if let Some(token) = read_owner_token(&path)? {
                return Ok(Some(Self { address, token }));
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerToken").field("address", &self.address).finish_non_exhaustive()
    }
}

fn read_owner_token(path: &Path) -> Result<Option<String>, StoreError> {
    let unreadable = |error: io::Error| unreadable_file("the daemon's token file", path, &error);
    // NONBLOCK: a named pipe must not stop the client.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        // Another user's folder: its daemon is not ours, and answers that itself.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::ACCESS) => {
            return Ok(None);
        }
        Err(error) => return Err(unreadable(error.into())),
    };
    let meta = file.metadata().map_err(unreadable)?;
    // A file of another user could hold a token of that user's choice.
    let own = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
    if !own || meta.mode() & 0o077 != 0 {
        return Err(misconfigured(format!(
            "the daemon's token file {} is not a private file of yours; remove it and start the daemon again",
            path.display()
        )));
    }
    let mut text = String::new();
    file.take(MAX_TOKEN_FILE_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    let token = text.lines().next().unwrap_or_default().trim();
    Ok(crate::options::looks_like_a_token(token).then(|| token.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn finding_08_only_a_private_file_of_our_own_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("127.0.0.1:7420");
        assert_eq!(read_owner_token(&path).unwrap(), None);
        std::fs::write(&path, "lk_local_0123456789abcdef\n").unwrap();
        for (mode, taken) in [(0o600, true), (0o640, false), (0o604, false), (0o400, true)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(read_owner_token(&path).is_ok(), taken, "{mode:o}");
        }
        assert_eq!(read_owner_token(&path).unwrap().as_deref(), Some("lk_local_0123456789abcdef"));
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read_owner_token(&link).is_err(), "a link could name another file");
        assert!(read_owner_token(folder.path()).is_err());
        if rustix::process::geteuid().is_root() {
            rustix::fs::chown(&path, Some(rustix::process::Uid::from_raw(65534)), None).unwrap();
            assert!(read_owner_token(&path).is_err(), "the file of another user");
        } else {
            eprintln!("NOT TESTED: the file of another user, because only root can make one");
        }
    }

    #[test]
    fn only_loopback_hosts_are_looked_up() {
        for host in ["10.0.0.1", "db.example", "localhost.example", "0.0.0.0", ""] {
            assert_eq!(OwnerToken::find(host, 7420).unwrap(), None, "{host}");
        }
    }
}
