//! `leasehold policy check`.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use leasehold::policy::problems;

use crate::say::say;

/// Prints every problem of a file; answers whether there is none.
pub(super) fn main(file: &Path) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let found = problems(&text, &shown);
    for problem in &found {
        writeln!(out, "{problem}")?;
    }
    match found.len() {
        0 => writeln!(out, "{shown}: good")?,
        1 => say(&format!("{shown} cannot be used: one problem")),
        many => say(&format!("{shown} cannot be used: {many} problems")),
    }
    Ok(found.is_empty())
}
