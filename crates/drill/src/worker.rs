//! The drills' worker process as a binary of its own, for tests. The `leasehold` binary contains
//! the same worker behind a hidden argument.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold_drill::fleet::worker_main()
}
