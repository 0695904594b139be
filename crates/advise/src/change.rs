//! Applies an advice to the text of a policy file, and formats the change as a diff for review or
//! `patch`.

use leasehold_core::policy::duration::exact;
use similar::TextDiff;
use toml_edit::{DocumentMut, Item, Table, value};

use crate::advice::Plan;

/// Returns the policy file's text with the plan set in one class. Comments and order are kept.
///
/// # Errors
/// The text is not TOML, or the class is not a table in it.
pub fn apply(text: &str, class: &str, plan: &Plan) -> Result<String, String> {
    let mut document: DocumentMut =
        text.parse().map_err(|error| format!("the policy file is not TOML: {error}"))?;
    let class_table = table(document.as_table_mut(), "class", true)?;
    let own = table(class_table, class, false)?;
    own.insert("ttl", value(exact(plan.ttl)));
    let renew = table(own, "renew", false)?;
    renew.insert("every", value(exact(plan.every)));
    renew.insert("timeout", value(exact(plan.timeout)));
    Ok(document.to_string())
}

/// Returns the difference between two versions of a file, as `diff -u` prints it.
#[must_use]
pub fn diff(path: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after);
    diff.unified_diff().header(&format!("a/{path}"), &format!("b/{path}")).to_string()
}

fn table<'a>(parent: &'a mut Table, key: &str, implicit: bool) -> Result<&'a mut Table, String> {
    let item = parent.entry(key).or_insert_with(|| {
        let mut table = Table::new();
        // Implicit: no empty `[class]` header is printed.
        table.set_implicit(implicit);
        Item::Table(table)
    });
    item.as_table_mut().ok_or_else(|| format!("`{key}` is not a table in the policy file; write [{key}]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Requirements;
    use std::time::Duration;

    fn plan() -> Plan {
        Plan::of(Duration::from_secs(24), Duration::from_secs(2), &Requirements::default())
    }

    #[test]
    fn comments_and_other_classes_stay() {
        let before = "# ours\n[class.scheduler] # critical\nttl = \"60s\"\n\n[class.other]\nttl = \"5s\"\n";
        let after = apply(before, "scheduler", &plan()).unwrap();
        assert!(after.starts_with("# ours\n[class.scheduler] # critical\nttl = \"24s\""), "{after}");
        assert!(after.contains("[class.scheduler.renew]\nevery = \"8s\"\ntimeout = \"2s\""), "{after}");
        assert!(after.contains("[class.other]\nttl = \"5s\""), "{after}");
        let diff = diff("leasehold.toml", before, &after);
        assert!(diff.contains("-ttl = \"60s\"\n+ttl = \"24s\""), "{diff}");
    }

    #[test]
    fn an_empty_file_gets_a_class_and_the_book_takes_it() {
        let after = apply("", "scheduler", &plan()).unwrap();
        let book = leasehold_core::policy::PolicyBook::from_text(&after, "advised");
        assert!(book.is_ok(), "{after}\n{book:?}");
        assert!(apply("not toml", "scheduler", &plan()).is_err());
        assert!(apply("class = 1", "scheduler", &plan()).is_err());
    }
}
