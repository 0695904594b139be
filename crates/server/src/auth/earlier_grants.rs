//! Grants written before submitting, working and approving were rights of their own: `hold` and `admin`
//! allowed more then. The daemon names each of them at its start.

use super::{Grant, Principal, Right};

/// What each kind's grants of an earlier version allowed: the kind, the right that allowed it, what it was,
/// and what to add. `SCOPE` stands for the grant's scope.
const LOST_ALLOWANCES: &[(&str, Right, &str, &str)] = &[
    (
        "job",
        Right::Hold,
        "submit and cancel jobs, work on them, or decide about approvals",
        "submit:SCOPE with submit:topic, work:SCOPE or approve:SCOPE",
    ),
    (
        "run",
        Right::Hold,
        "start, cancel and rerun runs",
        "submit:SCOPE with submit:workflow, submit:org and submit:topic",
    ),
    ("job", Right::Admin, "submit into every topic", "submit:topic"),
    (
        "run",
        Right::Admin,
        "start every workflow for every organisation",
        "submit:workflow, submit:org and submit:topic",
    ),
    ("workflow", Right::Admin, "define steps for every topic", "submit:topic"),
];

/// One warning for each grant of this principal that allows less than in an earlier version, unless a grant of
/// one of the newer rights has the same scope: the owner of the file has looked at that one since. And one for
/// each grant that allows nothing: an earlier version has accepted it, so the daemon still starts.
pub(crate) fn warnings(who: &Principal) -> Vec<String> {
    let lost = who.grants().iter().filter(|grant| !is_renewed(who, grant));
    let lost = lost.filter_map(|grant| warning(who.id(), grant));
    let idle = who.grants().iter().filter_map(|grant| grant.check_kind().err());
    lost.chain(idle.map(|refused| format!("of {}: {refused}", who.id()))).collect()
}

/// Whether a grant of a newer right replaces what this one has lost.
fn is_renewed(who: &Principal, old: &Grant) -> bool {
    let newer = [Right::Submit, Right::Work, Right::Approve, Right::Define, Right::Command];
    who.grants().iter().filter(|grant| newer.contains(&grant.right)).any(|grant| match old.right {
        // `admin` lost topics, whatever its own scope is.
        Right::Admin => grant.right == Right::Submit && grant.scope.covers_namespace("topic"),
        _ => grant.scope.includes(&old.scope),
    })
}

fn warning(id: &str, grant: &Grant) -> Option<String> {
    if *grant == Grant::everything() {
        return None;
    }
    let lost: Vec<_> = LOST_ALLOWANCES
        .iter()
        .filter(|(kind, right, ..)| *right == grant.right && grant.scope.meets_namespace(kind))
        .map(|(.., what, add)| {
            let add = add.replace("SCOPE", &grant.scope.to_string());
            format!("does not allow to {what} any more: add {add}")
        })
        .collect();
    (!lost.is_empty()).then(|| format!("the grant {grant} of {id} {}", lost.join("; it ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(grants: &[&str]) -> Vec<String> {
        let grants: Vec<Grant> = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        warnings(&Principal::new("ci", grants))
    }

    #[test]
    fn a_grant_that_lost_something_is_named_with_what_to_add() {
        assert_eq!(
            warned(&["hold:job:acme", "read:*", "hold:deploy"]),
            [
                "the grant hold:job:acme of ci does not allow to submit and cancel jobs, work on them, or decide about approvals any more: \
                 add submit:job:acme with submit:topic, work:job:acme or approve:job:acme"
            ]
        );
        let all = warned(&["hold:*"]);
        assert!(all.len() == 1 && all[0].contains("work:*") && all[0].contains("rerun"), "{all:?}");
        assert!(warned(&["admin:workflow"])[0].contains("submit:topic"));
    }

    #[test]
    fn nothing_is_said_about_grants_that_lost_nothing() {
        for grants in [
            &["admin:*"][..],
            &["hold:deploy", "read:job"],
            &["hold:job:acme", "work:job:acme"],
            &["hold:job:acme", "submit:job"],
            &["admin:job", "submit:topic"],
            &[],
        ] {
            assert_eq!(warned(grants), [""; 0], "{grants:?}");
        }
    }

    #[test]
    fn a_newer_right_on_another_scope_hides_no_warning() {
        for grants in [
            &["hold:job", "work:topic:pay"][..],
            &["hold:job", "work:job:acme"],
            &["hold:job:acme", "submit:job:acme2"],
            &["admin:job", "submit:topic:pay"],
        ] {
            assert_eq!(warned(grants).len(), 1, "{grants:?}");
        }
    }

    #[test]
    fn a_grant_that_allows_nothing_is_named() {
        let warned = warned(&["submit:deploy", "hold:deploy"]);
        assert!(warned.len() == 1 && warned[0].contains("submit:deploy"), "{warned:?}");
    }
}
