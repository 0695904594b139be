//! The list of all cases, and the macro that turns each into a test.

/// Every case by file, with its needs, passed to the macro named first. The only list of cases.
#[doc(hidden)]
#[macro_export]
macro_rules! for_cases {
    ($then:ident $($args:tt)*) => {
        $crate::$then! { [$($args)*]
            exclusion {
                second_token_is_busy [];
                fifty_racers_one_winner [];
                trap_13_two_candidates_on_one_expired_lease_exactly_one_wins [];
                names_are_independent [];
                a_second_handle_sees_the_same_leases [];
                unsupported_modes_are_refused [];
                several_names_are_refused_unless_served [];
            }
            expiry {
                free_after_the_ttl [];
                not_before_the_ttl [];
                lock_delay_keeps_an_unreleased_name_shut [];
                lock_delay_ends_with_a_release [];
                lock_delay_goes_with_a_renewal [];
            }
            renewal {
                keeps_alive_past_the_first_ttl [];
                never_shortens [];
                wrong_token_is_not_owned [];
                wrong_fence_is_not_owned [];
                expired_lease_is_never_revived [];
                trap_10_late_renewal_after_release_cannot_revive [];
                trap_04_renewal_whose_reply_was_lost_does_not_conflict_with_itself [];
                batch_of_300_is_answered_in_order [];
                was_left_is_plausible [];
            }
            fencing {
                trap_11_grows_across_release [];
                trap_11_grows_across_expiry [];
                trap_11_grows_across_break [];
                trap_11_grows_across_hand_over [Queue];
                trap_11_grows_across_reopening [];
                never_twice_under_racing_tasks [];
                respects_the_floor [];
                nothing_is_granted_above_the_largest [];
                hand_over_respects_the_floor [Queue];
                same_ask_same_fence [];
                leaves_room_to_grow [];
            }
            release {
                gives_the_name_at_once [];
                wrong_token_changes_nothing [];
                twice_is_not_owned [];
                owner_after_expiry_is_not_owned [];
                trap_12_stale_handle_cannot_delete_the_newer_lease [];
                seen_breaks_exactly_that_grant [];
                broken_owner_has_lost_it [];
            }
            ambiguity {
                same_token_twice_is_one_grant [];
                a_repeated_acquire_restarts_the_ttl [];
                lost_reply_then_the_same_grant [];
                undo_before_a_late_acquire_makes_it_void [];
                undo_of_a_grant_frees_it [];
                undo_of_what_never_was_changes_nothing [];
                tombstone_concerns_that_token_only [];
                void_is_not_queued [Queue];
                trap_06_dropped_acquire_leaves_nothing_after_its_undo [];
                release_whose_reply_was_lost_has_happened [];
            }
            names {
                hostile_names_do_not_collide [];
                invisible_characters_are_refused_at_acquire [];
                random_names_do_not_collide [];
            }
            waiting {
                busy_reports_the_holder [];
                the_response_says_correctly_whether_a_waiter_is_queued [];
                a_repeated_acquire_needs_no_hint [];
                waiters_are_served_in_order [Queue];
                handed_over_lease_shuts_others_out [Queue];
                a_repeated_acquire_keeps_the_place_in_the_queue [Queue];
                trap_17_granted_after_waiting_is_alive [Queue];
                waiter_that_gave_up_is_forgotten [Queue];
                leaving_the_queue_touches_no_lease [Queue];
                trap_19_dead_waiter_costs_no_more_than_a_claim [Queue];
                unconfirmed_claim_runs_out [Queue];
                waiter_entry_runs_out [Queue];
                a_repeated_acquire_renews_the_queue_entry [Queue];
                waiters_are_counted [Queue];
            }
            waking {
                hint_arrives [Queue Wake];
                hint_before_the_wait_is_remembered [Queue Wake];
                trap_18_one_release_wakes_one [Queue Wake];
            }
            listing {
                inspect_shows_live_leases_only [];
                no_token_is_shown [];
                cannot_list_is_said [];
                names_are_in_order [List];
                prefix_is_literal [List];
                limit_and_truncation [List];
                only_live_leases_are_listed [List];
            }
            documents {
                the_capability_is_true [];
                a_read_returns_the_last_write [Documents];
                versions_grow [Documents];
                versions_grow_across_reopening [Documents];
                a_write_needs_the_expected_version [Documents];
                a_deletion_needs_the_expected_version [Documents];
                racing_writers_lose_no_update [Documents];
                an_expired_document_is_absent [Documents];
                a_write_replaces_the_lifetime [Documents];
                names_do_not_collide [Documents];
                listing_is_in_order_and_in_pages [Documents];
                bounds_are_refused [Documents];
                the_stores_time_passes [Documents];
                a_change_wakes_each_follower [Documents DocumentWake];
            }
            crossprocess {
                another_process_is_kept_out [CrossProcess];
                trap_14_killed_process_is_free_after_its_ttl_not_before [CrossProcess];
                trap_05_stopped_past_its_ttl_then_continued [CrossProcess];
                trap_19_killed_waiter_does_not_block [CrossProcess];
                trap_11_fences_grow_across_processes [CrossProcess];
            }
        }
    };
}

/// Creates a test for every case: `module::case`, so that test runners list
/// and repeat them one by one.
///
/// `fixture` is evaluated for each case, inside the case's runtime: it may `.await`. `skips` names
/// the cases that the store's capabilities rule out (`waking::hint_arrives`, or `crossprocess::*`
/// for a whole file). A test compares it with the cases that are really skipped.
///
/// ```no_run
/// # use leasehold_core::{clock::{RuntimeClock, SharedClock}, memory::MemoryStore, store::SharedStore};
/// # struct Memory(MemoryStore, SharedClock);
/// # #[async_trait::async_trait]
/// # impl leasehold_conformance::Fixture for Memory {
/// #     async fn open(&self) -> anyhow::Result<SharedStore> { Ok(std::sync::Arc::new(self.0.clone())) }
/// #     fn clock(&self) -> SharedClock { SharedClock::clone(&self.1) }
/// # }
/// # fn memory() -> Memory { let clock = RuntimeClock::shared(); Memory(MemoryStore::new(clock.clone()), clock) }
/// leasehold_conformance::suite! {
///     time: Virtual,
///     fixture: memory(),
///     skips: ["crossprocess::*"],
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! suite {
    (time: $time:ident, fixture: $fixture:expr, skips: [$($skip:literal),* $(,)?] $(,)?) => {
        $crate::suite_tests! { $time; $fixture }

        #[test]
        fn skipped_cases_are_declared() {
            $crate::check_skips($crate::Time::$time, async { $fixture }, &[$($skip),*]);
        }
    };
}

/// Passes the list of cases on to [`suite_test_modules!`].
#[doc(hidden)]
#[macro_export]
macro_rules! suite_tests {
    ($time:ident; $fixture:expr) => {
        $crate::for_cases! { suite_test_modules $time; $fixture }
    };
}

/// One module per file of cases, one test per case.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_test_modules {
    ([$time:ident; $fixture:expr] $($module:ident { $($case:ident [$($need:ident)*];)* })*) => {$(
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[test]
                fn $case() {
                    $crate::play(
                        $crate::Time::$time,
                        concat!(stringify!($module), "::", stringify!($case)),
                        async { $fixture },
                    );
                }
            )*
        }
    )*};
}
