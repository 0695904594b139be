use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{Unreadable, unreadable};
use crate::evidence::Evidence;
use crate::sample::Sample;

/// A daemon's history of holds: one JSON object a line, or the document of `/v1/history` with them in `holds`. Of each: `class`, and
/// `from` and `to`, or `held_ms`, the time it was held. Holds that are not over have neither and are left out, as are those that ended with
/// the daemon: nobody knows how long they were.
///
/// # Errors
/// A line that is no JSON object.
pub fn history(text: &str, class: &str) -> Result<Evidence, Unreadable> {
    let mut held = Vec::new();
    if let Ok(Value::Object(document)) = serde_json::from_str::<Value>(text)
        && let Some(Value::Array(holds)) = document.get("holds")
    {
        held.extend(holds.iter().filter_map(|hold| of_class(hold, class)));
    } else {
        for (at, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let hold: Value = serde_json::from_str(line).map_err(|error| {
                unreadable(at, format!("is not JSON: {error}; one hold a line is expected"))
            })?;
            held.extend(of_class(&hold, class));
        }
    }
    Ok(Evidence {
        held: Sample::of(held),
        ..Evidence::default()
    })
}

fn of_class(hold: &Value, class: &str) -> Option<Duration> {
    let same = hold.get("class").and_then(Value::as_str) == Some(class);
    let held = match hold.get("held_ms").and_then(Value::as_u64) {
        Some(millis) => Duration::from_millis(millis),
        None => between(hold)?,
    };
    same.then_some(held)
}

fn between(hold: &Value) -> Option<Duration> {
    let at = |field| hold.get(field)?.as_str()?.parse::<Timestamp>().ok();
    // A wall clock that was set back in between says nothing.
    Duration::try_from(at("to")?.duration_since(at("from")?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines_and_documents() {
        let lines = "{\"class\":\"scheduler\",\"held_ms\":1500}\n{\"class\":\"workflow\",\"held_ms\":9}\n\
                     {\"class\":\"scheduler\",\"held_ms\":null}\n";
        let evidence = history(lines, "scheduler").unwrap();
        assert_eq!(evidence.held, Sample::of([Duration::from_millis(1500)]));
        let document = r#"{"schema_version":1,"holds":[{"class":"scheduler","held_ms":1500}]}"#;
        assert_eq!(history(document, "scheduler").unwrap(), evidence);
        // As `/v1/history` has them.
        let served = r#"{"holds":[
            {"seq":2,"name":"job:2","class":"scheduler","holder":"a","fence":"8","from":"2026-11-16T04:00:02.000Z"},
            {"seq":1,"name":"job:1","class":"scheduler","holder":"a","fence":"7","from":"2026-11-16T04:00:00.000Z",
             "to":"2026-11-16T04:00:01.500Z","ended":"released"}]}"#;
        assert_eq!(history(served, "scheduler").unwrap(), evidence);
        let said = history("{}\nnot json", "scheduler").unwrap_err().to_string();
        assert!(said.starts_with("line 2: is not JSON"), "{said}");
    }
}
