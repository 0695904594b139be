//! Fences grow from window to window of a soak, although each window's history is forgotten.

use std::collections::BTreeMap;

use leasehold_core::Fence;

use crate::history::{Entry, History};
use crate::oracle::granted;

/// Looks at what a window's history was granted, and at what was granted before.
pub(super) fn grows(history: &History, greatest: &mut BTreeMap<String, Fence>, broken: &mut Vec<String>) {
    let mut new: BTreeMap<&str, (Fence, Fence)> = BTreeMap::new();
    for record in &history.records {
        let Entry::Event(seen) = &record.what else {
            continue;
        };
        if let (Some(name), Some(fence)) = (seen.name.as_deref(), granted(seen)) {
            let (least, most) = new.entry(name).or_insert((fence, fence));
            (*least, *most) = ((*least).min(fence), (*most).max(fence));
        }
    }
    for (name, (least, most)) in new {
        if let Some(known) = greatest.get(name).filter(|known| least <= **known) {
            broken.push(format!(
                "I2: {name}: fence {least} was granted after {known} of an earlier window"
            ));
        }
        let known = greatest.entry(name.to_owned()).or_insert(most);
        *known = (*known).max(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Record, Transition};

    fn granted(fence: u64) -> History {
        told("acquired", None, fence)
    }

    fn told(event: &str, detail: Option<&str>, fence: u64) -> History {
        let what = Entry::Event(Transition {
            seq: 0,
            hold: 1,
            event: event.into(),
            name: Some("job:1".into()),
            class: "scheduler".into(),
            fence: Fence::new(fence),
            span: None,
            detail: detail.map(Into::into),
        });
        History {
            records: vec![Record {
                at: 1,
                who: "w".into(),
                what,
            }],
            damage: Vec::new(),
        }
    }

    #[test]
    fn a_fence_that_goes_back_between_windows_is_seen() {
        let (mut greatest, mut broken) = (BTreeMap::new(), Vec::new());
        grows(&granted(5), &mut greatest, &mut broken);
        grows(&granted(6), &mut greatest, &mut broken);
        assert!(broken.is_empty(), "{broken:?}");
        grows(&granted(6), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 1, "issued twice: {broken:?}");
        grows(&granted(4), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 2, "went back: {broken:?}");
        grows(&told("renewed", None, 4), &mut greatest, &mut broken);
        grows(&told("proven_again", None, 4), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 2, "nothing was granted: {broken:?}");
        grows(&told("healed", None, 4), &mut greatest, &mut broken);
        assert_eq!(broken.len(), 3, "went back as it healed: {broken:?}");
        let retaken = told("proven_again", Some("retaken"), 4);
        grows(&retaken, &mut greatest, &mut broken);
        assert_eq!(broken.len(), 4, "went back as it was taken again: {broken:?}");
    }
}
