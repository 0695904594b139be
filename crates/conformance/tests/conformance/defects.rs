//! Every case fails on a store with a defect that it must detect.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use leasehold_conformance::{CASES, Fixture, find_case};

use crate::fixture::Memory;
use crate::mutant_documents::DocumentBug;
use crate::mutant_store::{Bug, MutantState, MutantStore};

/// Each defect and the cases that must detect it. Other cases may detect it, too.
const DETECTING_CASES: &[(Bug, &[&str])] = &[
    (
        Bug::ReleaseWithoutComparing,
        &[
            "release::wrong_token_changes_nothing",
            "release::trap_12_stale_handle_cannot_delete_the_newer_lease",
            "ambiguity::undo_of_what_never_was_changes_nothing",
            "ambiguity::release_whose_reply_was_lost_has_happened",
        ],
    ),
    (
        Bug::ReleaseDoesNothing,
        &[
            "release::gives_the_name_at_once",
            "exclusion::second_token_is_busy",
            "expiry::lock_delay_ends_with_a_release",
            "ambiguity::undo_of_a_grant_frees_it",
            "ambiguity::trap_06_dropped_acquire_leaves_nothing_after_its_undo",
        ],
    ),
    (Bug::AlwaysReleased, &["release::twice_is_not_owned", "release::owner_after_expiry_is_not_owned"]),
    (Bug::OperatorBreaksAnyGrant, &["release::seen_breaks_exactly_that_grant"]),
    (Bug::BreakDoesNothing, &["release::broken_owner_has_lost_it", "fencing::trap_11_grows_across_break"]),
    (Bug::RenewWithoutComparingToken, &["renewal::wrong_token_is_not_owned"]),
    (Bug::RenewWithoutComparingFence, &["renewal::wrong_fence_is_not_owned"]),
    (
        Bug::RenewRevives,
        &[
            "renewal::expired_lease_is_never_revived",
            "renewal::trap_10_late_renewal_after_release_cannot_revive",
        ],
    ),
    (Bug::RenewDoesNothing, &["renewal::keeps_alive_past_the_first_ttl"]),
    (Bug::RenewShortens, &["renewal::never_shortens"]),
    (Bug::RenewOnlyOnce, &["renewal::trap_04_renewal_whose_reply_was_lost_does_not_conflict_with_itself"]),
    (Bug::BatchReversed, &["renewal::batch_of_300_is_answered_in_order"]),
    (Bug::WasLeftIsTheNewTtl, &["renewal::was_left_is_plausible"]),
    (
        Bug::FenceRepeats,
        &[
            "fencing::trap_11_grows_across_release",
            "fencing::trap_11_grows_across_expiry",
            "fencing::trap_11_grows_across_break",
            "fencing::trap_11_grows_across_hand_over",
            "fencing::trap_11_grows_across_reopening",
            "fencing::never_twice_under_racing_tasks",
        ],
    ),
    (Bug::FenceNearItsEnd, &["fencing::leaves_room_to_grow"]),
    (
        Bug::FloorIgnored,
        &[
            "fencing::respects_the_floor",
            "fencing::nothing_is_granted_above_the_largest",
            "fencing::hand_over_respects_the_floor",
        ],
    ),
    (
        Bug::UndoWithoutTombstone,
        &[
            "ambiguity::undo_before_a_late_acquire_makes_it_void",
            "ambiguity::undo_of_a_grant_frees_it",
            "ambiguity::void_is_not_queued",
            "ambiguity::trap_06_dropped_acquire_leaves_nothing_after_its_undo",
        ],
    ),
    (Bug::TombstoneForTheHolder, &["ambiguity::tombstone_concerns_that_token_only"]),
    (
        Bug::NewFenceWhenAskedAgain,
        &[
            "fencing::same_ask_same_fence",
            "ambiguity::same_token_twice_is_one_grant",
            "ambiguity::lost_reply_then_the_same_grant",
        ],
    ),
    (
        Bug::AskingAgainExtendsNothing,
        &[
            "ambiguity::a_repeated_acquire_restarts_the_ttl",
            "waiting::trap_17_granted_after_waiting_is_alive",
        ],
    ),
    (Bug::AskingAgainIsBusy, &["ambiguity::same_token_twice_is_one_grant"]),
    (
        Bug::AlwaysGranted,
        &[
            "exclusion::second_token_is_busy",
            "exclusion::fifty_racers_one_winner",
            "exclusion::trap_13_two_candidates_on_one_expired_lease_exactly_one_wins",
        ],
    ),
    (Bug::TtlIgnored, &["expiry::free_after_the_ttl", "release::owner_after_expiry_is_not_owned"]),
    (Bug::TtlHalved, &["expiry::not_before_the_ttl"]),
    (
        Bug::LockDelayIgnored,
        &["expiry::lock_delay_keeps_an_unreleased_name_shut", "expiry::lock_delay_goes_with_a_renewal"],
    ),
    (
        Bug::AllNamesAreOne,
        &[
            "exclusion::names_are_independent",
            "names::hostile_names_do_not_collide",
            "names::random_names_do_not_collide",
        ],
    ),
    (Bug::CaseIgnored, &["exclusion::names_are_independent", "names::random_names_do_not_collide"]),
    (Bug::InvisibleCharactersGranted, &["names::invisible_characters_are_refused_at_acquire"]),
    (Bug::ModesIgnored, &["exclusion::unsupported_modes_are_refused"]),
    (Bug::AcquiresFirstNameOnly, &["exclusion::several_names_are_refused_unless_served"]),
    (Bug::RenewsFirstNameOnly, &["exclusion::several_names_are_refused_unless_served"]),
    (Bug::ReleasesFirstNameOnly, &["exclusion::several_names_are_refused_unless_served"]),
    (
        Bug::FalselyQueued,
        &[
            "waiting::waiters_are_served_in_order",
            "waiting::handed_over_lease_shuts_others_out",
            "waiting::waiters_are_counted",
        ],
    ),
    (Bug::AlwaysQueued, &["waiting::the_response_says_correctly_whether_a_waiter_is_queued"]),
    (Bug::WaitersAreStarved, &["waiting::a_repeated_acquire_needs_no_hint"]),
    (Bug::AskingAgainGoesToTheEnd, &["waiting::a_repeated_acquire_keeps_the_place_in_the_queue"]),
    (Bug::EntryNeverRenewed, &["waiting::a_repeated_acquire_renews_the_queue_entry"]),
    (Bug::EntryNeverEnds, &["waiting::waiter_entry_runs_out"]),
    (
        Bug::WaiterNeverForgotten,
        &["waiting::waiter_that_gave_up_is_forgotten", "waiting::waiters_are_counted"],
    ),
    (Bug::LeavingTheQueueReleases, &["waiting::leaving_the_queue_touches_no_lease"]),
    (
        Bug::ClaimNeverEnds,
        &["waiting::trap_19_dead_waiter_costs_no_more_than_a_claim", "waiting::unconfirmed_claim_runs_out"],
    ),
    (
        Bug::NeverWakes,
        &[
            "waking::hint_arrives",
            "waking::hint_before_the_wait_is_remembered",
            "waking::trap_18_one_release_wakes_one",
        ],
    ),
    (Bug::WakesAll, &["waking::trap_18_one_release_wakes_one"]),
    (Bug::SecretIsTheHolder, &["listing::no_token_is_shown"]),
    (Bug::HolderIsHidden, &["waiting::busy_reports_the_holder"]),
    (
        Bug::ShowsEndedLeases,
        &["listing::inspect_shows_live_leases_only", "listing::only_live_leases_are_listed"],
    ),
    (Bug::ListFails, &["listing::cannot_list_is_said"]),
    (Bug::ListUnsorted, &["listing::names_are_in_order"]),
    (Bug::ListWithoutPrefix, &["listing::prefix_is_literal"]),
    (Bug::LimitIgnored, &["listing::limit_and_truncation"]),
    (Bug::TruncationNotReported, &["listing::limit_and_truncation"]),
    (Bug::Documents(DocumentBug::NoDocuments), &["documents::the_capability_is_true"]),
    (Bug::Documents(DocumentBug::ValueIsTrimmed), &["documents::a_read_returns_the_last_write"]),
    (
        Bug::Documents(DocumentBug::VersionsStartAgain),
        &["documents::versions_grow", "documents::versions_grow_across_reopening"],
    ),
    (
        Bug::Documents(DocumentBug::ExpectedIgnoredByWrite),
        &["documents::a_write_needs_the_expected_version", "documents::racing_writers_lose_no_update"],
    ),
    (
        Bug::Documents(DocumentBug::ExpectedIgnoredByDelete),
        &["documents::a_deletion_needs_the_expected_version"],
    ),
    (
        Bug::Documents(DocumentBug::ConflictIsEmpty),
        &[
            "documents::a_write_needs_the_expected_version",
            "documents::a_deletion_needs_the_expected_version",
        ],
    ),
    (Bug::Documents(DocumentBug::LifetimeIgnored), &["documents::an_expired_document_is_absent"]),
    (Bug::Documents(DocumentBug::FirstLifetimeStays), &["documents::a_write_replaces_the_lifetime"]),
    (Bug::Documents(DocumentBug::CaseIgnored), &["documents::names_do_not_collide"]),
    (Bug::Documents(DocumentBug::PrefixIgnored), &["documents::listing_is_in_order_and_in_pages"]),
    (Bug::Documents(DocumentBug::AfterIgnored), &["documents::listing_is_in_order_and_in_pages"]),
    (Bug::Documents(DocumentBug::TruncationNotReported), &["documents::listing_is_in_order_and_in_pages"]),
    (Bug::Documents(DocumentBug::BoundsIgnored), &["documents::bounds_are_refused"]),
    (Bug::Documents(DocumentBug::StoreTimeStands), &["documents::the_stores_time_passes"]),
    (Bug::Documents(DocumentBug::FollowersSleep), &["documents::a_change_wakes_each_follower"]),
    (Bug::Documents(DocumentBug::StrangersWake), &["documents::a_change_wakes_each_follower"]),
];

fn run_case(id: &str, fixture: impl FnOnce() -> Box<dyn Fixture>) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let case = find_case(id).unwrap_or_else(|| panic!("there is no case `{id}`"));
        case.run(fixture().as_ref()).await.map_err(|failed| format!("{failed:#}"))
    })
}

fn mutant_fixture(bug: Bug) -> Box<dyn Fixture> {
    let memory: Arc<Mutex<MutantState>> = Arc::default();
    Box::new(Memory::behind(move |store, _| MutantStore::shared(bug, store, &memory)))
}

#[test]
fn every_defect_is_detected() {
    let mut missed = Vec::new();
    for (bug, ids) in DETECTING_CASES {
        for id in *ids {
            match run_case(id, || mutant_fixture(*bug)) {
                Err(why) => println!("{bug:?} -> {id}: {why}"),
                Ok(()) => missed.push(format!("{id} does not notice {bug:?}")),
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn every_case_can_fail() {
    let shown: BTreeSet<_> = DETECTING_CASES.iter().flat_map(|(_, ids)| *ids).copied().collect();
    // Covered by other tests: below, and in `socket.rs`.
    let elsewhere = |id: &str| {
        id.starts_with("crossprocess::") || id == "exclusion::a_second_handle_sees_the_same_leases"
    };
    let unshown: Vec<_> = CASES
        .iter()
        .filter(|case| !shown.contains(case.id) && !elsewhere(case.id))
        .map(|case| case.id)
        .collect();
    assert!(unshown.is_empty(), "no defect shows that these can fail: {unshown:?}");
}

/// A fixture whose handles do not share their leases.
struct SplitHandles;

#[async_trait::async_trait]
impl Fixture for SplitHandles {
    async fn open(&self) -> anyhow::Result<leasehold_core::store::SharedStore> {
        Memory::fresh().open().await
    }
}

#[test]
fn handles_that_share_nothing_are_detected() {
    let why =
        run_case("exclusion::a_second_handle_sees_the_same_leases", || Box::new(SplitHandles)).unwrap_err();
    assert!(why.starts_with("I1"), "{why}");
}

#[test]
fn a_case_that_never_ends_fails() {
    let hanging = || {
        Box::new(Memory::behind(|store, clock| {
            let chaos = leasehold_core::adapter::FaultyStore::new(store, clock);
            chaos.release().hang(true);
            chaos.store()
        })) as Box<dyn Fixture>
    };
    let why = run_case("release::gives_the_name_at_once", hanging).unwrap_err();
    assert!(why.starts_with("not finished after"), "{why}");
}
