//! Samples chosen by a commit's hash: the same commit tries the same items again, the next commit tries others.

/// `count` of the items, in their order. All of them if there are no more.
pub(crate) fn sample<'a>(items: &'a [String], count: usize, commit: &str) -> Vec<&'a String> {
    let mut ranked: Vec<_> = items.iter().enumerate().map(|(at, item)| (rank(commit, item), at)).collect();
    // By rank and not by position: an item that is added or removed changes the sample by at most one.
    ranked.sort_unstable();
    let mut chosen: Vec<_> = ranked.into_iter().take(count).map(|(_, at)| at).collect();
    chosen.sort_unstable();
    chosen.into_iter().map(|at| &items[at]).collect()
}

/// One of `count` numbers from 0 on.
pub(crate) fn choice(commit: &str, count: u64) -> u64 {
    rank(commit, "choice") % count.max(1)
}

/// The first seed of a commit's fault drills. The ledger's own seeds begin at a million, above all of these.
pub(crate) fn fault_seed(commit: &str, drills: u64) -> u64 {
    rank(commit, "faults") % 3_000 * drills
}

/// FNV-1a over both texts, then a finalizer, because the high bits of FNV change little with the last letters.
fn rank(commit: &str, item: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in commit.bytes().chain([0]).chain(item.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("item {at:03}")).collect()
    }

    #[test]
    fn a_commit_chooses_the_same_items_each_time() {
        let items = items(100);
        assert_eq!(sample(&items, 10, "12849a4"), sample(&items, 10, "12849a4"));
        assert_ne!(sample(&items, 10, "12849a4"), sample(&items, 10, "12849a5"));
    }

    #[test]
    fn a_sample_has_its_size_its_order_and_no_item_twice() {
        let items = items(100);
        let chosen = sample(&items, 40, "12849a4");
        assert_eq!(chosen.len(), 40);
        assert!(chosen.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(sample(&items[..7], 40, "12849a4").len(), 7);
    }

    #[test]
    fn every_item_is_chosen_by_some_commit() {
        let items = items(35);
        for item in &items {
            assert!((0..100).any(|commit| sample(&items, 10, &commit.to_string()).contains(&item)), "{item}");
        }
    }

    #[test]
    fn every_number_is_chosen_by_some_commit() {
        let chosen: std::collections::BTreeSet<_> =
            (0..200).map(|commit| choice(&commit.to_string(), 7)).collect();
        assert!(chosen.into_iter().eq(0..7));
    }

    #[test]
    fn fault_seeds_stay_below_the_ledger() {
        assert!((0..10_000).all(|commit| fault_seed(&commit.to_string(), 300) + 300 <= 1_000_000));
    }
}
