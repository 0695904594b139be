//! `leasehold acquire`: take a lock for a script that renews and releases it itself.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCompleter, PathCompleter};
use leasehold::clock::{BootClock, Clock};
use leasehold::policy::duration::human;
use leasehold::policy::{Class, OnError, check_store, check_ttl};
use leasehold::store::{AcquireRequest, Grant, Promise, ReleaseRequest, StoreErrorKind};
use leasehold::{Holder, Name};
use leasehold_core::acquire::{AcquireDriver, AcquireOutcome, DriverIo, NoHooks, ReleaseDriver};
use leasehold_core::deadline::deadline;
use leasehold_core::rng::OsRandom;
use leasehold_core::{Deadline, RequestOptions, Token, shell, types};
use serde_json::json;

use crate::args::path;
use crate::complete;
use crate::config::Settings;
use crate::lease::short_duration;
use crate::message::print_message;
use crate::run::signals::Signals;
use crate::session::{StoreSession, call_within};
use crate::token_file::{TOKEN_FILE_VARIABLE, TokenFile};

/// Arguments of `leasehold acquire`.
#[derive(Debug, Args)]
#[command(after_long_help = ACQUIRE_HELP, after_help = "See --help for what it prints, exit codes and examples.")]
pub(crate) struct AcquireArgs {
    /// Do not wait: if another holder has the lock, end at once
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
    #[arg(long, value_name = "FILE", env = TOKEN_FILE_VARIABLE, hide_env_values = true, value_parser = path(), add = ArgValueCompleter::new(PathCompleter::file()))]
    pub(crate) token_file: Option<PathBuf>,
    /// What to print
    #[arg(short, long, value_enum, default_value_t = AcquireOutput::Env)]
    pub(crate) output: AcquireOutput,
    /// What to lock, e.g. job:42
    #[arg(add = ArgValueCompleter::new(complete::names))]
    pub(crate) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AcquireOutput {
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
  0 taken      1 another client holds it      2 error: nothing was taken, or what may have been was taken back

Examples:
  eval \"$(leasehold acquire deploy)\"; ./deploy \"$LEASEHOLD_FENCE\"; leasehold release
  leasehold acquire -n --ttl 5m --token-file /run/me/deploy.token deploy || exit
  leasehold renew --token-file /run/me/deploy.token
  leasehold release --token-file /run/me/deploy.token";

/// Takes a lock. Returns false if another holder has it.
pub(crate) fn main(settings: &Settings, args: &AcquireArgs) -> anyhow::Result<bool> {
    let name = Name::new(&args.name)?;
    let class = resolve_class(settings, args)?;
    let holder = settings.holder()?.unwrap_or_else(parent_holder);
    let session = StoreSession::open(settings)?;
    check_ttl(&class, &session.store.capabilities())?;
    if class.requires > Promise::Volatile {
        let within = class.acquire.timeout;
        // Only a class with requirements pays for this extra call.
        let promised = session.block_on(call_within(session.store.promise(within), within))?;
        check_store(&class, &promised)?;
    }
    let token = Token::fresh(&holder, &class.name, &OsRandom);
    let request =
        AcquireRequest::new(&name, token.clone(), class.ttl).with_lock_delay(class.release.lock_delay);
    // Before the token file is written: no lease can come of it.
    request.check_visible()?;
    let mut token_file = TokenFile {
        store: session.url.expose(),
        name,
        token,
        fence: None,
        ttl: class.ttl,
        lock_delay: class.release.lock_delay,
    };
    let file = token_path(args, &token_file)?;
    // Write the file before the request. If this process dies or the response is lost, `release` can
    // still take back what was granted.
    if let Some(file) = &file {
        token_file.create(file)?;
    }
    let io = session.driver_io();
    let undo_request = ReleaseRequest::undo(request.names.clone(), request.token.clone());
    let undo = || take_back(&io, &class, &undo_request);
    let outcome = session.block_on(async {
        let mut signals = Signals::listen()?;
        let wait = class.acquire.wait;
        let mut driver = AcquireDriver::new(io.clone(), Arc::clone(&class), wait, request, NoHooks);
        let outcome = tokio::select! {
            // Polled first: a grant that arrives together with a signal is kept instead of undone.
            biased;
            outcome = driver.run() => outcome.ok(),
            _ = signals.next_ending() => None,
        };
        if driver.needs_undo() && !matches!(outcome, Some(AcquireOutcome::Held { .. })) {
            undo().await;
        }
        outcome.ok_or_else(|| anyhow!("interrupted: nothing was taken"))
    });
    let remove_token_file = || {
        if let Some(file) = &file {
            let _ = std::fs::remove_file(file);
        }
    };
    match outcome {
        Ok(AcquireOutcome::Held { grant, sent_at }) => {
            token_file.fence = Some(grant.fence);
            let written = file.as_ref().map_or(Ok(()), |file| token_file.replace(file));
            let printed = written.and_then(|()| {
                let until = deadline(sent_at, class.granted_ttl(grant.ttl), &class);
                print_grant(&token_file, file.as_ref(), grant, Deadline::of_lease(until), args)
            });
            if printed.is_err() {
                // The caller got neither fence nor token, so it could not use or release this lock.
                session.block_on(undo());
                remove_token_file();
            }
            printed.map(|()| true)
        }
        Ok(AcquireOutcome::Busy(busy)) => {
            remove_token_file();
            let left = busy.remaining.map_or_else(String::new, |left| {
                format!(", for {} more unless renewed", short_duration(left))
            });
            print_message(&format!("{} is held by {}{left}", token_file.name, busy.holder));
            Ok(false)
        }
        // A fail-open lock lives in the process that holds it, and this process exits now.
        Ok(AcquireOutcome::Unavailable { cause, message } | AcquireOutcome::FallBack { cause, message }) => {
            remove_token_file();
            let why = format!("{cause}: {message}");
            Err(unavailable_error(&token_file.name, &class, &session, &why))
        }
        Ok(AcquireOutcome::TooLate) => {
            remove_token_file();
            let why = format!("{}: the grant came too late to be used", StoreErrorKind::TimedOut);
            Err(unavailable_error(&token_file.name, &class, &session, &why))
        }
        Err(error) => {
            remove_token_file();
            Err(error)
        }
    }
}

/// Releases a lease that the store may have granted, or may still grant, without a response. What cannot
/// be released within the class's attempts expires by itself.
async fn take_back(io: &DriverIo, class: &Arc<Class>, request: &ReleaseRequest) {
    let undo = ReleaseDriver::new(request.clone(), Arc::clone(class));
    let _ = undo.with_max_attempts(class.release.attempts).run(io).await;
}

fn resolve_class(settings: &Settings, args: &AcquireArgs) -> anyhow::Result<Arc<Class>> {
    let class = settings.policy_book()?.class(&args.class, BootClock.now())?;
    let mut options = RequestOptions::default();
    options.ttl = args.ttl;
    options.wait = args.nonblock.then_some(Duration::ZERO).or(args.wait);
    Ok(options.apply(&class)?)
}

/// The default holder: the parent process, because this process exits at once.
fn parent_holder() -> Holder {
    let me = Holder::of_this_process();
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().to_string());
    let host = me.as_str().rsplit_once(':').map(|(host, _)| host);
    let theirs = host.zip(parent).map(|(host, parent)| format!("{host}:{parent}"));
    theirs.and_then(|text| Holder::new(&text).ok()).unwrap_or(me)
}

/// The path of the token file; `None` means standard output.
fn token_path(args: &AcquireArgs, token_file: &TokenFile) -> anyhow::Result<Option<PathBuf>> {
    match &args.token_file {
        Some(file) if file.as_os_str() == "-" => Ok(None),
        Some(file) if !file.as_os_str().is_empty() => Ok(Some(std::path::absolute(file)?)),
        // Lock names may contain any character, so the file is named after fingerprints.
        _ => {
            let state = Settings::state_folder().ok_or_else(|| {
                anyhow!("neither XDG_STATE_HOME nor HOME says where the token can go: name a file with --token-file")
            });
            let called = format!(
                "{}-{}.token",
                types::fingerprint(token_file.name.as_str()),
                token_file.token.fingerprint()
            );
            Ok(Some(state?.join("tokens").join(called)))
        }
    }
}

fn print_grant(
    token_file: &TokenFile,
    file: Option<&PathBuf>,
    grant: Grant,
    deadline: Deadline,
    args: &AcquireArgs,
) -> anyhow::Result<()> {
    let valid = deadline.remaining(BootClock.now());
    let mut text = String::new();
    match (file, args.output) {
        // `--token-file -` prints the token file's text, whatever `-o` says.
        (None, _) => writeln!(text, "{}", token_file.to_text()?)?,
        (Some(file), AcquireOutput::Env) => {
            writeln!(text, "export LEASEHOLD_NAME={}", shell::quote(token_file.name.as_str()))?;
            writeln!(text, "export LEASEHOLD_FENCE={}", grant.fence)?;
            writeln!(text, "export {TOKEN_FILE_VARIABLE}={}", shell::quote(&file.display().to_string()))?;
        }
        (Some(file), AcquireOutput::Json) => {
            let all = json!({
                "schema_version": 1,
                "name": token_file.name.as_str(),
                "fence": grant.fence.to_string(),
                "token_file": file.display().to_string(),
                "store": leasehold::redact(&token_file.store),
                "ttl_ms": token_file.ttl.as_millis(),
                "valid_for_ms": u64::try_from(valid.as_millis()).unwrap_or(u64::MAX),
            });
            writeln!(text, "{all:#}")?;
        }
        (Some(_), AcquireOutput::Fence) => writeln!(text, "{}", grant.fence)?,
    }
    let mut out = crate::output::script_stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

fn unavailable_error(name: &Name, class: &Class, session: &StoreSession, why: &str) -> anyhow::Error {
    let policy = match class.acquire.on_error {
        OnError::FailClosed => "is fail-closed",
        OnError::FailOpen => "is fail-open, but only `run` and programs can hold a local lock",
    };
    anyhow!(
        "cannot lock {name}: {} is unavailable ({why})\n\
         class {} {policy}, so nothing was taken\n\
         check the store and the network (leasehold doctor) and try again after {}",
        session.url,
        class.name,
        human(class.acquire.retry_after)
    )
}
