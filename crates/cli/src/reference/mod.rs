//! The reference pages of the book, generated from the code: `leasehold man --reference docs/reference`.

mod api;
mod cli;
mod codes;
mod events;
mod exits;
mod metrics;
mod settings;
mod stores;

use std::path::Path;

use anyhow::Context;
use clap::Command;
use leasehold_core::atomic_file::{self, FileAccess};

pub(crate) use cli::page as cli;

/// Every page with its file name. `all` must be built, so that global options are included.
fn pages(all: &Command) -> anyhow::Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("cli.md", cli::page(all)),
        ("exit-codes.md", exits::page()),
        ("settings.md", settings::page()?),
        ("stores.md", stores::page()),
        ("api.md", api::page()),
        ("errors.md", codes::page()),
        ("events.md", events::page()),
        ("metrics.md", metrics::page()),
    ])
}

pub(crate) fn write(all: &Command, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for (name, text) in pages(all)? {
        let path = folder.join(name);
        atomic_file::replace(&path, FileAccess::Umask, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The head of a page. It names the generator, so that people do not edit the page by hand.
fn page_header(title: &str, about: &str) -> String {
    format!("# {title}\n\n{about} Made from the code with `leasehold man --reference`; a test compares.\n\n")
}

/// One row of a Markdown table; `|` is escaped because it would end a cell.
fn table_row(cells: &[&str]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}
