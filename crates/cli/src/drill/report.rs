//! `leasehold drill report`: judges a history that `drill run --history` kept.

use std::fs::File;
use std::io::{BufReader, Write};

use anyhow::{Context, bail};
use leasehold_core::atomic_file::{self, FileAccess};
use leasehold_drill::history::{HistoryEntry, read};
use leasehold_drill::report::{details, document, page};
use leasehold_drill::scenario::{self, Verdict};

use super::args::{DrillFormat, ReportArgs};
use super::finish_verdict;
use crate::message::print_message;

/// Judges a history again. The file is enough to check a verdict.
pub(crate) fn main(args: &ReportArgs) -> anyhow::Result<bool> {
    let shown = args.history.display();
    let file = File::open(&args.history).with_context(|| format!("cannot read {shown}"))?;
    let history = read(BufReader::new(file)).with_context(|| format!("cannot read {shown}"))?;
    if history.records.is_empty() {
        bail!("{shown} is not a history: it has no record that can be read");
    }
    let named = args.history.file_name().and_then(|name| name.to_str());
    // Control runs break promises on purpose, and the reader must be told.
    let control = named.is_some_and(|name| name.starts_with("unfenced-control"))
        || history
            .records
            .iter()
            .any(|record| matches!(&record.what, HistoryEntry::Fault { fault, .. } if fault == scenario::CONTROL_RUN_NOTE));
    let verdict = Verdict::of_history(history);
    let kept = verdict.judgement.clean();
    let told = write_report(&[verdict], args);
    if control {
        print_message(
            "this is the history of a control run, whose workers neither look nor send a fence: a checker that found nothing \
             in it would be blind",
        );
    }
    finish_verdict(kept, told)
}

fn write_report(verdicts: &[Verdict], args: &ReportArgs) -> anyhow::Result<()> {
    let mut out = crate::output::stdout();
    match args.output {
        DrillFormat::Json => {
            serde_json::to_writer_pretty(&mut out, &document(verdicts, &[]))?;
            writeln!(out)?;
        }
        DrillFormat::Table => {
            for verdict in verdicts {
                write!(out, "{}", details(verdict))?;
            }
        }
    }
    if let Some(path) = &args.html {
        atomic_file::replace(path, FileAccess::Umask, page(verdicts, &[]).as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
