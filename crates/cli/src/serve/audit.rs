//! `leasehold audit`: verify the hash chain of a daemon's audit log.

use std::io::Write;

use leasehold_server::verify_audit;

use super::AuditArgs;
use super::args::AuditCommand;

/// Checks an audit log. Returns whether its hash chain is intact.
pub(crate) fn main(args: &AuditArgs) -> anyhow::Result<bool> {
    let AuditCommand::Verify { file } = &args.command;
    // A missing file is an error (2), not a broken chain (1).
    std::fs::metadata(file).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    let mut out = std::io::stdout().lock();
    match verify_audit(file) {
        Ok(verified) => {
            writeln!(out, "{}: {} lines, nothing was changed", file.display(), verified.lines)?;
            Ok(true)
        }
        Err(broken) => {
            writeln!(out, "{}: {broken}", file.display())?;
            Ok(false)
        }
    }
}
