//! The store trait over a daemon's HTTP API: what `http://` and `https://` open.
