//! `leasehold policy check`: print every problem of a policy file.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use leasehold::policy::problems;

use crate::config;
use crate::message::print_message;

/// Prints every problem of a file. Returns whether there is none.
pub(crate) fn main(file: &Path) -> anyhow::Result<bool> {
    let mut out = crate::output::stdout();
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let mut found: Vec<String> = problems(&text, &shown).iter().map(ToString::to_string).collect();
    // The file may also have settings, whose values the policy parser does not check.
    for problem in config::settings_problems(&text, file) {
        if !found.contains(&problem) {
            found.push(problem);
        }
    }
    for problem in &found {
        writeln!(out, "{problem}")?;
    }
    match found.len() {
        0 => writeln!(out, "{shown}: good")?,
        1 => print_message(&format!("{shown} cannot be used: one problem")),
        many => print_message(&format!("{shown} cannot be used: {many} problems")),
    }
    Ok(found.is_empty())
}
