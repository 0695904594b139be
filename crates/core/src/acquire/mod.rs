//! Ask, wait, ask again; undo what is ambiguous.

mod enter;
mod machine;
mod seen;
mod shell;
#[cfg(test)]
mod tests;

pub use machine::{Acquiring, End, Next, POLL, REGISTERED};
pub(crate) use shell::acquire;
