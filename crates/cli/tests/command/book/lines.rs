//! Extracts the commands of a page: the lines of its `sh` and `console` blocks, with the output below them.

/// One command line of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageCommand {
    pub(crate) command: String,
    /// From a transcript (`console`), not from a list of commands (`sh`).
    pub(crate) transcript: bool,
    /// The output that the transcript shows below it.
    pub(crate) expected_output: Vec<String>,
    /// The exit code that the transcript names with `? N`.
    pub(crate) expected_code: i32,
}

/// All command lines in order; continued lines are joined.
pub(crate) fn page_commands(page: &str) -> Vec<PageCommand> {
    let mut found: Vec<PageCommand> = Vec::new();
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
            (Some(part), _) => found.push(PageCommand {
                command: std::mem::take(&mut begun) + part,
                transcript,
                expected_output: Vec::new(),
                expected_code: 0,
            }),
            (None, Some(last)) => match line.strip_prefix("? ").and_then(|code| code.parse().ok()) {
                Some(code) => last.expected_code = code,
                None if raw.is_empty() => {}
                None => last.expected_output.push(raw.to_owned()),
            },
            (None, None) => {}
        }
    }
    found.retain(|line| !line.command.is_empty());
    found
}
