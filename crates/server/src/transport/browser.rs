//! Keeps browsers from being a way in: pages of other sites can send requests to loopback
//! addresses.
//!
//! Without a tokens file the `Host` must be an address of this machine, because a name could be pointed
//! here by hostile DNS (rebinding). A request that a page of another origin made is refused (forgery).
//! With a tokens file the forgery check stays; a page cannot send a token it does not have.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use leasehold_wire::ErrorCode;

use crate::problem::Refusal;

/// Accepts only requests that a foreign page cannot have made.
///
/// # Errors
/// The host is not this machine's, or the request comes from a page of another origin.
pub(crate) fn check_origin(parts: &Parts, local_only: bool) -> Result<(), Refusal> {
    let host =
        header(&parts.headers, HOST.as_str()).or_else(|| parts.uri.authority().map(|host| host.as_str()));
    if local_only && !host.is_some_and(is_local) {
        return Err(Refusal::new(
            ErrorCode::WrongHost,
            "without a tokens file, this daemon answers to 127.0.0.1, [::1] and localhost only",
        ));
    }
    let foreign = match header(&parts.headers, ORIGIN.as_str()) {
        Some(origin) => {
            let origin = origin.split_once("://").map(|(_, host)| host);
            origin.is_none() || origin != host
        }
        // Browsers omit `Origin` on some requests, but send this header instead.
        None => header(&parts.headers, "sec-fetch-site")
            .is_some_and(|site| !matches!(site, "same-origin" | "none")),
    };
    if foreign && !is_dashboard_navigation(parts) {
        return Err(Refusal::new(
            ErrorCode::Forbidden,
            "a page of another origin has made this request; only the daemon's own pages may",
        ));
    }
    Ok(())
}

/// Whether this is a navigation to the dashboard, for example from a link in a runbook. Allowed
/// cross-site: the page itself contains no data and cannot be framed.
fn is_dashboard_navigation(parts: &Parts) -> bool {
    parts.method == http::Method::GET
        && parts.uri.path() == "/"
        && header(&parts.headers, "sec-fetch-mode") == Some("navigate")
        && header(&parts.headers, "sec-fetch-dest") == Some("document")
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Whether the host is a loopback address or `localhost`, which DNS cannot point elsewhere.
fn is_local(host: &str) -> bool {
    let name = if let Some(rest) = host.strip_prefix('[') {
        rest.split_once(']').map_or(rest, |(address, _)| address)
    } else {
        host.rsplit_once(':').map_or(host, |(name, _)| name)
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn passes(headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().uri("/v1/locks");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check_origin(&request.body(()).unwrap().into_parts().0, true).is_ok()
    }

    #[test]
    fn non_loopback_hosts_are_refused() {
        for good in ["127.0.0.1:7420", "localhost:7420", "[::1]:7420", "127.0.0.1", "LOCALHOST"] {
            assert!(passes(&[("host", good)]), "{good}");
        }
        for bad in
            ["evil.example:7420", "127.0.0.1.evil.example", "localhost.evil", "0.0.0.0:7420", "", "10.0.0.1"]
        {
            assert!(!passes(&[("host", bad)]), "{bad}");
        }
        assert!(!passes(&[]));
    }

    #[test]
    fn cross_site_links_may_open_only_the_dashboard() {
        let link = |path: &str, method: &str, dest: &str| {
            let request = Request::builder().uri(path).method(method);
            let request = request
                .header("host", "127.0.0.1:7420")
                .header("sec-fetch-site", "cross-site")
                .header("sec-fetch-mode", "navigate")
                .header("sec-fetch-dest", dest);
            check_origin(&request.body(()).unwrap().into_parts().0, true).is_ok()
        };
        assert!(link("/", "GET", "document"));
        assert!(!link("/", "GET", "iframe"));
        assert!(!link("/v1/locks", "GET", "document"));
        assert!(!link("/", "POST", "document"));
    }

    #[test]
    fn requests_from_other_origins_are_refused() {
        let host = ("host", "127.0.0.1:7420");
        assert!(passes(&[host, ("origin", "http://127.0.0.1:7420")]));
        for bad in ["http://evil.example", "null", "http://127.0.0.1:8080", "http://localhost:7420"] {
            assert!(!passes(&[host, ("origin", bad)]), "{bad}");
        }
        assert!(!passes(&[host, ("sec-fetch-site", "cross-site")]));
        assert!(!passes(&[host, ("sec-fetch-site", "same-site")]));
        assert!(passes(&[host, ("sec-fetch-site", "same-origin")]));
    }
}
