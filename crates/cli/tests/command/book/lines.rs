//! The commands that a page shows: the lines of its `sh` and `console` blocks, with what is printed below them.

/// A line to type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) command: String,
    /// In a transcript (`console`), not in a list of commands (`sh`).
    pub(crate) transcript: bool,
    /// What the transcript has below it.
    pub(crate) printed: Vec<String>,
    /// The exit code that the transcript names with `? N`.
    pub(crate) code: i32,
}

/// All of them, in order; long ones are joined.
pub(crate) fn lines(page: &str) -> Vec<Line> {
    let mut found: Vec<Line> = Vec::new();
    let mut inside: Option<bool> = None;
    let mut begun = String::new();
    for raw in page.lines() {
        let line = raw.trim_start();
        if let Some(language) = line.strip_prefix("```") {
            inside = match (inside, language.trim()) {
                (None, "sh") => Some(false),
                (None, "console") => Some(true),
                _ => None,
            };
            continue;
        }
        let Some(transcript) = inside else { continue };
        let typed = match transcript {
            true if begun.is_empty() => line.strip_prefix("$ "),
            true => Some(line.strip_prefix("> ").unwrap_or(line)),
            false => Some(line),
        };
        match (typed, found.last_mut()) {
            (Some(part), _) if part.ends_with('\\') => begun += part.trim_end_matches('\\'),
            (Some(part), _) => found.push(Line {
                command: std::mem::take(&mut begun) + part,
                transcript,
                printed: Vec::new(),
                code: 0,
            }),
            (None, Some(last)) => match line.strip_prefix("? ").and_then(|code| code.parse().ok()) {
                Some(code) => last.code = code,
                None if raw.is_empty() => {}
                None => last.printed.push(raw.to_owned()),
            },
            (None, None) => {}
        }
    }
    found.retain(|line| !line.command.is_empty());
    found
}
