//! The conformance suite, each case on its own server, which keeps its data across restarts.

use leasehold_conformance::{TestbedFixture, open_url};
use leasehold_redis::RedisBackend;

leasehold_conformance::taker!(async |url: String| open_url(&RedisBackend, &url));

leasehold_conformance::suite! {
    time: Real,
    fixture: TestbedFixture::start(RedisBackend, taker_command).await.unwrap(),
    skips: [],
}
