//! Must break: one rule is replaced by a known mistake, or one fault happens that nothing guards
//! against.

use super::BASE_CONFIG;
use crate::model::config::{
    DataLoss, DeadlineFrom, ExpectedResult, FenceFrom, ModelConfig, OnFailure, Rules,
};
use crate::model::promise::ModelPromise::{I1, I2, I3, I4, I5Deadline, I5Work, I6, L1};

/// Each is searched for the shortest counterexample to each promise it names.
pub const MUST_BREAK: &[ModelConfig] = &[
    ModelConfig {
        name: "breaks_with_a_deadline_from_the_reply",
        about: "the holder counts from the answer's arrival, which may be late",
        rules: Rules { deadline: DeadlineFrom::Reply, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I1, I5Deadline]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_with_a_deadline_from_the_latest_ask",
        about: "the answer to an earlier ask is counted from a later one",
        requests_per_acquire: 2,
        fault_ticks: 5,
        in_flight: 3,
        rules: Rules { deadline: DeadlineFrom::LatestRequest, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I1, I5Deadline]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_with_a_margin_of_one_clock_error",
        about: "the holder allows for its own clock and not for the store's",
        rules: Rules { margin: 1, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I1, I5Deadline]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_without_a_margin",
        about: "the holder trusts both clocks",
        rules: Rules { margin: 0, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I1, I5Deadline]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_with_cached_validity",
        about: "the holder remembers that its lease was valid, and pauses",
        writes: 1,
        rules: Rules { checks_at_use: false, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I5Work]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_without_a_fence_at_the_target",
        about: "a write is late, or its sender paused after looking, and fences are not compared",
        writes: 1,
        rules: Rules { target_enforces: false, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I3]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_without_a_fence_over_a_failover",
        about: "two holders at once after a lossy fail-over, and fences are not compared",
        writes: 1,
        data_loss: DataLoss::LaggingReplica,
        rules: Rules { target_enforces: false, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I1, I3]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_with_a_fence_repeated_to_its_owner",
        about: "a client that comes back gets its old fence, and its old writes pass for new ones",
        clients: 2,
        attempts: 2,
        writes: 1,
        ttl: 3,
        fault_ticks: 3,
        in_flight: 3,
        rules: Rules { fence: FenceFrom::SameForOwner, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I2, I3]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_with_a_plain_counter_after_a_flush",
        about: "the counter starts again, without the time as its floor",
        writes: 1,
        data_loss: DataLoss::Flush,
        rules: Rules { fence: FenceFrom::Counter, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I2, I3]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_with_a_plain_counter_after_a_failover",
        about: "the replica's counter lags, without the time as its floor",
        writes: 1,
        data_loss: DataLoss::LaggingReplica,
        rules: Rules { fence: FenceFrom::Counter, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I2, I3]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_with_the_askers_floor_instead_of_time",
        about: "the asker's own floor is no floor for what others were granted",
        writes: 1,
        data_loss: DataLoss::Flush,
        rules: Rules { fence: FenceFrom::CounterAndFloor, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I2, I3]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_when_the_store_forgets_and_its_clock_goes_back",
        about: "nothing is left to tell the store which fences it has issued; why doctor compares clocks",
        writes: 1,
        clock_step: -3,
        data_loss: DataLoss::Flush,
        expect: ExpectedResult::AllBreak(&[I2]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_exclusion_when_the_store_forgets",
        about: "no client can prevent it: a class that cannot bear it requires a durable store",
        data_loss: DataLoss::Flush,
        expect: ExpectedResult::AllBreak(&[I1, I5Deadline]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_exclusion_when_the_stores_clock_steps_ahead",
        about: "the lease ends before its time",
        clock_step: 3,
        expect: ExpectedResult::AllBreak(&[I1, I5Deadline]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_when_release_does_not_compare",
        about: "a late release ends another's lease",
        attempts: 2,
        ttl: 4,
        fault_ticks: 4,
        in_flight: 3,
        rules: Rules { release_compares: false, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I4, I1, I5Deadline]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_when_renew_does_not_compare",
        about: "a late renewal extends another's lease and proves its sender's hold again",
        renewals: 1,
        on_failure: OnFailure::Continue,
        rules: Rules { renew_compares: false, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I4, I1, I5Deadline]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_when_renew_revives",
        about: "a renewal extends a lease that has run out",
        renewals: 1,
        rules: Rules { renew_needs_live_lease: false, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I4]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_without_an_undo",
        about: "an acquire that timed out is taken for one that did not happen",
        rules: Rules { undoes_unknown_acquires: false, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I6]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_without_a_tombstone",
        about: "the undo overtakes the ask it undoes",
        rules: Rules { tombstone: false, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I6]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_without_a_tombstone_at_the_release",
        about: "an ask that was given up arrives after the hold that a second ask brought was released",
        requests_per_acquire: 2,
        fault_ticks: 4,
        in_flight: 3,
        rules: Rules { release_tombstone: false, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[I6]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_i6_when_asks_are_repeated",
        about: "a network that repeats an answered ask: the consequence that ADR 0007 accepts",
        repeats: 1,
        repeats_acquires: true,
        expect: ExpectedResult::AllBreak(&[I6]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_i6_when_the_stores_clock_steps_back",
        about: "an undo that finds its lease run out leaves the record, which lives again when the clock goes back",
        clock_step: -3,
        expect: ExpectedResult::AllBreak(&[I6]),
        ..BASE_CONFIG
    },
    ModelConfig {
        name: "breaks_without_an_expiry",
        about: "a lease without an end outlives a dead holder",
        fault_ticks: 3,
        rules: Rules { leases_expire: false, ..Rules::SOUND },
        expect: ExpectedResult::AllBreak(&[L1]),
        ..BASE_CONFIG
    },
];
