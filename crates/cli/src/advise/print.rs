//! Prints the advice as text, JSON or HTML.

use std::io::Write;
use std::time::Duration;

use leasehold::policy::duration::human;
use leasehold_advise::{Advice, Evidence, FalseLoss, Forecast, SloRemedy, plot};
use serde_json::{Value, json};

// Raised when a field is removed or changes its meaning. A new field does not raise it.
const ADVICE_SCHEMA: u32 = 1;

/// The formula with its values, the plans side by side, and a plot.
pub(crate) fn write_text(
    out: &mut impl Write,
    class: &str,
    advice: &Advice,
    forecasts: &[(String, Forecast)],
    evidence: &Evidence,
    picture: Option<&[plot::PlotMark]>,
) -> std::io::Result<()> {
    writeln!(out, "{}", formula_text(class, advice, evidence))?;
    writeln!(
        out,
        "{:<20} {:>9} {:>9} {:>9} {:>9} {:>8} {:>11}  false loss",
        "", "TTL", "RENEW", "MARGIN", "TAKEOVER", "COVERED", "RENEWALS/S"
    )?;
    for (name, forecast) in forecasts {
        let plan = forecast.plan;
        writeln!(
            out,
            "{name:<20} {:>9} {:>9} {:>9} {:>9} {:>8} {:>11.3}  {}",
            human(plan.ttl),
            human(plan.every),
            human(plan.margin),
            human(plan.takeover),
            covered_text(forecast, evidence),
            forecast.renewals_per_second,
            false_loss_text(forecast),
        )?;
    }
    if let Some(message) = slo_text(advice) {
        writeln!(out, "\n{message}")?;
    }
    if let Some(marks) = picture.filter(|_| !evidence.held.is_empty()) {
        writeln!(out, "\n{}", plot::terminal(&evidence.held, marks, 50))?;
    }
    Ok(())
}

fn formula_text(class: &str, advice: &Advice, evidence: &Evidence) -> String {
    let plan = advice.recommended();
    format!(
        "{class}: p50 {}, p95 {}, p99 {} ({} holds); jitter {}, guard {}\n\
         ttl = {} + {} + {} = {}, renewed every {}\n\
         recommended: ttl {}, renew every {} with a time-out of {}\n",
        human(advice.p50),
        human(advice.p95),
        human(advice.p99),
        evidence.held.count(),
        human(advice.jitter),
        human(advice.guard),
        human(advice.p99),
        human(advice.jitter),
        human(advice.guard),
        human(advice.covering.ttl),
        human(advice.covering.every),
        human(plan.ttl),
        human(plan.every),
        human(plan.timeout),
    )
}

fn covered_text(forecast: &Forecast, evidence: &Evidence) -> String {
    if evidence.held.is_empty() {
        return "-".into();
    }
    format!("{:.1} %", forecast.covered * 100.0)
}

fn false_loss_text(forecast: &Forecast) -> String {
    match (forecast.false_loss, forecast.false_loss.per_hour(forecast.plan.every)) {
        (FalseLoss::Observed(_), Some(rate)) => format!("{rate:.3} per hour of holding"),
        // Without a recorded loss, only an upper bound can be stated.
        (FalseLoss::AtMost(_), Some(rate)) => format!("none recorded; at most {rate:.3} per hour (95 %)"),
        _ => "unknown: no latencies or pauses recorded".into(),
    }
}

/// Whether the takeover target is met, and what else can be done.
fn slo_text(advice: &Advice) -> Option<String> {
    let slo = advice.slo?;
    let target = human(slo.target);
    let now = slo.current.map_or_else(String::new, |current| {
        let verdict = if current <= slo.target { "meets" } else { "cannot meet" };
        format!("takeover within {target}: the ttl in force {verdict} it ({} at most)\n", human(current))
    });
    let lever = match slo.remedy {
        SloRemedy::Covering => format!(
            "the covering plan does ({} at most): set ttl {}",
            human(advice.covering.takeover),
            human(advice.covering.ttl)
        ),
        SloRemedy::Renewing => format!(
            "only the shorter, renewing plan does ({} at most): set ttl {}; work longer than it lives by its renewals",
            human(advice.renewing.takeover),
            human(advice.renewing.ttl)
        ),
        SloRemedy::FastFail => format!(
            "no ttl does that the jitter of {} permits ({} at most)\n\
             levers left: less jitter, or end a dead holder's lease by another way (release on shutdown, leasehold break)",
            human(advice.jitter),
            human(advice.renewing.takeover)
        ),
    };
    Some(format!("{now}{lever}"))
}

/// The advice as JSON.
pub(crate) fn advice_document(
    class: &str,
    advice: &Advice,
    forecasts: &[(String, Forecast)],
    evidence: &Evidence,
) -> Value {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let plans: Vec<_> = forecasts
        .iter()
        .map(|(name, forecast)| {
            let plan = forecast.plan;
            let (seen, share) = match forecast.false_loss {
                FalseLoss::Observed(share) => (true, Some(share)),
                FalseLoss::AtMost(share) => (false, Some(share)),
                _ => (false, None),
            };
            json!({
                "plan": name,
                "ttl_ms": millis(plan.ttl),
                "renew_every_ms": millis(plan.every),
                "renew_timeout_ms": millis(plan.timeout),
                "margin_ms": millis(plan.margin),
                "takeover_ms": millis(plan.takeover),
                "covered": (!evidence.held.is_empty()).then_some(forecast.covered),
                "renewals_per_second": forecast.renewals_per_second,
                "false_loss": { "share_of_renewals": share, "seen": seen,
                                "per_hour": forecast.false_loss.per_hour(plan.every) },
            })
        })
        .collect();
    let recommended = advice.recommended();
    json!({
        "schema_version": ADVICE_SCHEMA,
        "class": class,
        "holds_recorded": evidence.held.count(),
        "p50_ms": millis(advice.p50),
        "p95_ms": millis(advice.p95),
        "p99_ms": millis(advice.p99),
        "jitter_ms": millis(advice.jitter),
        "guard_ms": millis(advice.guard),
        "recommended": { "ttl_ms": millis(recommended.ttl), "renew_every_ms": millis(recommended.every),
                         "renew_timeout_ms": millis(recommended.timeout) },
        "plans": plans,
        "slo": advice.slo.map(|slo| json!({
            "target_ms": millis(slo.target),
            "in_force_takeover_ms": slo.current.map(millis),
            "met_by": match slo.remedy {
                SloRemedy::Covering => Some("covering"),
                SloRemedy::Renewing => Some("renewing"),
                SloRemedy::FastFail => None,
            },
        })),
    })
}

/// An HTML page with the text and the plot.
pub(crate) fn html_page(
    class: &str,
    advice: &Advice,
    forecasts: &[(String, Forecast)],
    evidence: &Evidence,
    marks: &[plot::PlotMark],
    title: &str,
) -> std::io::Result<String> {
    let mut plain = Vec::new();
    write_text(&mut plain, class, advice, forecasts, evidence, None)?;
    let plain = String::from_utf8_lossy(&plain)
        // `&` first, or the entities would be escaped again.
        .replace('&', "&amp;")
        .replace('<', "&lt;");
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>:root{{color-scheme:light dark}}body{{font-family:system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}\
         pre{{overflow-x:auto}}svg{{max-width:100%;height:auto}}</style>\n\
         <h1>{title}</h1>\n{}\n<pre>{plain}</pre>\n</html>\n",
        plot::svg(&evidence.held, marks, title)
    ))
}
