//! The page of exit codes.

use super::{page_header, table_row};
use crate::exit::{BUSY, CANNOT_RUN, FAILED, LOST, NOT_FOUND};

pub(super) fn page() -> String {
    let mut text = page_header(
        "Exit codes",
        "`run` and `elect` pass the command's own code on, so theirs are numbers that commands seldom use.",
    );
    text += "## `run` and `elect`\n\n| code | meaning |\n|---|---|\n";
    for (code, means) in [
        (LOST, "the lease was lost and the command was stopped"),
        (BUSY, "another client holds the lock"),
        (FAILED, "Leasehold itself failed (the store, the policy, the words typed); the command did not run"),
        (CANNOT_RUN, "the command is there but cannot be run"),
        (NOT_FOUND, "there is no such command"),
    ] {
        text += &table_row(&[&code.to_string(), means]);
    }
    text += &table_row(&["128+N", "the command died of signal N"]);
    text += &table_row(&["other", "the command's own"]);
    text += "\n## Every other verb\n\n| code | meaning |\n|---|---|\n";
    for (code, means) in [
        ("0", "yes, done"),
        ("1", "no: busy, not held, not yours any more, a drill found a violation"),
        ("2", "an error: the question was not answered, or could not be understood"),
    ] {
        text += &table_row(&[code, means]);
    }
    text
}
