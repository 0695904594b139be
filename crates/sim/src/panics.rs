//! Counts panics in simulated processes.
//!
//! A panic ends its task, and most tasks are never joined, so a history would not show it. A panic
//! hook counts them instead.

use std::cell::Cell;
use std::sync::Once;

thread_local! {
    // Thread-local because a history runs on one thread.
    static PANIC_COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Resets this thread's count and installs the counting hook once per process.
pub(super) fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // The previous hook still prints the panic.
        let previous_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A thread that is exiting has no count any more, and runs no history.
            let _ = PANIC_COUNT.try_with(|seen| seen.set(seen.get() + 1));
            previous_hook(panic);
        }));
    });
    PANIC_COUNT.set(0);
}

/// Panics on this thread since the last [`count_panics`].
pub(super) fn panic_count() -> u64 {
    PANIC_COUNT.get()
}
