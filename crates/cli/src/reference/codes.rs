//! What the daemon refuses with.

use leasehold_server::CODES;

use super::{opening, row};

pub(super) fn page() -> String {
    let mut text = opening(
        "Errors of the API",
        "Every refusal is `application/problem+json` with a `code` for programs and a `detail` for people.",
    );
    text += "| code | status | what it says |\n|---|---|---|\n";
    for code in CODES {
        text += &row(&[&format!("`{}`", code.code), &code.status.to_string(), code.means]);
    }
    text
}
