//! The page of event kinds.

use leasehold::observe::EVENTS;

use super::{page_header, table_row};

pub(super) fn page() -> String {
    let mut text = page_header(
        "Events",
        "Every transition is one event. Logs, metrics, history, `leasehold watch --events` and `/v1/events` read this one stream.",
    );
    text += "| event | what happened |\n|---|---|\n";
    for (name, help) in EVENTS {
        text += &table_row(&[&format!("`{name}`"), help]);
    }
    text + "\nThe form of a line is [event.json](../schemas/event.json).\n"
}
