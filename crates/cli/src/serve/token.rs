//! `leasehold token`: create API tokens for the daemon.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use leasehold::clock::{BootClock, Clock};
use leasehold_core::rng::OsRandom;
use leasehold_server::auth::{NewToken, Tokens};

use super::TokenArgs;
use super::args::TokenCommand;
use crate::message::print_message;

/// Creates a token, adds its hash to the file, and prints the token once.
pub(crate) fn main(args: TokenArgs) -> anyhow::Result<bool> {
    let TokenCommand::New { id, grants, expires, file } = args.command;
    let shown = file.display();
    let expires = expires.map(|lasting| expiry_time(BootClock.wall(), lasting)).transpose()?;
    if file.exists() {
        // Refuse to append to a file that the daemon could not read.
        Tokens::open(&file, BootClock::shared())?;
    }
    let new = NewToken::make(&id, &grants, expires, &OsRandom).map_err(anyhow::Error::msg)?;
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    let gap = if before.is_empty() || before.ends_with("\n\n") { "" } else { "\n" };
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&file)
        .and_then(|mut out| out.write_all(format!("{gap}{}", new.entry).as_bytes()))
        .with_context(|| format!("cannot write {shown}"))?;
    if let Err(error) = Tokens::open(&file, BootClock::shared()) {
        // The new entry made the file invalid, e.g. by a duplicate id: restore it.
        std::fs::write(&file, before).with_context(|| format!("cannot restore {shown}"))?;
        return Err(error.into());
    }
    writeln!(std::io::stdout(), "{}", new.token)?;
    print_message(&format!("{id} is in {shown} now; its token is shown this once only"));
    Ok(true)
}

/// The end of a token's validity.
fn expiry_time(now: SystemTime, lasting: Duration) -> anyhow::Result<jiff::Timestamp> {
    const FAR: &str = "--expires lies too far ahead";
    jiff::Timestamp::try_from(now.checked_add(lasting).context(FAR)?).context(FAR)
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
