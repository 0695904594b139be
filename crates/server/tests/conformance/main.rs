//! The cases that every store passes, asked through a daemon: the wire adds nothing and loses nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod memory;
mod redis;
mod served;
mod sqlite;
