//! `leasehold completions`, and the answers to a shell that completes a command line.
//!
//! Verbs and options come from the clap definition. Lock names come from the store and classes from the
//! policies at that moment. A slow store is skipped, and completion never creates anything. It does not read the
//! folder's `leasehold.toml`, and it skips a store whose URL names a secret.

use std::ffi::OsStr;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, ValueEnum};
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::{CompleteEnv, Shells};
use leasehold::policy::PolicyBook;
use leasehold::store::Lease;

use crate::args::{Cli, GlobalArgs};
use crate::config::Settings;
use crate::session::call_within;

/// The environment variable that a shell sets to request completions.
const COMPLETE_VARIABLE: &str = "COMPLETE";
// The limit for the store: a shell blocks its prompt until the completion ends.
const COMPLETION_TIMEOUT: Duration = Duration::from_millis(500);
/// The most names offered for one completion.
const MAX_COMPLETIONS: usize = 200;
// clap's bash script does not complete a name after its colon (`job:`); this one does.
const BASH_SCRIPT: &str = include_str!("complete.bash");

/// Arguments of `leasehold completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Lock names are completed from the store and classes from the policies, as they are when you press TAB.

Examples:
  source <(leasehold completions bash)                              # in ~/.bashrc
  leasehold completions zsh > ~/.zfunc/_leasehold                   # a folder of $fpath
  leasehold completions fish > ~/.config/fish/completions/leasehold.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell to write for
    pub(crate) shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Elvish,
    Fish,
    #[value(name = "powershell")]
    Power,
    Zsh,
}

/// Answers a completion request and exits; returns if there is none.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(Cli::command).var(COMPLETE_VARIABLE).complete();
}

/// Prints the completion script of a shell.
pub(crate) fn main(args: &CompletionsArgs) -> anyhow::Result<bool> {
    let name = match args.shell {
        Shell::Bash => {
            std::io::Write::write_all(&mut crate::output::script_stdout(), BASH_SCRIPT.as_bytes())?;
            return Ok(true);
        }
        Shell::Elvish => "elvish",
        Shell::Fish => "fish",
        Shell::Power => "powershell",
        Shell::Zsh => "zsh",
    };
    let shells = Shells::builtins();
    let shell = shells.completer(name).context("this build does not know that shell")?;
    // By name and not by path: the script stays valid when the binary moves.
    let mut script = Vec::new();
    shell.write_registration(COMPLETE_VARIABLE, "leasehold", "leasehold", "leasehold", &mut script)?;
    std::io::Write::write_all(&mut crate::output::script_stdout(), &script)?;
    Ok(true)
}

/// Completes names of held locks.
pub(crate) fn names(typed: &OsStr) -> Vec<CompletionCandidate> {
    let found = typed.to_str().and_then(|prefix| held_leases(prefix).ok());
    let candidate = |lease: Lease| {
        let help = format!("held by {}", lease.holder);
        CompletionCandidate::new(lease.name.to_string()).help(Some(help.into()))
    };
    // A name that begins with a dash would become an option of the command line.
    let is_argument = |lease: &Lease| !lease.name.as_str().starts_with('-');
    found.unwrap_or_default().into_iter().filter(is_argument).map(candidate).collect()
}

/// Completes class names.
pub(crate) fn classes(typed: &OsStr) -> Vec<CompletionCandidate> {
    let book = typed_settings()
        .and_then(|settings| settings.policy_book())
        .unwrap_or_else(|_| PolicyBook::builtin());
    let fits = |name: &std::sync::Arc<str>| typed.to_str().is_some_and(|typed| name.starts_with(typed));
    let candidate = |name: std::sync::Arc<str>| CompletionCandidate::new(name.as_ref());
    book.classes().into_iter().filter(fits).map(candidate).collect()
}

fn held_leases(prefix: &str) -> anyhow::Result<Vec<Lease>> {
    let settings = typed_settings()?;
    // A TAB must not send a password or token: the user has not asked for a connection yet.
    if names_secret(&settings.store.value) {
        return Ok(Vec::new());
    }
    let url = settings.store_url()?;
    // Opening a store that does not exist would create it.
    if url.exists() == Some(false) {
        return Ok(Vec::new());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listing = runtime.block_on(async {
        let store = url.open()?;
        call_within(store.list(prefix, MAX_COMPLETIONS, COMPLETION_TIMEOUT), COMPLETION_TIMEOUT).await
    })?;
    Ok(listing.leases)
}

/// Whether the URL names a file that opening the store would read. Percent-encoding could hide the key.
fn names_secret(url: &str) -> bool {
    url.split_once('?').is_some_and(|(_, query)| query.contains("_file") || query.contains('%'))
}

/// The settings, as far as the incomplete command line has their arguments.
fn typed_settings() -> anyhow::Result<Settings> {
    #[derive(Parser)]
    #[command(no_binary_name = true, ignore_errors = true, disable_help_flag = true)]
    struct PartialLine {
        #[command(flatten)]
        place: GlobalArgs,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _rest: Vec<std::ffi::OsString>,
    }
    // The shell passes: our name, `--`, and the line so far, which begins with our name again.
    let words = std::env::args_os().skip_while(|word| word != "--").skip(2);
    let mut place = GlobalArgs::default();
    let mut words: Vec<_> = words.collect();
    // `--store` may also follow the verb, so parsing restarts at each later option.
    while !words.is_empty() {
        if let Ok(line) = PartialLine::try_parse_from(&words) {
            place.store = line.place.store.or(place.store);
            place.policies = line.place.policies.or(place.policies);
        }
        let next = words.iter().skip(1).position(|word| word.to_string_lossy().starts_with("--"));
        match next {
            Some(next) => words.drain(..=next),
            None => break,
        };
    }
    Settings::load_for_completion(&place)
}
