//! What a command receives: an environment of its own, and documents that may be too long for a variable.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, memfd_create};
use serde_json::Value;

use crate::job::Job;

/// Linux refuses a command with a variable of 128 KiB; the rest is room for its name.
const MAX_VARIABLE_BYTES: usize = 96 * 1024;

/// The variables of the replica that every command inherits, besides `LC_*`. The replica's own secrets and
/// store URLs are not its commands' business.
const INHERITED_VARIABLES: [&str; 8] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL"];

/// The names of this process's variables that a command inherits.
pub(super) fn inherited_variables(pass_env: &[OsString]) -> Vec<OsString> {
    let inherits = |name: &OsStr| {
        INHERITED_VARIABLES.iter().any(|inherited| name == *inherited)
            || name.to_str().is_some_and(|name| name.starts_with("LC_"))
            || pass_env.iter().any(|passed| passed == name)
    };
    std::env::vars_os().map(|(name, _)| name).filter(|name| inherits(name)).collect()
}

/// The documents of one command, as anonymous files of this process. They vanish when this is dropped, and also when
/// this process is killed.
#[derive(Debug, Default)]
pub(super) struct CommandInput {
    files: Vec<OwnedFd>,
}

impl CommandInput {
    /// Adds the variables of payload and resources. A text that is too long for a variable is only in the file.
    pub(super) fn prepare(
        job: &Job,
        resources: &Value,
        environment: &mut Vec<(&'static str, OsString)>,
    ) -> Result<Self, String> {
        let mut input = Self::default();
        let documents = [
            ("LEASEHOLD_PAYLOAD", "LEASEHOLD_PAYLOAD_FILE", job.spec.payload.to_string()),
            ("LEASEHOLD_RESOURCES", "LEASEHOLD_RESOURCES_FILE", resources.to_string()),
        ];
        for (variable, file_variable, text) in documents {
            let fits = text.len() <= MAX_VARIABLE_BYTES;
            match input.add_file(&text) {
                Ok(path) => environment.push((file_variable, path.into())),
                // A short text does not need the file.
                Err(error) if fits => tracing::warn!(job = %job.id, %error, "{file_variable} is not set"),
                Err(error) => return Err(format!("cannot make the file of {file_variable}: {error}")),
            }
            if fits {
                environment.push((variable, text.into()));
            }
        }
        Ok(input)
    }

    /// Makes an anonymous file with this text. Returns the name under which processes of the same user open it.
    fn add_file(&mut self, text: &str) -> std::io::Result<String> {
        // CLOEXEC: an inherited descriptor would also reach other commands that are started at the same time.
        let file = memfd_create("leasehold-input", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        fchmod(&file, Mode::RUSR)?;
        let mut file = File::from(file);
        file.write_all(text.as_bytes())?;
        let file = OwnedFd::from(file);
        // The command reads it by its name, and could otherwise change it.
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        self.files.push(file);
        Ok(path)
    }
}
