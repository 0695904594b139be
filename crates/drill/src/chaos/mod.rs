//! Faults by the hundred, chosen by seed: what the drills do once and carefully, done often and at any moment.
//!
//! | file | what is in it |
//! |---|---|
//! | `fault` | which faults there are, on which stores |
//! | `strike` | how each of them is done and undone |
//! | `fleet` | workers that come back when they are killed, and whose turn it is to be hit |
//! | `micro` | one short drill: a store and two workers of its own, one fault, a verdict |
//! | `many` | so many of them, several at a time |
//! | `growth` | fences grow from window to window |
//! | `soak` | one fleet for as long as wished, a fault every few seconds, judged window by window |
//!
//! The same seed chooses the same store, class, fault and delays. What the machine makes of it is real and differs from
//! run to run; a violation keeps its history, which is what can be judged again.

mod fault;
mod fleet;
mod growth;
mod many;
mod micro;
mod soak;
mod strike;

pub use fault::Fault;
pub use many::{Sums, many};
pub use micro::{Micro, micro};
pub use soak::{Plan, Soak, Window, soak};

use std::time::Duration;

/// The classes of the short drills: the built-in ones' rules with the shortest times that a busy host can keep.
pub const POLICIES: &str = r#"
[class.scheduler]
ttl = "800ms"
acquire = { wait = "500ms", timeout = "350ms", retry_after = "50ms" }
renew = { every = "ttl/3", timeout = "200ms", max_failures = 3 }
release = { attempts = 2, timeout = "150ms" }
[class.workflow]
ttl = "800ms"
acquire = { timeout = "350ms", retry_after = "50ms" }
renew = { every = "ttl/3", timeout = "200ms", max_failures = 3 }
release = { attempts = 2, timeout = "150ms" }
[class.workflow-critical]
ttl = "800ms"
acquire = { timeout = "350ms", retry_after = "50ms" }
renew = { every = "ttl/3", timeout = "200ms", max_failures = 3 }
release = { attempts = 2, timeout = "150ms" }
[class.approval]
ttl = "800ms"
acquire = { wait = "500ms", timeout = "350ms", retry_after = "50ms" }
renew = { every = "ttl/3", timeout = "200ms", max_failures = 3 }
release = { attempts = 1, timeout = "150ms" }
"#;

/// The time to live of these classes.
const TTL: Duration = Duration::from_millis(800);

/// The classes that are drawn from: the strict ones more often.
const CLASSES: &[&str] = &[
    "scheduler",
    "scheduler",
    "workflow-critical",
    "approval",
    "workflow",
];
