//! `leasehold audit`: verify the chain of a daemon's audit log.

use std::io::Write;

use leasehold_server::{AuditError, verify_audit};

use super::AuditArgs;
use super::args::AuditCommand;

const BROKEN_ADVICE: &str = "\
the daemon serves all the same; keep the files as they are, compare them with your copy of the log, and \
proceed as docs/operations/alerts.md says under LeaseholdAuditDamaged";

/// Checks an audit log. Returns whether its chain is intact.
pub(crate) fn main(args: &AuditArgs) -> anyhow::Result<bool> {
    let AuditCommand::Verify { path, key } = &args.command;
    let shown = path.display();
    // A missing file is an error (2), not a broken chain (1).
    std::fs::metadata(path).map_err(|error| anyhow::anyhow!("{shown}: {error}"))?;
    let mut out = crate::output::stdout();
    match verify_audit(path, key.as_deref()) {
        Ok(verified) => {
            let (lines, segments) = (verified.lines, verified.segments);
            writeln!(out, "{shown}: {lines} lines, nothing was changed (segments: {segments})")?;
            Ok(true)
        }
        Err(AuditError::Broken(why)) => {
            writeln!(out, "{shown}: {why}\n{BROKEN_ADVICE}")?;
            Ok(false)
        }
        Err(other) => Err(anyhow::anyhow!("{other}")),
    }
}
