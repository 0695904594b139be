//! `leasehold man`: the manual, generated from the clap definition.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Command, CommandFactory};
use leasehold_core::atomic_file::{self, FileAccess};

use crate::args::Cli;
use crate::reference;

/// Arguments of `leasehold man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold man | man -l -              # the manual
  leasehold man run | man -l -          # of one verb
  leasehold man --to ~/.local/share/man/man1
  leasehold man --markdown                # all verbs on one Markdown page
  leasehold man --reference docs/reference # and the pages of metrics, events, errors, settings")]
pub(crate) struct ManArgs {
    /// Only this verb, e.g. run or policy check
    pub(crate) verb: Vec<String>,
    /// Write one page per verb into this folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["verb", "markdown"])]
    pub(crate) to: Option<PathBuf>,
    /// Everything as one Markdown page instead
    #[arg(long, conflicts_with = "verb")]
    pub(crate) markdown: bool,
    /// Write the reference into this folder instead: verbs, exit codes, settings, API, errors, events, metrics
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["verb", "markdown", "to"])]
    pub(crate) reference: Option<PathBuf>,
}

pub(crate) fn main(args: &ManArgs) -> anyhow::Result<bool> {
    let mut all = Cli::command();
    // `build` adds the global options and full names to every subcommand.
    all.build();
    if let Some(folder) = &args.to {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        write_pages(&all, folder)
            .with_context(|| format!("cannot write the manual into {}", folder.display()))?;
        return Ok(true);
    }
    if let Some(folder) = &args.reference {
        reference::write(&all, folder)?;
        return Ok(true);
    }
    let mut out = crate::output::script_stdout();
    if args.markdown {
        out.write_all(reference::cli(&all).as_bytes())?;
        return Ok(true);
    }
    let mut command: Command = all;
    for word in &args.verb {
        let Some(next) = command.find_subcommand(word) else {
            let known: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
            bail!("there is no verb {word:?} here; known are {}", known.join(", "));
        };
        command = next.clone();
    }
    clap_mangen::Man::new(command).render(&mut out)?;
    Ok(true)
}

/// Writes one page for the command and each verb below it: `leasehold-job-submit.1`.
fn write_pages(command: &Command, folder: &Path) -> std::io::Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    atomic_file::replace(&folder.join(page.get_filename()), FileAccess::Umask, &text)?;
    let visible = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    visible.into_iter().try_for_each(|verb| write_pages(verb, folder))
}
