//! A browser on this machine must not be a way in: pages of others can send requests to loopback addresses.
//!
//! Without tokens, everybody on the machine is admin, and a browser is on the machine. So the `Host` must be an address of
//! this machine, not a name that someone's DNS has pointed here (rebinding), and a request that a page of another
//! origin has made is refused (forgery). With tokens the second still holds: a page cannot send one it does not have.

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use crate::problem::Refusal;

/// Lets a request pass that no foreign page can have made.
///
/// # Errors
/// Its host is not this machine's, or it comes from a page of elsewhere.
pub(crate) fn check(parts: &Parts, local_only: bool) -> Result<(), Refusal> {
    let host =
        header(&parts.headers, HOST.as_str()).or_else(|| parts.uri.authority().map(|host| host.as_str()));
    if local_only && !host.is_some_and(is_local) {
        return Err(Refusal::new(
            StatusCode::MISDIRECTED_REQUEST,
            "wrong_host",
            "without tokens, this daemon answers to 127.0.0.1, [::1] and localhost only",
        ));
    }
    let foreign = match header(&parts.headers, ORIGIN.as_str()) {
        Some(origin) => {
            let origin = origin.split_once("://").map(|(_, host)| host);
            origin.is_none() || origin != host
        }
        // Browsers that send no `Origin` with a request say where it came from in this one.
        None => header(&parts.headers, "sec-fetch-site")
            .is_some_and(|site| !matches!(site, "same-origin" | "none")),
    };
    if foreign && !visit(parts) {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            "a page of another origin has made this request; only the daemon's own pages may",
        ));
    }
    Ok(())
}

/// Somebody follows a link to the dashboard, from a runbook say. The page itself shows nothing and cannot be framed.
fn visit(parts: &Parts) -> bool {
    parts.method == http::Method::GET
        && parts.uri.path() == "/"
        && header(&parts.headers, "sec-fetch-mode") == Some("navigate")
        && header(&parts.headers, "sec-fetch-dest") == Some("document")
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// A host that no DNS can point elsewhere.
fn is_local(host: &str) -> bool {
    let name = if let Some(rest) = host.strip_prefix('[') {
        rest.split_once(']').map_or(rest, |(address, _)| address)
    } else {
        host.rsplit_once(':').map_or(host, |(name, _)| name)
    };
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
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
        check(&request.body(()).unwrap().into_parts().0, true).is_ok()
    }

    #[test]
    fn names_that_dns_can_point_here_are_refused() {
        for good in [
            "127.0.0.1:7420",
            "localhost:7420",
            "[::1]:7420",
            "127.0.0.1",
            "LOCALHOST",
        ] {
            assert!(passes(&[("host", good)]), "{good}");
        }
        for bad in [
            "evil.example:7420",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "0.0.0.0:7420",
            "",
            "10.0.0.1",
        ] {
            assert!(!passes(&[("host", bad)]), "{bad}");
        }
        assert!(!passes(&[]));
    }

    #[test]
    fn a_link_from_elsewhere_leads_to_the_dashboard_and_nowhere_else() {
        let link = |path: &str, method: &str, dest: &str| {
            let request = Request::builder().uri(path).method(method);
            let request = request
                .header("host", "127.0.0.1:7420")
                .header("sec-fetch-site", "cross-site")
                .header("sec-fetch-mode", "navigate")
                .header("sec-fetch-dest", dest);
            check(&request.body(()).unwrap().into_parts().0, true).is_ok()
        };
        assert!(link("/", "GET", "document"));
        assert!(!link("/", "GET", "iframe"));
        assert!(!link("/v1/locks", "GET", "document"));
        assert!(!link("/", "POST", "document"));
    }

    #[test]
    fn pages_of_elsewhere_are_refused() {
        let host = ("host", "127.0.0.1:7420");
        assert!(passes(&[host, ("origin", "http://127.0.0.1:7420")]));
        for bad in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:8080",
            "http://localhost:7420",
        ] {
            assert!(!passes(&[host, ("origin", bad)]), "{bad}");
        }
        assert!(!passes(&[host, ("sec-fetch-site", "cross-site")]));
        assert!(!passes(&[host, ("sec-fetch-site", "same-site")]));
        assert!(passes(&[host, ("sec-fetch-site", "same-origin")]));
    }
}
