//! The reference pages of the book, each made from what the code itself says: `leasehold man --reference docs/reference`.

mod api;
mod cli;
mod codes;
mod events;
mod exits;
mod metrics;
mod settings;

use std::path::Path;

use anyhow::Context;
use clap::Command;

pub(crate) use cli::page as cli;

/// Every page by its file name. `all` has been built.
fn pages(all: &Command) -> anyhow::Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("cli.md", cli::page(all)),
        ("exit-codes.md", exits::page()),
        ("settings.md", settings::page()?),
        ("api.md", api::page()),
        ("errors.md", codes::page()),
        ("events.md", events::page()),
        ("metrics.md", metrics::page()),
    ])
}

/// Writes them into this folder.
pub(crate) fn write(all: &Command, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for (name, text) in pages(all)? {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// How each page opens: what it is made from, so that nobody edits it by hand.
fn opening(title: &str, about: &str) -> String {
    format!("# {title}\n\n{about} Made from the code with `leasehold man --reference`; a test compares.\n\n")
}

/// One row of a table; what would end a cell is escaped.
fn row(cells: &[&str]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}
