use std::time::Duration;

use serde_json::Value;

use super::{Unreadable, unreadable};
use crate::evidence::Evidence;
use crate::sample::Sample;

/// A daemon's history of holds: one JSON object a line, or the document of `/v1/history` with them in `holds`. Of each: `class`, and
/// `held_ms`, the time it was held. Holds that are not over have none and are left out.
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
    let millis = hold.get("held_ms").and_then(Value::as_u64)?;
    same.then(|| Duration::from_millis(millis))
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
        let said = history("{}\nnot json", "scheduler").unwrap_err().to_string();
        assert!(said.starts_with("line 2: is not JSON"), "{said}");
    }
}
