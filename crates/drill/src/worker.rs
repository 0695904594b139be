//! The worker process of the drills by itself, for tests; people have it as a hidden part of `leasehold`.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold_drill::fleet::worker_main()
}
