//! The owner's token of a daemon without a tokens file: a new one at each start, in a file that only
//! the daemon's user can read. Commands of that user find it by the daemon's address.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use leasehold::http::owner_token_path;
use leasehold_core::atomic_file::{FileAccess, folder_of, replace_durably};
use leasehold_server::auth::OwnerToken;

/// The files of the token. They are removed when this is dropped.
pub(crate) struct OwnerTokenFiles {
    /// The token alone, for clients.
    token: PathBuf,
    /// The token as a header line for `curl -H @FILE`: in curl's arguments every user could read it.
    header: PathBuf,
    content: String,
}

impl OwnerTokenFiles {
    /// Writes the files of a daemon that listens on `address`.
    pub(crate) fn write(address: SocketAddr, token: &OwnerToken) -> anyhow::Result<Self> {
        let path = owner_token_path(address).context(
            "neither XDG_STATE_HOME nor HOME says where the token of this daemon can go\n\
             set one of them, or name a file of API tokens with --tokens",
        )?;
        let files = Self {
            header: path.with_file_name(format!("{address}.header")),
            token: path,
            content: format!("{}\n", token.expose()),
        };
        make_private_folder(folder_of(&files.token))?;
        let header = format!("authorization: Bearer {}", files.content);
        for (path, content) in [(&files.token, &files.content), (&files.header, &header)] {
            replace_durably(path, FileAccess::Private, content.as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(files)
    }

    /// The header line's file.
    pub(crate) fn header(&self) -> &Path {
        &self.header
    }
}

impl Drop for OwnerTokenFiles {
    fn drop(&mut self) {
        // The next daemon at this address may have written its own token already.
        if fs::read_to_string(&self.token).is_ok_and(|found| found == self.content) {
            let _ = fs::remove_file(&self.token);
            let _ = fs::remove_file(&self.header);
        }
    }
}

fn make_private_folder(folder: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot make {}", folder.display());
    DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(failed)?;
    let meta = fs::metadata(folder).with_context(failed)?;
    if meta.uid() != rustix::process::geteuid().as_raw() {
        bail!("{} belongs to another user; remove it, or set XDG_STATE_HOME", folder.display());
    }
    if meta.mode() & 0o077 != 0 {
        fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).with_context(failed)?;
    }
    Ok(())
}
