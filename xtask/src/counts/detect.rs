//! What a source file contains, as far as its text shows.

use super::{has_word, type_name};

const STORES: [&str; 4] = ["Sqlite", "Redis", "Postgres", "Etcd"];
/// Without http: most URLs of that scheme are none of a store.
const STORE_SCHEMES: [&str; 7] = ["memory", "sqlite", "redis", "rediss", "postgres", "postgresql", "etcd"];
/// What simulators consist of here: the run, the store and the world in which it runs.
const SIMULATOR_TYPES: [&str; 4] = ["Simulation", "Simulator", "SimStore", "SimWorld"];

/// Whether a variant of an enum of stores is named: `StoreUrl::Redis`, `Kind::Sqlite`, `StoreUrl::Http`.
pub(super) fn names_store(text: &str) -> bool {
    let word =
        |text: &str| text.split(|at: char| at != '_' && !at.is_alphanumeric()).next().map(str::to_owned);
    text.match_indices("::").any(|(at, _)| {
        let variant = word(&text[at + 2..]).unwrap_or_default();
        let before =
            text[..at].rsplit(|at: char| at != '_' && !at.is_alphanumeric()).next().unwrap_or_default();
        let is_type = before.starts_with(|first: char| first.is_ascii_uppercase()) && before != "Self";
        is_type
            && (STORES.contains(&&*variant) || before == "StoreUrl" && matches!(&*variant, "Http" | "Memory"))
    })
}

/// The lines that are neither comments nor unit tests.
fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    let tests = text.find("\n#[cfg(test)]\nmod ").unwrap_or(text.len());
    text[..tests].lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// The strings of the code, several lines long or raw ones too, as they are written.
fn strings(code: &str) -> Vec<&str> {
    let (mut found, mut rest, mut in_word) = (Vec::new(), code, false);
    while let Some(first) = rest.chars().next() {
        let hashes = rest.strip_prefix('r').map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if !in_word && first == 'r' && rest[1 + hashes..].starts_with('"') {
            let body = &rest[hashes + 2..];
            let length = body.find(&format!("\"{}", "#".repeat(hashes))).unwrap_or(body.len());
            found.push(&body[..length]);
            (2 * hashes + 3 + length).min(rest.len())
        } else if first == '"' {
            let mut escaped = false;
            let end = |at: char| {
                let ends = at == '"' && !escaped;
                escaped = at == '\\' && !escaped;
                ends
            };
            let length = rest[1..].find(end).unwrap_or(rest.len() - 1);
            found.push(&rest[1..=length]);
            (length + 2).min(rest.len())
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            rest[1..].find('\'').unwrap_or(0) + 2
        } else {
            first.len_utf8()
        };
        in_word = first == '_' || first.is_alphanumeric();
        rest = &rest[skipped..];
    }
    found
}

/// Whether a string names the scheme of a store's URL: `"redis:"`, `"try sqlite:locks.db"`.
fn names_scheme(string: &str) -> bool {
    string.match_indices(':').any(|(at, _)| {
        let word =
            string[..at].rsplit(|at: char| at != '_' && !at.is_alphanumeric()).next().unwrap_or_default();
        STORE_SCHEMES.contains(&word) && !string[at + 1..].starts_with([':', ' '])
    })
}

/// Whether a string names a store, outside of unit tests and of the examples in help texts: a user has to write some URL.
pub(super) fn writes_store_scheme(text: &str) -> bool {
    let tests = text.find("\n#[cfg(test)]\nmod ").unwrap_or(text.len());
    let is_help = |string: &str| string.contains("Examples:\n");
    strings(&text[..tests]).into_iter().any(|string| !is_help(string) && names_scheme(string))
}

/// Whether a file drives the machine of an acquire by itself. One driver does it for the library, the daemon and the command.
pub(super) fn runs_acquire_machine(text: &str) -> bool {
    let (mut machine, mut loops) = (false, false);
    for line in code_lines(text) {
        machine |= has_word(line, &["AcquireMachine", "AcquireStep"]);
        loops |= has_word(line, &["loop", "while"]);
    }
    machine && loops
}

/// By the types of simulators or by a folder of that name, in sources and in tests.
pub(super) fn contains_simulator(name: &str, text: &str) -> bool {
    name.split('/').skip(2).any(|folder| folder == "sim")
        || text.lines().any(|line| type_name(line).is_some_and(|name| SIMULATOR_TYPES.contains(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_distinguished_from_code_and_comments() {
        let code = "a(\"x\\\"y\", '\"', b'\\\"', r\"c:\\\", r#\"z\"\n\"#, \"two\nlines\") // \"comment\"\n/// \"doc\"\nvar\"\"";
        assert_eq!(strings(code), ["x\\\"y", "c:\\", "z\"\n", "two\nlines", ""]);
        assert_eq!(strings("\"open"), ["open"]);
    }

    #[test]
    fn store_schemes_are_seen_in_strings_only() {
        let line = |text: &str| writes_store_scheme(text);
        assert!(line(r#"let url = "redis://localhost";"#) && line(r#"if text == "memory:" {"#));
        assert!(line(r#"help("say \"no\",\nor name sqlite:locks.db")"#));
        assert!(!line("after_help = \"\\\nExamples:\n  leasehold --store redis://h list\""));
        assert!(!line(r#"// "redis://localhost""#) && !line("redis::cmd(a)") && !line(r#"f("a", redis: 1)"#));
        assert!(!line(r#"panic!("memory: {used}")"#) && !line(r#"key("mysqlite:x")"#));
        assert!(!line("fn a() {}\n#[cfg(test)]\nmod tests { const A: &str = \"redis:x\"; }"));
    }

    #[test]
    fn acquire_loops_and_simulators_are_found() {
        let driver = "let machine = AcquireMachine::new();\nloop { step = machine.on_wake(); }";
        assert!(runs_acquire_machine(driver));
        assert!(!runs_acquire_machine("struct AcquireMachine;\n// The driver's loop.\n"));
        assert!(!runs_acquire_machine("loop { client.acquire(name).await; }"));
        assert!(contains_simulator("crates/core/tests/other/a.rs", "pub(super) struct SimWorld(u8);"));
        assert!(contains_simulator("crates/drill/src/sim/plan.rs", ""));
        assert!(!contains_simulator("crates/sim/src/lib.rs", "struct SimProfile;"));
    }
}
