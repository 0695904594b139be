//! Where a resource's mark lives: in the same hash slot, and in nobody else's place.

use leasehold_core::Invalid;

/// What all marks start with. The number is the version of what is stored there.
pub(super) const PREFIX: &str = "leasehold:fence:1:";

/// The longest resource, in bytes.
const MAX: usize = 4096;

/// The key that holds the newest fence of `resource`, for scripts of your own.
///
/// Redis Cluster hashes only what stands between the first `{` and the next `}`, if there is anything; so a
/// resource without such a tag becomes the tag, and one that has a tag keeps it. Different resources
/// have different marks.
///
/// ```
/// use leasehold_fence::redis::mark_key;
///
/// assert_eq!(mark_key("job:42")?, "leasehold:fence:1:{job:42}");
/// assert_eq!(mark_key("{job:42}:state")?, "leasehold:fence:1:tagged:{job:42}:state");
/// # Ok::<(), leasehold_core::Invalid>(())
/// ```
///
/// # Errors
/// The resource is empty, too long, one of our own marks, or contains a `}` where no key in the same slot can be
/// made from it.
pub fn mark_key(resource: &str) -> Result<String, Invalid> {
    check(resource)?;
    if tag(resource).is_some() {
        return Ok(format!("{PREFIX}tagged:{resource}"));
    }
    if resource.contains('}') {
        return Err(Invalid::new(
            "resource",
            resource,
            "must not contain `}` outside a hash tag such as `{user:1}`",
        ));
    }
    Ok(format!("{PREFIX}{{{resource}}}"))
}

/// What may be a resource or a key of a fenced write.
pub(super) fn check(key: &str) -> Result<(), Invalid> {
    let why = if key.is_empty() {
        "must not be empty".into()
    } else if key.len() > MAX {
        format!("is {} bytes long; at most {MAX} are allowed", key.len())
    } else if key.starts_with(PREFIX) {
        // A write to a mark could make it go back.
        format!("must not start with `{PREFIX}`, where the marks are")
    } else {
        return Ok(());
    };
    Err(Invalid::new("key", key, why))
}

/// The part that Redis Cluster hashes instead of the whole key.
fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hashed(key: &str) -> &str {
        tag(key).unwrap_or(key)
    }

    #[test]
    fn keys_that_cannot_keep_their_slot_are_refused() {
        for bad in [
            "",
            "a}b",
            "}{",
            "{}",
            "a{}b",
            "leasehold:fence:1:{job:42}",
            &"x".repeat(4097),
        ] {
            assert!(mark_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_plain_resource_and_a_tagged_one_do_not_share_a_mark() {
        assert_ne!(mark_key("k").unwrap(), mark_key("{k}").unwrap());
        assert_ne!(mark_key("tagged:k").unwrap(), mark_key("{tagged:k}").unwrap());
    }

    proptest! {
        #[test]
        fn a_mark_hashes_like_its_resource(resource in "[a-c{}:]{1,12}|\\PC{1,40}") {
            if let Ok(mark) = mark_key(&resource) {
                prop_assert_eq!(hashed(&mark), hashed(&resource));
            }
        }

        #[test]
        fn different_resources_have_different_marks(one in "[ab{}]{1,6}", other in "[ab{}]{1,6}") {
            if let (Ok(first), Ok(second)) = (mark_key(&one), mark_key(&other)) {
                prop_assert_eq!(first == second, one == other);
            }
        }
    }
}
