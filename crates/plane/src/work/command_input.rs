//! What a command receives: an environment of its own, and documents that may be too long for a variable.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use leasehold_core::rng::{OsRandom, RandomExt};
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

/// The files of one command. They are removed when this is dropped.
#[derive(Debug, Default)]
pub(super) struct CommandInput {
    files: Vec<PathBuf>,
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
            match input.write_file(&text) {
                Ok(path) => environment.push((file_variable, path.into())),
                // A short text does not need the file.
                Err(error) if fits => tracing::warn!(job = %job.id, %error, "{file_variable} is not set"),
                Err(error) => return Err(format!("cannot write the file of {file_variable}: {error}")),
            }
            if fits {
                environment.push((variable, text.into()));
            }
        }
        Ok(input)
    }

    fn write_file(&mut self, text: &str) -> std::io::Result<PathBuf> {
        // An unpredictable name, and never an existing file: the folder is shared with other users.
        let path = std::env::temp_dir().join(format!("leasehold-{:032x}.json", OsRandom.wide()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        self.files.push(path.clone());
        file.write_all(text.as_bytes())?;
        Ok(path)
    }
}

impl Drop for CommandInput {
    fn drop(&mut self) {
        for path in &self.files {
            let _ = std::fs::remove_file(path);
        }
    }
}
