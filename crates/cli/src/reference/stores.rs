//! The stores of this build, for `docs/reference/stores.md`.

use super::{page_header, table_row};

pub(super) fn page() -> String {
    let mut text = page_header(
        "Stores",
        "The stores that a URL can name: for `--store`, `LEASEHOLD_STORE`, the setting `store`, and `leasehold::open`.",
    );
    text += &table_row(&["URL", "store", "shared by", "`doctor` looks at"]);
    text += &table_row(&["---", "---", "---", "---"]);
    for store in leasehold::backends() {
        let forms: Vec<_> = store.url_forms.iter().map(|form| format!("`{form}`")).collect();
        text += &table_row(&[&forms.join(", "), store.summary, store.shared_by, store.examines]);
    }
    text
}
