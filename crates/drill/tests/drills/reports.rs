//! What the reports say of a history that lacks records.

use leasehold_drill::history::read;
use leasehold_drill::report::{details, document, page};
use leasehold_drill::scenario::{Outcome, Verdict};

/// A record of an older version cannot be judged. Every report names the line, and the
/// invariants that were not judged.
#[test]
fn every_report_names_what_could_not_be_judged() {
    let old = r#"{"at":7,"who":"<w>","what":"claimed","attempt":3,"until":9,"proven":true}"#;
    let verdict = Verdict::of_history(read(old.as_bytes()).unwrap());
    assert_eq!(verdict.outcome, Outcome::Violation);
    let why = "line 1 cannot be read: invalid type: boolean";
    let text = details(&verdict);
    assert!(text.contains(why), "{text}");
    assert!(text.contains("judged against I1 I2 I3 I5 I6 I8 I9 I10 L4\n"), "{text}");
    let page = page(std::slice::from_ref(&verdict), &[]);
    assert!(page.contains(why), "{page}");
    assert!(page.contains("does not show it: I4, I7, L2, L3, L5, L6."), "{page}");
    let document = document(&[verdict], &[]);
    let history = &document["drills"][0]["history"];
    assert!(history["lacks"].as_str().unwrap().contains(why), "{history}");
    assert_eq!(history["judged"].as_array().unwrap().len(), 9, "{history}");
}
