//! Panics in the simulated processes. A task that panics ends, and mostly nobody waits for it: a history would show nothing of it, so
//! panics are counted where they happen.

use std::cell::Cell;
use std::sync::Once;

thread_local! {
    /// Of this thread: a history runs on one.
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Counts the panics of this thread, from none on. They are told as they were before.
pub(super) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A thread that is ending has no count any more, and no history.
            let _ = SEEN.try_with(|seen| seen.set(seen.get() + 1));
            tell(panic);
        }));
    });
    SEEN.set(0);
}

/// How many there were.
pub(super) fn seen() -> u64 {
    SEEN.get()
}
