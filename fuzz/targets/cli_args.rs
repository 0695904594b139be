//! The command line: whatever is typed is taken or refused with a message, and a command's own words arrive as they are.
//!
//! The input is words, one a line. The modules are private to the command and are compiled into this target as they are.
#![no_main]

#[allow(dead_code, reason = "only reading is fuzzed")]
#[path = "../../crates/cli/src/args.rs"]
mod args;

#[allow(dead_code, reason = "only reading is fuzzed")]
#[path = "../../crates/cli/src/drill/args.rs"]
mod drill;

/// What `args` needs of its crate.
mod exit {
    pub(crate) const BUSY: u8 = 124;
}

use std::ffi::OsString;

use clap::Parser;
use libfuzzer_sys::fuzz_target;

use crate::args::{Cli, Command};

fuzz_target!(|text: &str| {
    let words: Vec<&str> = text.lines().collect();
    match Cli::try_parse_from(["leasehold"].iter().chain(&words)) {
        Ok(cli) => {
            if let Command::Run(run) = &cli.command {
                assert!(
                    !(run.nonblock && run.wait.is_some()),
                    "two answers to how long to wait"
                );
            }
        }
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
    // Behind `--` nothing is an option of ours, whatever it looks like.
    let typed = ["leasehold", "run", "-n", "job:42", "--"].iter().chain(&words);
    let cli = Cli::try_parse_from(typed).expect("any words can be a command");
    let Command::Run(run) = cli.command else {
        panic!("run is run")
    };
    let meant: Vec<OsString> = words.iter().map(Into::into).collect();
    assert_eq!(
        (run.name.as_str(), run.nonblock, run.argv),
        ("job:42", true, meant)
    );
});
