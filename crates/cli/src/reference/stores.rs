//! The stores of this build, for `docs/reference/stores.md`.

use super::{page_header, table_row};
use crate::store::capability_rows;

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
    text += "\n## Capabilities\n\nThe rows of `leasehold store info`. A daemon has the capabilities of the store behind it.\n\n";
    // A kind without constant capabilities has no column.
    let stores: Vec<_> = leasehold::backends()
        .into_iter()
        .filter_map(|store| Some((store.title, store.capabilities?)))
        .collect();
    let titles = stores.iter().map(|(title, _)| (*title).to_owned());
    write_row(&mut text, "", titles.collect());
    write_row(&mut text, "---", vec!["---".to_owned(); stores.len()]);
    write_row(
        &mut text,
        "strongest promise",
        stores.iter().map(|(_, can)| can.promise.to_string()).collect(),
    );
    let columns: Vec<_> = stores.iter().map(|(_, can)| capability_rows(can)).collect();
    let labels = columns.first().into_iter().flatten().map(|(label, _)| *label);
    for (index, label) in labels.enumerate() {
        write_row(&mut text, label, columns.iter().map(|rows| rows[index].1.clone()).collect());
    }
    text
}

fn write_row(text: &mut String, label: &str, values: Vec<String>) {
    let cells: Vec<_> = std::iter::once(label).chain(values.iter().map(String::as_str)).collect();
    *text += &table_row(&cells);
}
