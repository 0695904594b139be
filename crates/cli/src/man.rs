//! `leasehold man`: the manual, from the same description that reads the command line.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Command, CommandFactory};

use crate::args::Cli;
use crate::reference;

/// `leasehold man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold man | man -l -              # the manual
  leasehold man run | man -l -          # of one verb
  leasehold man --to ~/.local/share/man/man1
  leasehold man --markdown > docs/reference/cli.md")]
pub(crate) struct ManArgs {
    /// Only this verb, e.g. run or policy check
    pub(crate) verb: Vec<String>,
    /// Write one page per verb into this folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["verb", "markdown"])]
    pub(crate) to: Option<PathBuf>,
    /// Everything as one Markdown page instead
    #[arg(long, conflicts_with = "verb")]
    pub(crate) markdown: bool,
}

/// Prints or writes the manual.
pub(crate) fn main(args: &ManArgs) -> anyhow::Result<bool> {
    let mut all = Cli::command();
    // Gives every verb its global options and its full name.
    all.build();
    if let Some(folder) = &args.to {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        clap_mangen::generate_to(Cli::command(), folder)
            .with_context(|| format!("cannot write the manual into {}", folder.display()))?;
        return Ok(true);
    }
    let mut out = std::io::stdout().lock();
    if args.markdown {
        out.write_all(reference::page(&all).as_bytes())?;
        return Ok(true);
    }
    let mut at: Command = all;
    for word in &args.verb {
        let Some(next) = at.find_subcommand(word) else {
            let known: Vec<_> = at.get_subcommands().map(Command::get_name).collect();
            bail!("there is no verb {word:?} here; known are {}", known.join(", "));
        };
        at = next.clone();
    }
    clap_mangen::Man::new(at).render(&mut out)?;
    Ok(true)
}
