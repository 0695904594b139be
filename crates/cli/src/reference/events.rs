//! What happens to locks, by name.

use leasehold::observe::EVENTS;

use super::{opening, row};

pub(super) fn page() -> String {
    let mut text = opening(
        "Events",
        "Every transition is one event. Logs, metrics, history, `leasehold watch --events` and `/v1/events` read this one stream.",
    );
    text += "| event | what happened |\n|---|---|\n";
    for (name, help) in EVENTS {
        text += &row(&[&format!("`{name}`"), help]);
    }
    text + "\nThe form of a line is [event.json](../schemas/event.json).\n"
}
