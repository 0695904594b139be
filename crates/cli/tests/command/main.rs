//! Tests of the `leasehold` binary, one module per verb. One test program, because linking one per verb
//! takes minutes.

mod advise;
mod book;
mod breaking;
mod cli_properties;
mod config;
mod daemon;
mod daemon_killed;
mod doctor;
mod documentation;
mod drill;
mod drill_exit;
mod elect;
mod fixture;
mod guardian;
mod hold;
mod list;
mod ops;
mod pages;
mod plane;
mod plane_remote;
mod plane_served;
mod pty;
mod readme;
mod redis;
mod refusals;
mod run;
mod schema;
mod secrets;
mod serve;
mod signals;
mod trace;
mod transcripts;
mod watch;
