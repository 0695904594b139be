//! `leasehold completions`, and what a shell is told when someone presses TAB.
//!
//! Verbs and options come from the same description that reads them. Names come from the store and classes from the
//! policies, in the moment; a store that does not answer at once is not waited for, and nothing is ever made by a TAB.

use std::ffi::OsStr;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, ValueEnum};
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::{CompleteEnv, Shells};
use leasehold::StoreUrl;
use leasehold::policy::PolicyBook;
use leasehold::store::Lease;

use crate::args::{Cli, Place};
use crate::desk::asked;

/// The variable by which a shell asks.
const VARIABLE: &str = "COMPLETE";
/// Longer than this nobody waits for a TAB.
const PATIENCE: Duration = Duration::from_millis(500);
/// More than this nobody reads.
const MANY: usize = 200;
/// Ours and not clap's, which does not complete a name behind its colon.
const BASH: &str = include_str!("complete.bash");

/// `leasehold completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Lock names are completed from the store and classes from the policies, as they are when you press TAB.

Examples:
  source <(leasehold completions bash)                              # in ~/.bashrc
  leasehold completions zsh > ~/.zfunc/_leasehold                   # a folder of $fpath
  leasehold completions fish > ~/.config/fish/completions/leasehold.fish")]
pub(crate) struct CompletionsArgs {
    /// Which shell
    pub(crate) shell: Shell,
}

/// The shells that are known.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    /// bash
    Bash,
    /// elvish
    Elvish,
    /// fish
    Fish,
    /// PowerShell
    #[value(name = "powershell")]
    Power,
    /// zsh
    Zsh,
}

/// Answers a shell that asks for completions, and ends; goes on if none does.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// Prints the script.
pub(crate) fn main(args: &CompletionsArgs) -> anyhow::Result<bool> {
    let name = match args.shell {
        Shell::Bash => {
            std::io::Write::write_all(&mut std::io::stdout().lock(), BASH.as_bytes())?;
            return Ok(true);
        }
        Shell::Elvish => "elvish",
        Shell::Fish => "fish",
        Shell::Power => "powershell",
        Shell::Zsh => "zsh",
    };
    let shells = Shells::builtins();
    let shell = shells
        .completer(name)
        .context("this build does not know that shell")?;
    // By name, not by path: the script outlives the place where the command is now.
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "leasehold", "leasehold", "leasehold", &mut script)?;
    std::io::Write::write_all(&mut std::io::stdout().lock(), &script)?;
    Ok(true)
}

/// Names of locks that are held.
pub(crate) fn names(typed: &OsStr) -> Vec<CompletionCandidate> {
    let found = typed.to_str().and_then(|prefix| held(prefix).ok());
    let candidate = |lease: Lease| {
        let help = format!("held by {}", lease.holder);
        CompletionCandidate::new(lease.name.to_string()).help(Some(help.into()))
    };
    found.unwrap_or_default().into_iter().map(candidate).collect()
}

/// Names of classes.
pub(crate) fn classes(typed: &OsStr) -> Vec<CompletionCandidate> {
    let book = place().book().unwrap_or_else(|_| PolicyBook::builtin());
    let fits = |name: &std::sync::Arc<str>| typed.to_str().is_some_and(|typed| name.starts_with(typed));
    let candidate = |name: std::sync::Arc<str>| CompletionCandidate::new(name.as_ref());
    book.classes().into_iter().filter(fits).map(candidate).collect()
}

fn held(prefix: &str) -> anyhow::Result<Vec<Lease>> {
    let url = place().store()?;
    // Opening a file that is not there would make it.
    if let StoreUrl::Sqlite { path, .. } = &url
        && !path.exists()
    {
        return Ok(Vec::new());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listing = runtime.block_on(async {
        let store = url.open()?;
        asked(store.list(prefix, MANY, PATIENCE), PATIENCE).await
    })?;
    Ok(listing.leases)
}

/// Where things are, as far as the half-typed line says.
fn place() -> Place {
    #[derive(Parser)]
    #[command(no_binary_name = true, ignore_errors = true, disable_help_flag = true)]
    struct Line {
        #[command(flatten)]
        place: Place,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _rest: Vec<std::ffi::OsString>,
    }
    // What the shell passes: our name, `--`, and the line so far, which begins with our name again.
    let words = std::env::args_os().skip_while(|word| word != "--").skip(2);
    let mut place = Place::default();
    let mut words: Vec<_> = words.collect();
    // `--store` may stand anywhere, also behind the verb.
    while !words.is_empty() {
        if let Ok(line) = Line::try_parse_from(&words) {
            place.store = line.place.store.or(place.store);
            place.policies = line.place.policies.or(place.policies);
        }
        let next = words
            .iter()
            .skip(1)
            .position(|word| word.to_string_lossy().starts_with("--"));
        match next {
            Some(next) => words.drain(..=next),
            None => break,
        };
    }
    place
}
