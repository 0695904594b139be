//! `docs/proof/seeded-bugs.md`, written from a run of every bug.

use std::fmt::Write;

use anyhow::Context;

use super::{BugTotals, Row, bug};

const PATH: &str = "docs/proof/seeded-bugs.md";

pub(crate) fn write(rows: &[Row<'_>], outcome: &BugTotals) -> anyhow::Result<()> {
    let waiting = bug::read_waiting()?;
    let mut out = String::from(HEAD);
    writeln!(
        out,
        "Caught: {} of {}; {} more wait for the parts that they concern.",
        outcome.caught,
        outcome.tried,
        waiting.len()
    )?;
    let mut alone: Vec<_> =
        rows.iter().filter(|row| row.bug.layers.len() == 1).map(|row| &*row.bug.number).collect();
    if alone.is_empty() {
        alone.push("none");
    }
    writeln!(out, "Only one layer is named for: {}.\n", alone.join(", "))?;
    writeln!(out, "| # | mistake | layer | tests that failed |\n|---|---|---|---|")?;
    for row in rows {
        let tests = if row.failed.is_empty() { "none".to_owned() } else { some(4, &row.failed) };
        writeln!(out, "| {} | {} | {} | {tests} |", row.bug.number, row.bug.title, row.layer.name)?;
    }
    out.push_str("\n## Waiting\n\nTheir patches come with the part they concern.\n\n| # | mistake | waits for |\n|---|---|---|\n");
    for [number, title, part] in waiting {
        writeln!(out, "| {number} | {title} | {part} |")?;
    }
    std::fs::write(PATH, out).context(PATH)?;
    println!("written: {PATH}");
    Ok(())
}

/// The first of the names, and how many more there are.
pub(crate) fn some(most: usize, names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(most).map(|name| format!("`{name}`")).collect();
    let more = names.len().saturating_sub(most);
    let end = if more == 0 { String::new() } else { format!(" and {more} more") };
    shown.join(", ") + &end
}

const HEAD: &str = "\
# Seeded bugs

Known mistakes of lock libraries, each put back into the real code as a patch (`proof/bugs/`), and the tests that failed.
This page is written by `scripts/seeded-bugs --all --write`; `scripts/seeded-bugs 05` repeats one. A bug counts as caught
if tests fail in every layer that its patch names; code that does not compile does not count.

A patch puts its mistake where its layers look, mostly into one store: it says nothing about the others.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_shortened() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(some(3, &names), "`a`, `b`, `c`");
        assert_eq!(some(2, &names), "`a`, `b` and 1 more");
    }
}
