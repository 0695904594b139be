//! Places for requests that wait: fewer than connections, so that whoever keeps a lock finds one, and for one identity no more than
//! half of them, so that others find one too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// All places.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    /// The most of one identity.
    share: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Identities without a place are not in it.
    by: HashMap<String, usize>,
}

/// One of them, given back when it is dropped.
#[derive(Debug)]
#[must_use = "it is given back when it is dropped"]
pub(crate) struct Place {
    places: Arc<Places>,
    who: String,
}

impl Places {
    /// So many, and for one identity half of them if identities are told apart.
    pub(crate) fn new(most: usize, apart: bool) -> Arc<Self> {
        Arc::new(Self {
            most,
            share: if apart { most.div_ceil(2) } else { most },
            taken: Mutex::default(),
        })
    }

    /// A place of this identity's share, if there is one.
    pub(crate) fn take(self: &Arc<Self>, who: &str) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let had = taken.by.get(who).copied().unwrap_or(0);
        if taken.all >= self.most || had >= self.share {
            return None;
        }
        taken.all += 1;
        taken.by.insert(who.to_owned(), had + 1);
        Some(Place {
            places: Arc::clone(self),
            who: who.to_owned(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(1);
        if let Some(had) = taken.by.get_mut(&self.who) {
            *had -= 1;
            if *had == 0 {
                taken.by.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_identity_takes_half_and_gives_back_what_it_took() {
        let places = Places::new(6, true);
        let take = |who| places.take(who);
        let mut a: Vec<_> = (0..9).filter_map(|_| take("a")).collect();
        let b: Vec<_> = (0..9).filter_map(|_| take("b")).collect();
        assert_eq!((a.len(), b.len(), take("c").is_none()), (3, 3, true));
        a.pop();
        let c = take("c");
        assert!(c.is_some() && take("a").is_none() && take("d").is_none());
        drop((a, b, c));
        let taken = places.taken.lock().unwrap();
        assert!(taken.all == 0 && taken.by.is_empty());
    }

    #[test]
    fn where_nobody_is_told_apart_all_are_one() {
        let places = Places::new(6, false);
        let all: Vec<_> = (0..9).filter_map(|_| places.take("local")).collect();
        assert_eq!(all.len(), 6);
    }
}
