//! Hides secrets in URLs.

/// Returns the URL without passwords, for messages and logs. It also accepts text that is not a
/// valid URL, because that can contain a secret too. A password may contain any separator of a URL.
/// If it is unclear which part an `@` belongs to, only the scheme is shown.
#[must_use]
pub fn redact(url: &str) -> String {
    let (place, query) = url.split_once('?').map_or((url, None), |(a, b)| (a, Some(b)));
    let mut out = match url.split_once("://") {
        // The part before `://` is not a scheme, so any part of the text may be the secret.
        Some((scheme, rest))
            if (rest.contains('@') || looks_like_credentials(url))
                && !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) =>
        {
            return "***".to_owned();
        }
        // The last `@` separates the host: a password may contain others.
        Some((scheme, rest)) if rest.rfind('@').is_some_and(|at| rest[..at].contains(':')) => {
            let clean = place.rsplit_once('@').filter(|(before, _)| {
                let userinfo = before.get(scheme.len() + 3..).unwrap_or("/");
                !userinfo.contains(['/', '#']) && query.is_none_or(|query| !query.contains('@'))
            });
            let Some((before, host)) = clean else {
                return format!("{scheme}://***");
            };
            let user = before[scheme.len() + 3..].split_once(':').map_or("", |(user, _)| user);
            format!("{scheme}://{user}:***@{host}")
        }
        // A URL without its slashes or its scheme is mistyped, but still contains the secret.
        None if looks_like_credentials(url) => return "***".to_owned(),
        _ => place.to_owned(),
    };
    if let Some(query) = query {
        let pairs: Vec<_> = query.split('&').map(redact_pair).collect();
        out = format!("{out}?{}", pairs.join("&"));
    }
    out
}

/// Whether the text before an `@` looks like user and password, and the text is not a path.
fn looks_like_credentials(text: &str) -> bool {
    // A path may contain `:` and `@`, but never a password.
    let path = ["sqlite:", "/", "./", "../"].iter().any(|start| text.starts_with(start));
    !path && text.rfind('@').is_some_and(|at| text[..at].contains(':'))
}

/// Hides the values of secret parameters. Names of files that contain secrets are shown.
fn redact_pair(pair: &str) -> String {
    match pair.split_once('=') {
        Some((key, _))
            if !key.ends_with("_file")
                && ["pass", "token", "secret", "auth"].iter().any(|word| key.contains(word)) =>
        {
            format!("{key}=***")
        }
        _ => pair.to_owned(),
    }
}
