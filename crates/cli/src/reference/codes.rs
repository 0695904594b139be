//! The page of the daemon's error codes.

use leasehold_server::ErrorCode;

use super::{page_header, table_row};

pub(super) fn page() -> String {
    let mut text = page_header(
        "Errors of the API",
        "Every refusal is `application/problem+json` with a `code` for programs and a `detail` for people.",
    );
    text += "| code | status | what it says |\n|---|---|---|\n";
    for code in ErrorCode::ALL {
        text += &table_row(&[&format!("`{}`", code.as_str()), &code.status().to_string(), code.meaning()]);
    }
    text
}
