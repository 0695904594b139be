//! Property tests of the command line: every line is parsed, or refused with a usable message.
//!
//! Lines are generated from the clap definition, so a new verb or option is covered at once (ADR 18).
//! `verb_tree` lists verbs and arguments, `words` has odd values, `command_line` builds lines.
//!
//! The properties:
//!
//! - `refusals`: the form of messages.
//! - `secrets`: no password is repeated.
//! - `trailing_command`: a command is passed on unchanged.
//! - `global`: global options before and after the verb.
//! - `option_values`, `bounds`: any value of any option; numbers and durations.
//! - `validation`: what a verb checks before it opens anything.
//!
//! `regressions` keeps what they have found.
//!
//! `PROPTEST_CASES` sets the number of cases, `PROPTEST_RNG_SEED` the seed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod bounds;
mod command_line;
mod global;
mod option_values;
mod refusals;
mod regressions;
mod secrets;
mod trailing_command;
mod validation;
mod verb_tree;
mod words;

use proptest::test_runner::{Config, RngSeed};

// A fixed seed: a failing run then depends on the change at hand and not on chance.
fn config(cases: u32) -> Config {
    let mut config = Config::default();
    // 256 is proptest's default; any other number was set by the user.
    if config.cases == 256 {
        config.cases = cases;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(0);
    }
    config.failure_persistence = None;
    config
}
