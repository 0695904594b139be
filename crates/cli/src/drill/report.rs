//! `leasehold drill report`.

use std::fs::File;
use std::io::{BufReader, Write};

use anyhow::{Context, bail};
use leasehold_drill::history::read;
use leasehold_drill::report::{details, document, page};
use leasehold_drill::scenario::Verdict;

use super::args::{Output, ReportArgs};

/// Judges a history anew: whoever doubts a verdict needs the file only.
pub(crate) fn main(args: &ReportArgs) -> anyhow::Result<bool> {
    let shown = args.history.display();
    let file = File::open(&args.history).with_context(|| format!("cannot read {shown}"))?;
    let history = read(BufReader::new(file)).with_context(|| format!("cannot read {shown}"))?;
    if history.records.is_empty() {
        bail!("{shown} is not a history: it has no record that can be read");
    }
    let verdicts = [Verdict::of_history(history)];
    if let Some(path) = &args.html {
        std::fs::write(path, page(&verdicts, &[]))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, &document(&verdicts, &[]))?;
            writeln!(out)?;
        }
        Output::Table => {
            for verdict in &verdicts {
                write!(out, "{}", details(verdict))?;
            }
        }
    }
    Ok(verdicts.iter().all(|verdict| verdict.judgement.clean()))
}
