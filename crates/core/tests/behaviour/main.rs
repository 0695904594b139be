//! Behavioural tests of the client, one module per subject. They are one program because linking
//! one per subject takes long.

mod abandonment;
mod acquire;
mod acquire_driver;
mod acquire_machine;
mod admin;
mod breaker;
mod cancellation;
mod classes;
mod clocks;
mod continue_class;
mod events;
mod fail_open;
mod fixture;
mod gate_orders;
mod late_requests;
mod overrides;
mod ownership;
mod parallel;
mod policy_builtin;
mod policy_check;
mod policy_escalation;
mod policy_file;
mod policy_override;
mod policy_reload;
mod property;
mod release;
mod release_driver;
mod renewal;
mod resume;
mod secrets;
mod shadow;
mod shutdown;
mod thread_races;
mod waiting;
