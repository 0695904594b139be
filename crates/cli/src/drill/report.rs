//! `leasehold drill report`.

use std::fs::File;
use std::io::{BufReader, Write};

use anyhow::{Context, bail};
use leasehold_drill::history::{Entry, read};
use leasehold_drill::report::{details, document, page};
use leasehold_drill::scenario::{self, Verdict};

use super::args::{Output, ReportArgs};
use super::ends;
use crate::say::say;

/// Judges a history anew: whoever doubts a verdict needs the file only.
pub(crate) fn main(args: &ReportArgs) -> anyhow::Result<bool> {
    let shown = args.history.display();
    let file = File::open(&args.history).with_context(|| format!("cannot read {shown}"))?;
    let history = read(BufReader::new(file)).with_context(|| format!("cannot read {shown}"))?;
    if history.records.is_empty() {
        bail!("{shown} is not a history: it has no record that can be read");
    }
    let named = args.history.file_name().and_then(|name| name.to_str());
    let control = named.is_some_and(|name| name.starts_with("unfenced-control"))
        || history
            .records
            .iter()
            .any(|record| matches!(&record.what, Entry::Fault { fault, .. } if fault == scenario::CONTROL));
    let verdict = Verdict::of_history(history);
    let kept = verdict.judgement.clean();
    let told = tell(&[verdict], args);
    if control {
        say(
            "this is the history of a control run, whose workers neither look nor send a fence: a checker that found nothing \
             in it would be blind",
        );
    }
    ends(kept, told)
}

fn tell(verdicts: &[Verdict], args: &ReportArgs) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => {
            serde_json::to_writer_pretty(&mut out, &document(verdicts, &[]))?;
            writeln!(out)?;
        }
        Output::Table => {
            for verdict in verdicts {
                write!(out, "{}", details(verdict))?;
            }
        }
    }
    if let Some(path) = &args.html {
        std::fs::write(path, page(verdicts, &[]))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
