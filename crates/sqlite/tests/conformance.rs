//! The conformance suite, each case on its own file.

use leasehold_conformance::{TestbedFixture, open_url};
use leasehold_sqlite::SqliteBackend;

leasehold_conformance::taker!(async |url: String| open_url(&SqliteBackend, &url));

leasehold_conformance::suite! {
    time: Real,
    fixture: TestbedFixture::start(SqliteBackend, taker_command).await.unwrap(),
    skips: [],
}
