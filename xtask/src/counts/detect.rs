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

/// Whether a string names the scheme of a store's URL: `"redis:"`, `"try sqlite:locks.db"`.
pub(super) fn writes_store_scheme(text: &str) -> bool {
    let is_scheme = |line: &str, at: usize| {
        let (before, after) = (&line[..at], &line[at + 1..]);
        let word = before.rsplit(|at: char| at != '_' && !at.is_alphanumeric()).next().unwrap_or_default();
        let in_string = before.replace("\\\"", "").matches('"').count() % 2 == 1;
        in_string && STORE_SCHEMES.contains(&word) && !after.starts_with([':', ' ']) && !before.ends_with(':')
    };
    code_lines(text).any(|line| line.match_indices(':').any(|(at, _)| is_scheme(line, at)))
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
    fn store_schemes_are_seen_in_strings_only() {
        let line = |text: &str| writes_store_scheme(text);
        assert!(line(r#"let url = "redis://localhost";"#) && line(r#"if text == "memory:" {"#));
        assert!(line(r#"help("say \"no\", or name sqlite:locks.db")"#));
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
