use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{ParseError, parse_error};
use crate::evidence::Evidence;
use crate::sample::Sample;

/// Parses a daemon's history of holds: one JSON object per line, or the document of `/v1/history`
/// with the array `holds`. Each hold has `class`, and either `held_ms` or `from` and `to`. Holds
/// that have not ended are left out. So are holds that ended with the daemon, because their length
/// is unknown.
///
/// # Errors
/// A line that is not a JSON object.
pub fn parse_history(text: &str, class: &str) -> Result<Evidence, ParseError> {
    let mut held = Vec::new();
    if let Ok(Value::Object(document)) = serde_json::from_str::<Value>(text)
        && let Some(Value::Array(holds)) = document.get("holds")
    {
        held.extend(holds.iter().filter_map(|hold| held_time_in_class(hold, class)));
    } else {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let hold: Value = serde_json::from_str(line).map_err(|error| {
                parse_error(at, format!("is not JSON: {error}; one hold a line is expected"))
            })?;
            held.extend(held_time_in_class(&hold, class));
        }
    }
    Ok(Evidence { held: Sample::of(held), ..Evidence::default() })
}

fn held_time_in_class(hold: &Value, class: &str) -> Option<Duration> {
    let same = hold.get("class").and_then(Value::as_str) == Some(class);
    let held = match hold.get("held_ms").and_then(Value::as_u64) {
        Some(millis) => Duration::from_millis(millis),
        None => held_time_from_timestamps(hold)?,
    };
    same.then_some(held)
}

fn held_time_from_timestamps(hold: &Value) -> Option<Duration> {
    let at = |field| hold.get(field)?.as_str()?.parse::<Timestamp>().ok();
    // The difference is negative if the wall clock was set back in between; such a hold is left
    // out.
    Duration::try_from(at("to")?.duration_since(at("from")?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines_and_documents() {
        let lines = "{\"class\":\"scheduler\",\"held_ms\":1500}\n{\"class\":\"workflow\",\"held_ms\":9}\n\
                     {\"class\":\"scheduler\",\"held_ms\":null}\n";
        let evidence = parse_history(lines, "scheduler").unwrap();
        assert_eq!(evidence.held, Sample::of([Duration::from_millis(1500)]));
        let document = r#"{"schema_version":1,"holds":[{"class":"scheduler","held_ms":1500}]}"#;
        assert_eq!(parse_history(document, "scheduler").unwrap(), evidence);
        // The format of `/v1/history`.
        let served = r#"{"holds":[
            {"seq":2,"name":"job:2","class":"scheduler","holder":"a","fence":"8","from":"2026-11-16T04:00:02.000Z"},
            {"seq":1,"name":"job:1","class":"scheduler","holder":"a","fence":"7","from":"2026-11-16T04:00:00.000Z",
             "to":"2026-11-16T04:00:01.500Z","ended":"released"}]}"#;
        assert_eq!(parse_history(served, "scheduler").unwrap(), evidence);
        let message = parse_history("{}\nnot json", "scheduler").unwrap_err().to_string();
        assert!(message.starts_with("line 2: is not JSON"), "{message}");
    }
}
