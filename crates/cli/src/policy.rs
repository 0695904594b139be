//! `leasehold policy`.

use std::io::Write;

use anyhow::Context;
use leasehold::clock::{BootClock, Clock};
use leasehold::policy::problems;

use crate::args::{Place, PolicyCommand};
use crate::say::say;

/// Checks a file, or prints classes.
pub(crate) fn main(place: &Place, command: &PolicyCommand) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match command {
        PolicyCommand::Check { file } => {
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
        PolicyCommand::Show { class } => {
            let (book, now) = (place.book()?, BootClock.now());
            let names = match class {
                Some(class) => vec![class.as_str().into()],
                None => book.classes(),
            };
            for (at, name) in names.iter().enumerate() {
                let class = book.explain(name, now)?;
                writeln!(out, "{}{class}", if at > 0 { "\n" } else { "" })?;
            }
            Ok(true)
        }
    }
}
