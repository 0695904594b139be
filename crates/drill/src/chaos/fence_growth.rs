//! Checks that fences grow from window to window of a soak, although each window's history is
//! dropped.

use std::collections::BTreeMap;

use leasehold_core::Fence;

use crate::history::{History, HistoryEntry};
use crate::oracle::granted_fence;

/// Compares the lowest fence of each name in this window with the highest one of earlier windows.
pub(super) fn check_fence_growth(
    history: &History,
    greatest: &mut BTreeMap<String, Fence>,
    broken: &mut Vec<String>,
) {
    // Lowest and highest fence per name are enough: the checker (I2) compares the fences within a
    // window.
    let mut new: BTreeMap<&str, (Fence, Fence)> = BTreeMap::new();
    for record in &history.records {
        let HistoryEntry::Event(seen) = &record.what else {
            continue;
        };
        if let (Some(name), Some(fence)) = (seen.name.as_deref(), granted_fence(seen)) {
            let (least, most) = new.entry(name).or_insert((fence, fence));
            (*least, *most) = ((*least).min(fence), (*most).max(fence));
        }
    }
    for (name, (least, most)) in new {
        if let Some(known) = greatest.get(name).filter(|known| least <= **known) {
            broken.push(format!("I2: {name}: fence {least} was granted after {known} of an earlier window"));
        }
        let known = greatest.entry(name.to_owned()).or_insert(most);
        *known = (*known).max(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ClientEvent;
    use crate::scenario::test_history::{client_event, history_of, record_at};

    fn history_with_grant(fence: u64) -> History {
        history_with_event("acquired", None, fence)
    }

    fn history_with_event(event: &str, detail: Option<&str>, fence: u64) -> History {
        let event = ClientEvent { fence: Fence::new(fence), ..client_event(event, detail) };
        history_of(vec![record_at(1, "w", HistoryEntry::Event(event))])
    }

    #[test]
    fn a_fence_that_goes_back_between_windows_is_reported() {
        let (mut greatest, mut broken) = (BTreeMap::new(), Vec::new());
        check_fence_growth(&history_with_grant(5), &mut greatest, &mut broken);
        check_fence_growth(&history_with_grant(6), &mut greatest, &mut broken);
        assert!(broken.is_empty(), "{broken:?}");
        check_fence_growth(&history_with_grant(6), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 1, "issued twice: {broken:?}");
        check_fence_growth(&history_with_grant(4), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 2, "went back: {broken:?}");
        check_fence_growth(&history_with_event("renewed", None, 4), &mut greatest, &mut broken);
        check_fence_growth(&history_with_event("proven_again", None, 4), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 2, "nothing was granted: {broken:?}");
        check_fence_growth(&history_with_event("healed", None, 4), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 3, "went back as it healed: {broken:?}");
        let retaken = history_with_event("proven_again", Some("retaken"), 4);
        check_fence_growth(&retaken, &mut greatest, &mut broken);
        assert_eq!(broken.len(), 4, "went back as it was taken again: {broken:?}");
    }
}
