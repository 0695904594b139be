//! The key of a resource's mark: in the resource's hash slot, and different for every resource.

use leasehold_core::InvalidInput;

/// Prefix of all marks. The number is the version of the format.
pub(super) const MARK_PREFIX: &str = "leasehold:fence:1:";

/// Limit of a resource's length, in bytes.
const MAX_KEY_BYTES: usize = 4096;

/// The key that holds the newest fence of `resource`, for scripts of your own.
///
/// Redis Cluster hashes only the text between the first `{` and the next `}`, if there is any. So
/// a resource without such a tag becomes the tag, and one with a tag keeps it. Different
/// resources have different marks.
///
/// ```
/// use leasehold_fence::redis::mark_key;
///
/// assert_eq!(mark_key("job:42")?, "leasehold:fence:1:{job:42}");
/// assert_eq!(mark_key("{job:42}:state")?, "leasehold:fence:1:tagged:{job:42}:state");
/// # Ok::<(), leasehold_core::InvalidInput>(())
/// ```
///
/// # Errors
/// The resource is empty, too long, or one of the marks. Or it contains a `}` such that no key in
/// the same slot can be built from it.
pub fn mark_key(resource: &str) -> Result<String, InvalidInput> {
    check_key(resource)?;
    if hash_tag(resource).is_some() {
        // `tagged:` keeps `{k}` and `k` apart: without it, both would get the mark `{k}`.
        return Ok(format!("{MARK_PREFIX}tagged:{resource}"));
    }
    if resource.contains('}') {
        return Err(InvalidInput::new(
            "resource",
            resource,
            "must not contain `}` outside a hash tag such as `{user:1}`",
        ));
    }
    Ok(format!("{MARK_PREFIX}{{{resource}}}"))
}

/// Checks a resource, or a key of a fenced write.
pub(super) fn check_key(key: &str) -> Result<(), InvalidInput> {
    let why = if key.is_empty() {
        "must not be empty".into()
    } else if key.len() > MAX_KEY_BYTES {
        format!("is {} bytes long; at most {MAX_KEY_BYTES} are allowed", key.len())
    } else if key.starts_with(MARK_PREFIX) {
        // A write to a mark could lower it.
        format!("must not start with `{MARK_PREFIX}`, where the marks are")
    } else {
        return Ok(());
    };
    Err(InvalidInput::new("key", key, why))
}

/// The part that Redis Cluster hashes instead of the whole key.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hashed(key: &str) -> &str {
        hash_tag(key).unwrap_or(key)
    }

    #[test]
    fn keys_that_cannot_keep_their_slot_are_refused() {
        for bad in ["", "a}b", "}{", "{}", "a{}b", "leasehold:fence:1:{job:42}", &"x".repeat(4097)] {
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
