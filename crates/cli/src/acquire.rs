//! `leasehold acquire`: take a lock for a script, which renews and releases it itself.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCompleter, PathCompleter};
use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::leasehold_core::deadline::deadline;
use leasehold::leasehold_core::rng::OsRandom;
use leasehold::leasehold_core::{Token, Tweaks, word};
use leasehold::policy::duration::human;
use leasehold::policy::{Class, OnError, check_store};
use leasehold::store::{Ask, Grant, Promise};
use leasehold::{Holder, Name};
use serde_json::json;

use crate::args::{Place, path};
use crate::complete;
use crate::config::Config;
use crate::desk::{Desk, asked};
use crate::lease::short;
use crate::run::signals::Signals;
use crate::say::say;
use crate::taking::{Taken, Taking};
use crate::ticket::{Ticket, VARIABLE};

/// `leasehold acquire`.
#[derive(Debug, Args)]
#[command(after_long_help = ACQUIRE_HELP, after_help = "See --help for what it prints, exit codes and examples.")]
pub(crate) struct AcquireArgs {
    /// Do not wait: if someone else has the lock, end at once
    #[arg(short = 'n', long = "nonblock", conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Wait at most this long for the lock, e.g. 30s; as long as the class says if not given
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) wait: Option<Duration>,
    /// The risk class: time to live, waiting, what the store must promise
    #[arg(long, default_value = "scheduler", add = ArgValueCompleter::new(complete::classes))]
    pub(crate) class: String,
    /// The lease's time to live instead of the class's
    #[arg(long, value_name = "DURATION", value_parser = crate::span::parse)]
    pub(crate) ttl: Option<Duration>,
    /// Where the token goes, in a file that only you can read; `-` prints it; in the state folder if not given
    #[arg(long, value_name = "FILE", env = VARIABLE, hide_env_values = true, value_parser = path(), add = ArgValueCompleter::new(PathCompleter::file()))]
    pub(crate) token_file: Option<PathBuf>,
    /// What to print
    #[arg(short, long, value_enum, default_value_t = Papers::Env)]
    pub(crate) output: Papers,
    /// What to lock, e.g. job:42
    #[arg(add = ArgValueCompleter::new(complete::names))]
    pub(crate) name: String,
}

/// What to print of a lock that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Papers {
    /// Shell assignments, for eval
    Env,
    /// One JSON document
    Json,
    /// The fence alone
    Fence,
}

const ACQUIRE_HELP: &str = "\
What it is:
  The lock is taken and this command ends: nothing renews it. Renew it yourself well before it runs out
  (`leasehold renew`, about every third of the time to live), stop your work when `renew` says that it is lost or when
  the time that was printed is over, and give it back with `leasehold release`. `leasehold run` does all of that for you
  and ends your command in time: prefer it where a command can be named.

What it prints:
  -o env    LEASEHOLD_NAME, LEASEHOLD_FENCE and LEASEHOLD_TOKEN_FILE, to be read by eval
  -o json   name, fence, token_file, ttl_ms, valid_for_ms (until your work must have stopped), schema_version
  -o fence  the fence: send it with each write
  The token itself is in the token file only (readable by you alone), or, with --token-file -, printed as that file's text.

Exit codes:
  0 taken      1 someone else has it      2 error: nothing was taken, or what may have been was taken back

Examples:
  eval \"$(leasehold acquire deploy)\"; ./deploy \"$LEASEHOLD_FENCE\"; leasehold release
  leasehold acquire -n --ttl 5m --token-file /run/me/deploy.token deploy || exit
  leasehold renew --token-file /run/me/deploy.token
  leasehold release --token-file /run/me/deploy.token";

/// Takes a lock; answers whether it was to be had.
pub(crate) fn main(place: &Place, args: &AcquireArgs) -> anyhow::Result<bool> {
    let name = Name::new(&args.name)?;
    let class = class(place, args)?;
    let holder = place.holder()?.unwrap_or_else(of_parent);
    let desk = Desk::open(place)?;
    if class.requires > Promise::Volatile {
        let within = class.acquire.timeout;
        let promised = desk.wait(asked(desk.store.promise(within), within))?;
        check_store(&class, &promised)?;
    }
    let token = Token::fresh(&holder, &class.name, &OsRandom);
    let ask = Ask {
        lock_delay: class.release.lock_delay,
        ..Ask::new(name.clone(), token.clone(), class.ttl)
    };
    let mut ticket = Ticket {
        store: desk.url.to_string(),
        name,
        token,
        fence: None,
        ttl: class.ttl,
        lock_delay: class.release.lock_delay,
    };
    let file = token_file(args, &ticket)?;
    // Before anything is asked: if we die now or the answer is lost, `release` can still take back what was granted.
    if let Some(file) = &file {
        ticket.create(file)?;
    }
    let mut taking = Taking::new(&desk.store, &class, ask);
    let taken = desk.wait(async {
        let mut signals = Signals::listen()?;
        tokio::select! {
            biased;
            taken = taking.take() => return Ok(taken),
            _ = signals.ending() => {}
        }
        taking.undo().await;
        bail!("interrupted: nothing was taken");
    });
    let forget = || {
        if let Some(file) = &file {
            let _ = std::fs::remove_file(file);
        }
    };
    match taken {
        Ok(Taken::Granted { grant, sent_at }) => {
            ticket.fence = Some(grant.fence);
            let written = file.as_ref().map_or(Ok(()), |file| ticket.replace(file));
            let printed = written.and_then(|()| {
                let until = deadline(sent_at, class.counted(grant.ttl), &class);
                print(&ticket, file.as_ref(), grant, until, args)
            });
            if printed.is_err() {
                // A lock whose fence and token nobody got is of no use to anyone.
                desk.wait(taking.undo());
                forget();
            }
            printed.map(|()| true)
        }
        Ok(Taken::Busy(busy)) => {
            forget();
            let left = busy.remaining.map_or_else(String::new, |left| {
                format!(", for {} more unless renewed", short(left))
            });
            say(&format!("{} is held by {}{left}", ticket.name, busy.holder));
            Ok(false)
        }
        Ok(Taken::Unavailable { cause, message }) => {
            forget();
            Err(unavailable(
                &ticket.name,
                &class,
                &desk,
                &format!("{cause}: {message}"),
            ))
        }
        Err(error) => {
            forget();
            Err(error)
        }
    }
}

fn class(place: &Place, args: &AcquireArgs) -> anyhow::Result<Arc<Class>> {
    let class = place.book()?.class(&args.class, BootClock.now())?;
    let mut tweaks = Tweaks::default();
    tweaks.ttl = args.ttl;
    tweaks.wait = args.nonblock.then_some(Duration::ZERO).or(args.wait);
    Ok(tweaks.apply(&class)?)
}

/// This process ends at once; whoever started it is who holds.
fn of_parent() -> Holder {
    let me = Holder::of_this_process();
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().to_string());
    let host = me.as_str().rsplit_once(':').map(|(host, _)| host);
    let theirs = host.zip(parent).map(|(host, parent)| format!("{host}:{parent}"));
    theirs.and_then(|text| Holder::new(&text).ok()).unwrap_or(me)
}

/// Where the token goes; `None` is standard output.
fn token_file(args: &AcquireArgs, ticket: &Ticket) -> anyhow::Result<Option<PathBuf>> {
    match &args.token_file {
        Some(file) if file.as_os_str() == "-" => Ok(None),
        Some(file) if !file.as_os_str().is_empty() => Ok(Some(std::path::absolute(file)?)),
        // A name can be anything, so the file is called by its fingerprint.
        _ => {
            let state = Config::state_folder().ok_or_else(|| {
                anyhow::anyhow!("neither XDG_STATE_HOME nor HOME says where the token can go: name a file with --token-file")
            });
            let called = format!(
                "{}-{}.token",
                word::fingerprint(ticket.name.as_str()),
                ticket.token.fingerprint()
            );
            Ok(Some(state?.join("tokens").join(called)))
        }
    }
}

fn print(
    ticket: &Ticket,
    file: Option<&PathBuf>,
    grant: Grant,
    until: Moment,
    args: &AcquireArgs,
) -> anyhow::Result<()> {
    let valid = until.since(BootClock.now());
    let mut text = String::new();
    match (file, args.output) {
        // Asked for: the papers themselves, whatever else could be printed.
        (None, _) => writeln!(text, "{}", ticket.to_text()?)?,
        (Some(file), Papers::Env) => {
            writeln!(text, "export LEASEHOLD_NAME={}", quoted(ticket.name.as_str()))?;
            writeln!(text, "export LEASEHOLD_FENCE={}", grant.fence)?;
            writeln!(text, "export {VARIABLE}={}", quoted(&file.display().to_string()))?;
        }
        (Some(file), Papers::Json) => {
            let all = json!({
                "schema_version": 1,
                "name": ticket.name.as_str(),
                "fence": grant.fence.to_string(),
                "token_file": file.display().to_string(),
                "store": ticket.store,
                "ttl_ms": ticket.ttl.as_millis(),
                "valid_for_ms": u64::try_from(valid.as_millis()).unwrap_or(u64::MAX),
            });
            writeln!(text, "{all:#}")?;
        }
        (Some(_), Papers::Fence) => writeln!(text, "{}", grant.fence)?,
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// So that a shell takes it as it is: names may contain every sign that a shell finds special.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn unavailable(name: &Name, class: &Class, desk: &Desk, why: &str) -> anyhow::Error {
    let policy = match class.acquire.on_error {
        OnError::FailClosed => "is fail-closed",
        OnError::FailOpen => "is fail-open, but only `run` and programs can hold a local lock",
    };
    anyhow::anyhow!(
        "cannot lock {name}: {} is unavailable ({why})\n\
         class {} {policy}, so nothing was taken\n\
         mend the store or the way to it (leasehold doctor) and try again after {}",
        desk.url,
        class.name,
        human(class.acquire.retry_after)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for text in ["job:42", "a'b", "$(reboot)", "`x`;\"y\"\\", "''"] {
            let read = std::process::Command::new("/bin/sh")
                .args(["-c", &format!("printf %s {}", quoted(text))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(read.stdout).unwrap(), text);
        }
    }
}
