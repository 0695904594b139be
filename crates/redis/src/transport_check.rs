//! The finding about a password that is sent without TLS, for `leasehold doctor`.

use leasehold_core::store::{Examination, Finding};
use leasehold_core::url_options::is_loopback_host;

use crate::options::RedisOptions;

/// Whether a password travels where others can read it. Only reported: private networks without TLS are
/// common.
pub(crate) fn check_transport(options: &RedisOptions, out: &mut Examination) {
    if options.password_file.is_some() && !options.tls && !is_loopback_host(&options.host) {
        out.add_finding(Finding::risk(
            "redis.plain",
            format!("the password is sent to {} without TLS: the network path can read it", options.host),
            "enable TLS on the server and write rediss://, or reach it through a tunnel on this host",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_27_a_password_without_tls_is_reported() {
        let codes = |url: &str| {
            let mut out = Examination::default();
            check_transport(&RedisOptions::parse(url).unwrap(), &mut out);
            out.findings.iter().map(|finding| finding.code).collect::<Vec<_>>()
        };
        assert_eq!(codes("redis://h?password_file=/p"), ["redis.plain"]);
        for good in ["redis://h", "rediss://h?password_file=/p", "redis://127.0.0.1?password_file=/p"] {
            assert!(codes(good).is_empty(), "{good}");
        }
    }
}
