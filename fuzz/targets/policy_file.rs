//! Policy files: one that is taken can work, and prints as a file that means the same; one that is refused says why and
//! where.
#![no_main]

use leasehold_core::clock::Moment;
use leasehold_core::policy::{PolicyBook, RenewPlan, check, problems};
use leasehold_core::types::Ttl;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let found = problems(text, "f.toml");
    match PolicyBook::from_text(text, "f.toml") {
        Ok(book) => {
            assert!(found.is_empty(), "taken in spite of {found:?}");
            for name in book.classes() {
                class(&book, &name);
            }
        }
        Err(refused) => {
            assert!(!found.is_empty(), "refused without a problem: {refused}");
            let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
            for problem in &found {
                assert!(!problem.field.is_empty() && !problem.allowed.is_empty(), "{problem:?}");
                if let Some(rest) = problem.field.strip_prefix("f.toml:") {
                    let digits = rest.split(':').next().unwrap_or_default();
                    let line: usize = digits.parse().unwrap_or_else(|_| panic!("no line: {problem:?}"));
                    assert!((1..=lines).contains(&line), "{problem:?} in {lines} lines");
                }
                assert!(refused.to_string().contains(&problem.to_string()), "{problem} is not told");
            }
        }
    }
});

/// What every class in force has.
fn class(book: &PolicyBook, name: &str) {
    let class = book.class(name, Moment::ZERO).expect("it is listed");
    assert_eq!(class.name.as_ref(), name);
    check(&class).expect("what a file can say is checked as in code");
    assert!((Ttl::MIN..=Ttl::MAX).contains(&class.ttl));
    assert!(!class.usable().is_zero() && class.usable() < class.ttl.get(), "{class:?}");
    assert!(RenewPlan::of(&class).is_none_or(|plan| plan.retry_ended <= class.usable()));

    let explained = book.explain(name, Moment::ZERO).expect("what is in force can be explained");
    assert_eq!(explained.class, *class);
    let whole = explained.to_toml();
    let again =
        PolicyBook::from_text(&whole, "again.toml").unwrap_or_else(|error| panic!("{error}\n{whole}"));
    let again = again.explain(name, Moment::ZERO).expect("it is stated");
    assert_eq!(again.class, *class, "{whole}");
    assert_eq!(again.rules, explained.rules);
    assert_eq!(again.to_toml(), whole);
}
