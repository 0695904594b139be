//! `leasehold token`: create API tokens for the daemon.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use leasehold::clock::{BootClock, Clock};
use leasehold_core::atomic_file::{FileAccess, folder_of, replace_durably};
use leasehold_core::rng::OsRandom;
use leasehold_server::auth::{NewToken, Tokens};
use rustix::fs::FlockOperation;

use super::TokenArgs;
use super::args::TokenCommand;
use crate::message::print_message;

/// Creates a token, adds its hash to the file, and prints the token once.
pub(crate) fn main(args: TokenArgs) -> anyhow::Result<bool> {
    let TokenCommand::New { id, grants, expires, file } = args.command;
    let shown = file.display();
    let expires = expires.map(|lasting| expiry_time(BootClock.wall(), lasting)).transpose()?;
    let new = NewToken::make(&id, &grants, expires, &OsRandom).map_err(anyhow::Error::msg)?;
    add_entry(&file, &new.entry).with_context(|| format!("nothing was added to {shown}"))?;
    writeln!(crate::output::script_stdout(), "{}", new.token)?;
    print_message(&format!("{id} is in {shown} now; its token is shown this once only"));
    Ok(true)
}

/// Adds an entry to the tokens file. The file is replaced as a whole: a daemon that reads it meanwhile
/// sees all entries of before or all of after.
fn add_entry(file: &Path, entry: &str) -> anyhow::Result<()> {
    // The file behind a link is replaced, not the link.
    let path = if fs::symlink_metadata(file).is_ok() { file.canonicalize()? } else { file.to_owned() };
    // The folder is locked, because the file itself is another one after each change.
    let folder = File::open(folder_of(&path))?;
    rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
    let before = match fs::read_to_string(&path) {
        Ok(text) => {
            // Also refuses a file that others can read, as the daemon would.
            Tokens::open(&path, BootClock::shared())?;
            text
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.into()),
    };
    let gap = if before.is_empty() || before.ends_with("\n\n") { "" } else { "\n" };
    let text = format!("{before}{gap}{entry}");
    Tokens::check(&path, &text)?;
    Ok(replace_durably(&path, FileAccess::PrivateKept, text.as_bytes())?)
}

/// The end of a token's validity.
fn expiry_time(now: SystemTime, lasting: Duration) -> anyhow::Result<jiff::Timestamp> {
    const EXPIRY_TOO_FAR: &str = "--expires lies too far ahead";
    jiff::Timestamp::try_from(now.checked_add(lasting).context(EXPIRY_TOO_FAR)?).context(EXPIRY_TOO_FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_beyond_the_calendar_is_refused() {
        let in_a_century = expiry_time(SystemTime::UNIX_EPOCH, crate::span::MAX_DURATION).unwrap();
        assert!(in_a_century.to_string().starts_with("2069-12-"), "{in_a_century}");
        for lasting in [Duration::from_secs(i64::MAX.unsigned_abs()), Duration::MAX] {
            let message = expiry_time(SystemTime::UNIX_EPOCH, lasting).unwrap_err().to_string();
            assert!(message.contains("--expires"), "{message}");
        }
    }
}
