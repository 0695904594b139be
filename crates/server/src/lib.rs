//! The daemon: the library's promises over HTTP.
