use std::collections::BTreeMap;
use std::time::Duration;

use super::{ParseError, parse_error};
use crate::evidence::Evidence;
use crate::sample::Sample;

/// Cumulative counts of one histogram by bound, summed over all its label sets.
type CumulativeCounts = BTreeMap<BucketBound, u64>;

/// A bucket's upper bound. The order of the variants sorts the open bucket last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BucketBound {
    // Whole microseconds: a float has no total order and cannot be a map key.
    Micros(u64),
    Open,
}

/// Parses the output of `/metrics` for one class: `leasehold_held_seconds`,
/// `leasehold_renew_seconds` and `leasehold_renew_total`. Histograms of several namespaces are
/// added up.
///
/// # Errors
/// A line of these metrics that is not in the Prometheus text format.
pub fn parse_prometheus(text: &str, class: &str) -> Result<Evidence, ParseError> {
    let (mut held, mut store) = (CumulativeCounts::new(), CumulativeCounts::new());
    let (mut renewals, mut retries) = (0, 0);
    for (at, line) in text.lines().enumerate() {
        let Some((metric, labels, value)) = split_metric_line(line) else {
            continue;
        };
        if label(labels, "class") != Some(class) {
            continue;
        }
        let count = || count(value).ok_or_else(|| parse_error(at, format!("`{value}` is not a count")));
        match metric {
            "leasehold_held_seconds_bucket" => *held.entry(bound(labels, at)?).or_default() += count()?,
            "leasehold_renew_seconds_bucket" => *store.entry(bound(labels, at)?).or_default() += count()?,
            "leasehold_renew_total" => {
                renewals += count()?;
                if label(labels, "outcome").is_some_and(|outcome| matches!(outcome, "failed" | "unknown")) {
                    retries += count()?;
                }
            }
            _ => {}
        }
    }
    Ok(Evidence { held: sample(held), store: sample(store), stalls: Sample::default(), retries, renewals })
}

/// Splits a line into name, labels and value. `None` for comments and lines without labels.
fn split_metric_line(line: &str) -> Option<(&str, &str, &str)> {
    let (metric, rest) = line.split_once('{')?;
    let (labels, value) = rest.rsplit_once('}')?;
    // A timestamp may follow the value.
    Some((metric.trim(), labels, value.split_whitespace().next()?))
}

// A plain split is enough: labels that Leasehold exports never contain quotes, commas or escapes.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    labels.split(',').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key.trim() == name).then(|| value.trim().trim_matches('"'))
    })
}

fn bound(labels: &str, at: usize) -> Result<BucketBound, ParseError> {
    match label(labels, "le") {
        Some("+Inf") => Ok(BucketBound::Open),
        Some(text) => {
            let seconds: f64 =
                text.parse().map_err(|_| parse_error(at, format!("le=\"{text}\" is not a number")))?;
            let time = Duration::try_from_secs_f64(seconds);
            let time = time.map_err(|_| parse_error(at, format!("le=\"{text}\" is not a time")))?;
            Ok(BucketBound::Micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
        }
        None => Err(parse_error(at, "a bucket without le")),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Checked: whole and not negative.
fn count(value: &str) -> Option<u64> {
    let number: f64 = value.parse().ok()?;
    (number.is_finite() && number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
}

fn sample(cumulative: CumulativeCounts) -> Sample {
    let (mut buckets, mut beyond, mut before) = (Vec::new(), 0, 0);
    for (bound, up_to) in cumulative {
        let own = up_to.saturating_sub(before);
        before = before.max(up_to);
        match bound {
            BucketBound::Micros(micros) => buckets.push((Duration::from_micros(micros), own)),
            BucketBound::Open => beyond = own,
        }
    }
    Sample::of_buckets(buckets, beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# TYPE leasehold_held_seconds histogram
leasehold_held_seconds_bucket{class=\"scheduler\",namespace=\"job\",store=\"redis\",le=\"1.0\"} 90
leasehold_held_seconds_bucket{class=\"scheduler\",namespace=\"job\",store=\"redis\",le=\"10.0\"} 99
leasehold_held_seconds_bucket{class=\"scheduler\",namespace=\"job\",store=\"redis\",le=\"+Inf\"} 100
leasehold_held_seconds_bucket{class=\"scheduler\",namespace=\"etl\",store=\"redis\",le=\"1.0\"} 10
leasehold_held_seconds_bucket{class=\"scheduler\",namespace=\"etl\",store=\"redis\",le=\"10.0\"} 10
leasehold_held_seconds_bucket{class=\"scheduler\",namespace=\"etl\",store=\"redis\",le=\"+Inf\"} 10
leasehold_held_seconds_bucket{class=\"workflow\",namespace=\"run\",store=\"redis\",le=\"+Inf\"} 7
leasehold_renew_total{class=\"scheduler\",namespace=\"job\",store=\"redis\",outcome=\"renewed\"} 40
leasehold_renew_total{class=\"scheduler\",namespace=\"job\",store=\"redis\",outcome=\"unknown\"} 2
";

    #[test]
    fn adds_up_namespaces_of_one_class() {
        let evidence = parse_prometheus(TEXT, "scheduler").unwrap();
        assert_eq!(evidence.held.count(), 110);
        assert_eq!(evidence.held.quantile(0.9), Ok(Duration::from_secs(1)));
        assert_eq!(evidence.held.quantile(0.99), Ok(Duration::from_secs(10)));
        assert!(evidence.held.quantile(1.0).is_err());
        assert_eq!((evidence.renewals, evidence.retries), (42, 2));
        assert_eq!(parse_prometheus(TEXT, "workflow").unwrap().held.count(), 7);
    }

    #[test]
    fn an_invalid_line_is_named() {
        let text = TEXT.replace("le=\"10.0\"} 99", "le=\"ten\"} 99");
        let message = parse_prometheus(&text, "scheduler").unwrap_err().to_string();
        assert!(message.starts_with("line 3: le=\"ten\""), "{message}");
    }
}
