//! Many short drills, several at a time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde::Serialize;

use super::micro::{Micro, micro, only_late};
use crate::fleet::{Error, Program, StoreKind};

/// How often one is tried before it counts as one that could not be run.
const TRIES: u32 = 4;

/// What many drills add up to.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct Sums {
    /// Drills that ran to their end.
    pub drills: u64,
    /// Drills that could not be run, and why: these say nothing about the store.
    pub failed: BTreeMap<u64, String>,
    /// Seeds of those in which only time was broken, and only once: the same drill, run again at once, was clean.
    pub late: BTreeMap<u64, Vec<String>>,
    /// Seeds of those that were not clean, and what was broken.
    pub violations: BTreeMap<u64, Vec<String>>,
    /// By store and fault.
    pub faults: BTreeMap<String, u64>,
    /// Leases granted.
    pub grants: u64,
    /// Holds that were fenced.
    pub fenced: u64,
    /// Writes that targets applied.
    pub applied: u64,
    /// Stale writes that targets refused.
    pub refused: u64,
    /// Acquires that were answered with unavailable.
    pub unavailable: u64,
    /// Releases that could not be confirmed.
    pub debts: u64,
}

impl Sums {
    /// Adds a drill.
    pub fn add(&mut self, done: &Micro) {
        self.drills += 1;
        let key = format!("{}/{}", done.store.word(), done.fault.word());
        *self.faults.entry(key).or_default() += 1;
        // What was late twice is broken, and not late once.
        if !done.late.is_empty() && done.broken.is_empty() {
            self.late.insert(done.seed, done.late.clone());
        }
        if !done.broken.is_empty() {
            self.violations.insert(done.seed, done.broken.clone());
        }
        let of = &done.measures;
        self.grants += of.grants;
        self.fenced += of.abandoned.values().sum::<u64>();
        self.applied += of.applied;
        self.refused += of.refused;
        self.unavailable += of.unavailable;
        self.debts += of.debts;
    }
}

/// Runs the drills of `count` seeds from `first` on, at most `lanes` at a time; `done` hears of each as it ends. Dropping
/// the future ends all of them.
pub async fn many(
    first: u64,
    count: u64,
    lanes: usize,
    on: Option<StoreKind>,
    program: &Program,
    done: impl FnMut(u64, &Result<Micro, Error>),
) -> Sums {
    let (next, sums, done) = (Cell::new(0), RefCell::new(Sums::default()), RefCell::new(done));
    let lane = || async {
        while next.get() < count {
            let seed = first.wrapping_add(next.replace(next.get() + 1));
            let ran = patiently(async || micro(seed, on, program).await).await;
            (done.borrow_mut())(seed, &ran);
            match &ran {
                Ok(ran) => sums.borrow_mut().add(ran),
                Err(error) => {
                    sums.borrow_mut().failed.insert(seed, error.to_string());
                }
            }
        }
    };
    join_all((0..lanes.max(1)).map(|_| lane())).await;
    sums.into_inner()
}

/// The next try may do better. Not so where the director cannot use the store after the fault: that is no matter of luck.
fn luck(error: &Error) -> bool {
    matches!(error, Error::Busy { .. } | Error::Waited(_) | Error::Fault(_))
}

/// What a busy machine has spoilt is tried again. Where only time was broken and nobody felt why, the same drill must break
/// it twice in a row; what was seen the first time is told in any case.
async fn patiently(mut run: impl AsyncFnMut() -> Result<Micro, Error>) -> Result<Micro, Error> {
    let (mut tries, mut late) = (1, Vec::new());
    loop {
        match run().await {
            Err(error) if tries < TRIES && luck(&error) => tries += 1,
            Ok(ran) if late.is_empty() && only_late(&ran.broken) => late = ran.broken,
            Ok(mut ran) => {
                ran.late = late;
                return Ok(ran);
            }
            Err(error) if late.is_empty() => return Err(error),
            Err(error) => {
                return Err(Error::Again {
                    error: Box::new(error),
                    before: late.join("; "),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::chaos::Fault;
    use crate::history::History;
    use crate::scenario::Measures;

    const LATE: &str = "L5: nobody was granted the name";
    const WORSE: &str = "I1: two at once";

    fn ran(broken: &[&str]) -> Result<Micro, Error> {
        Ok(Micro {
            seed: 7,
            store: StoreKind::Sqlite,
            fault: Fault::Kill,
            broken: broken.iter().map(|why| (*why).to_owned()).collect(),
            late: Vec::new(),
            took: Duration::ZERO,
            measures: Measures::default(),
            history: History::default(),
        })
    }

    fn busy() -> Result<Micro, Error> {
        Err(Error::Waited("for somebody to work".into()))
    }

    /// What comes of runs that end like this, and how many of them there were.
    async fn told(ends: Vec<Result<Micro, Error>>) -> (Result<Micro, Error>, usize) {
        let all = ends.len();
        let mut ends = ends.into_iter();
        let told = patiently(async || ends.next().unwrap()).await;
        (told, all - ends.len())
    }

    #[tokio::test]
    async fn what_is_late_twice_in_a_row_is_broken_and_once_is_told_apart() {
        let (told_of, runs) = told(vec![ran(&[LATE]), ran(&[LATE]), ran(&[])]).await;
        let twice = told_of.unwrap();
        assert_eq!((runs, &*twice.broken), (2, &[LATE.to_owned()][..]));
        let (told_of, runs) = told(vec![ran(&[LATE]), ran(&[]), ran(&[])]).await;
        let once = told_of.unwrap();
        assert_eq!((runs, &*once.late), (2, &[LATE.to_owned()][..]));
        assert!(once.broken.is_empty());
        let mut sums = Sums::default();
        sums.add(&twice);
        assert_eq!((sums.violations.len(), sums.late.len()), (1, 0));
        let mut sums = Sums::default();
        sums.add(&once);
        assert_eq!((sums.violations.len(), sums.late.len()), (0, 1));
    }

    #[tokio::test]
    async fn what_is_worse_than_late_is_broken_at_once() {
        for broken in [&[WORSE][..], &[LATE, WORSE]] {
            let (told_of, runs) = told(vec![ran(broken), ran(&[])]).await;
            assert_eq!((runs, told_of.unwrap().broken.len()), (1, broken.len()));
        }
    }

    #[tokio::test]
    async fn bad_luck_is_tried_again_but_not_for_ever_and_what_was_late_before_is_told() {
        let (told_of, runs) = told(vec![busy(), busy(), busy(), ran(&[]), busy()]).await;
        assert!(runs == 4 && told_of.is_ok());
        let (told_of, runs) = told(vec![busy(), busy(), busy(), busy(), ran(&[])]).await;
        assert!(runs == 4 && told_of.is_err());
        let (told_of, runs) = told(vec![Err(Error::Store("malformed".into())), ran(&[])]).await;
        assert!(runs == 1 && told_of.is_err());
        let (told_of, _) = told(vec![ran(&[LATE]), busy(), busy(), busy(), busy(), ran(&[])]).await;
        let why = told_of.unwrap_err().to_string();
        assert!(why.contains("somebody to work") && why.contains(LATE), "{why}");
    }

    #[test]
    fn a_store_that_cannot_be_used_afterwards_is_told_at_once() {
        assert!(luck(&Error::Waited("for somebody to work".into())));
        assert!(luck(&Error::Fault("the server: refused".into())));
        assert!(!luck(&Error::Store("database disk image is malformed".into())));
    }
}
