//! `leasehold policy check`.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use leasehold::policy::problems;

use crate::config;
use crate::say::say;

/// Prints every problem of a file; answers whether there is none.
pub(super) fn main(file: &Path) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let mut found: Vec<String> = problems(&text, &shown).iter().map(ToString::to_string).collect();
    // The same file may have settings, whose values the classes know nothing of.
    for problem in config::problems(&text, file) {
        if !found.contains(&problem) {
            found.push(problem);
        }
    }
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
