//! Builds histories by hand: one method per record, times in milliseconds.

use std::collections::BTreeMap;

use leasehold_core::Fence;
use leasehold_drill::history::{
    ClientEvent, History, HistoryEntry, HistoryRecord, RecordedOutcome, WriteOutcome,
};
use leasehold_drill::oracle::{Judgement, judge};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const NAME: &str = "job:1";

#[derive(Default, Clone)]
pub(crate) struct HistoryScript {
    pub(crate) records: Vec<HistoryRecord>,
    seqs: BTreeMap<String, u64>,
    // Class of each acquire, by client and number.
    asked: BTreeMap<(String, u64), String>,
}

impl HistoryScript {
    /// `strict` fences and fails closed, `loose` continues and fails open. Both have a TTL of 1 s, of which
    /// 900 ms are usable.
    pub(crate) fn new() -> Self {
        let mut script = Self::default();
        for class in ["strict", "loose"] {
            script.class(0, "director", class, 1000);
        }
        script
    }

    /// The terms of a class with a TTL of `ttl` milliseconds.
    pub(crate) fn class(&mut self, at: u64, who: &str, class: &str, ttl: u64) {
        let loose = class == "loose";
        let what = HistoryEntry::Class {
            class: class.into(),
            ttl: ttl * MS,
            usable: ttl * 9 / 10 * MS,
            fail_open: loose,
            continues: loose,
        };
        self.push_record(at, who, what);
    }

    pub(crate) fn push_record(&mut self, at: u64, who: &str, what: HistoryEntry) {
        self.records.push(HistoryRecord { at: at * MS, who: who.into(), what });
    }

    /// The director's signal to a client.
    pub(crate) fn signal(&mut self, at: u64, client: &str, signal: &str) {
        let (client, signal) = (client.into(), signal.into());
        self.push_record(at, "director", HistoryEntry::Signal { client, signal });
    }

    pub(crate) fn event(&mut self, at: u64, who: &str, attempt: u64, event: &str, fence: u64) {
        self.event_of(at, who, attempt, event, fence, None, None);
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn event_of(
        &mut self,
        at: u64,
        who: &str,
        hold: u64,
        event: &str,
        fence: u64,
        span: Option<u64>,
        detail: Option<&str>,
    ) {
        let class = self.asked.get(&(who.into(), hold));
        let class = class.map_or("strict", String::as_str).to_owned();
        let seq = self.seqs.entry(who.into()).or_default();
        let what = HistoryEntry::Event(ClientEvent {
            seq: *seq,
            hold,
            event: event.into(),
            name: Some(NAME.into()),
            class,
            fence: Fence::new(fence),
            span: span.map(|span| span * MS),
            detail: detail.map(Into::into),
        });
        *seq += 1;
        self.push_record(at, who, what);
    }

    pub(crate) fn begin_acquire(&mut self, at: u64, who: &str, attempt: u64, class: &str) {
        self.asked.insert((who.into(), attempt), class.into());
        self.push_record(at, who, HistoryEntry::Asked { attempt, name: NAME.into(), class: class.into() });
    }

    pub(crate) fn end_acquire(
        &mut self,
        at: u64,
        who: &str,
        attempt: u64,
        answer: RecordedOutcome,
        fence: u64,
    ) {
        self.push_record(
            at,
            who,
            HistoryEntry::Answered { attempt, sent: 0, answer, fence: Fence::new(fence) },
        );
    }

    /// Requested at `at`, granted 5 ms later, answered another 1 ms later.
    pub(crate) fn hold(&mut self, at: u64, who: &str, attempt: u64, fence: u64) {
        self.hold_as(at, who, attempt, "strict", fence);
    }

    pub(crate) fn hold_as(&mut self, at: u64, who: &str, attempt: u64, class: &str, fence: u64) {
        self.begin_acquire(at, who, attempt, class);
        self.event(at + 5, who, attempt, "acquired", fence);
        self.end_acquire(at + 6, who, attempt, RecordedOutcome::Held, fence);
    }

    /// A claim that is proven for all of its time, if it has a fence.
    pub(crate) fn claim(&mut self, at: u64, who: &str, attempt: u64, until: u64, fence: u64) {
        self.claim_of(at, who, attempt, (until, until), fence);
    }

    /// `until`: the end of permitted work, and the end of the proof.
    pub(crate) fn claim_of(&mut self, at: u64, who: &str, attempt: u64, until: (u64, u64), fence: u64) {
        self.push_record(
            at,
            who,
            HistoryEntry::Claimed {
                attempt,
                until: until.0 * MS,
                proven_until: (fence > 0).then_some(until.1 * MS),
                fence: Fence::new(fence),
            },
        );
    }

    pub(crate) fn written(
        &mut self,
        at: u64,
        who: &str,
        attempt: u64,
        write: u64,
        fence: u64,
        answer: WriteOutcome,
    ) {
        self.push_record(
            at,
            who,
            HistoryEntry::Written { attempt, write, sent: (at - 1) * MS, fence: Fence::new(fence), answer },
        );
    }

    pub(crate) fn applied(&mut self, place: u64, writer: &str, write: u64, fence: u64) {
        self.push_record(
            9000,
            "target",
            HistoryEntry::Applied {
                place,
                name: NAME.into(),
                writer: writer.into(),
                write,
                task: None,
                fence: Fence::new(fence),
            },
        );
    }

    pub(crate) fn returned(&mut self, at: u64, who: &str, attempt: u64, value: u64) {
        self.push_record(at, who, HistoryEntry::Returned { attempt, value });
    }

    pub(crate) fn reported(&mut self, at: u64, who: &str, attempt: u64, value: Option<u64>, lost: bool) {
        self.push_record(at, who, HistoryEntry::Reported { attempt, value, lost });
    }

    pub(crate) fn release(&mut self, at: u64, who: &str, attempt: u64) {
        self.push_record(at, who, HistoryEntry::Releasing { attempt });
        self.event(at + 5, who, attempt, "released", 0);
    }

    pub(crate) fn lease(&mut self, at: u64, holder: &str, fence: u64) {
        self.push_record(
            at,
            "director",
            HistoryEntry::Lease { name: NAME.into(), holder: holder.into(), fence: Fence::new(fence) },
        );
    }

    pub(crate) fn judgement(&self) -> Judgement {
        judge(&History { records: self.records.clone(), damage: Vec::new() })
    }

    /// Asserts that exactly these invariants are broken.
    pub(crate) fn assert_broken(&self, invariants: &[&str]) -> Judgement {
        let judged = self.judgement();
        let mut broken: Vec<_> = judged.findings.iter().map(|found| found.invariant).collect();
        broken.sort_unstable();
        broken.dedup();
        assert_eq!(broken, invariants, "{:#?}", judged.findings);
        judged
    }
}
