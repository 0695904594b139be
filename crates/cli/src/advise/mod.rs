//! `leasehold advise`: compute a TTL from recorded data.

mod args;
mod daemon;
mod print;

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use leasehold::clock::{BootClock, Clock};
use leasehold::policy::Class;
use leasehold_advise::{Advice, Evidence, Forecast, Plan, Requirements, SloRemedy, change, plot, source};
use leasehold_core::atomic_file::{self, FileAccess};

pub(crate) use self::args::AdviseArgs;
use self::args::{AdviceFormat, DataKind};
use crate::config::Settings;

/// The name of the new policy file in the diff if there is no file yet.
const DEFAULT_POLICY_FILE: &str = "leasehold.toml";

/// Reads data, computes the advice and prints it. Returns whether the takeover target can be met.
pub(crate) fn main(settings: &Settings, args: &AdviseArgs) -> anyhow::Result<bool> {
    if args.from.is_none() && args.p99.is_none() {
        bail!(
            "nothing to advise from\nname recorded data with --from FILE or --from http://HOST:PORT, or say the 99th percentile with --p99"
        );
    }
    let class = settings.policy_book()?.class(&args.class, BootClock.now())?;
    let evidence = match &args.from {
        Some(path) => {
            match path.to_str().filter(|text| text.starts_with("http://") || text.starts_with("https://")) {
                Some(url) => daemon::read_from_daemon(settings, url, &args.class)?,
                None => read_from_file(path, args.kind, &args.class)?,
            }
        }
        None => Evidence::default(),
    };
    let (advice, forecasts) = compute_advice(args, &class, &evidence)?;
    let marks = plot_marks(&advice, class.ttl.get());
    let title = format!("How long {} locks were held", args.class);
    if let Some(path) = &args.svg {
        let svg = plot::svg(&evidence.held, &marks, &title);
        atomic_file::replace(path, FileAccess::Umask, svg.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.html {
        let page = print::html_page(&args.class, &advice, &forecasts, &evidence, &marks, &title)?;
        atomic_file::replace(path, FileAccess::Umask, page.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let meets_target = advice.slo.is_none_or(|slo| slo.remedy != SloRemedy::FastFail);
    if args.write {
        let file = settings.policy_file().unwrap_or_else(|| DEFAULT_POLICY_FILE.into());
        let before = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        let after = change::apply(&before, &args.class, &advice.recommended()).map_err(anyhow::Error::msg)?;
        // Check that the changed policy file loads before printing the diff.
        leasehold::policy::PolicyBook::from_text(&after, &file.display().to_string())?;
        // `patch` must find the lines of the file as they are: with tabs, and with characters that would be escaped.
        let diff = change::diff(&file.display().to_string(), &before, &after);
        let mut out = crate::output::filter_stdout();
        return out
            .write_all(diff.as_bytes())
            .and_then(|()| out.flush())
            .map(|()| meets_target)
            .map_err(Into::into);
    }
    let mut out = crate::output::stdout();
    if args.output == AdviceFormat::Json {
        writeln!(out, "{:#}", print::advice_document(&args.class, &advice, &forecasts, &evidence))?;
    } else {
        print::write_text(&mut out, &args.class, &advice, &forecasts, &evidence, Some(&marks))?;
    }
    out.flush()?;
    Ok(meets_target)
}

/// The advice, and forecasts for the advised plans, the plan in force and those of `--what-if`.
pub(crate) fn compute_advice(
    args: &AdviseArgs,
    class: &Class,
    evidence: &Evidence,
) -> anyhow::Result<(Advice, Vec<(String, Forecast)>)> {
    let requirements = Requirements {
        p99: args.p99,
        jitter: args.jitter,
        guard: args.guard,
        stop_grace: args.stop_grace.or(Some(class.stop_grace).filter(|grace| !grace.is_zero())),
        lock_delay: class.release.lock_delay,
        takeover_slo: args.slo,
        current: Some(class.ttl.get()),
    };
    let advice = Advice::from(evidence, &requirements)?;
    let mut shown =
        vec![("in force".to_owned(), Plan::of(class.ttl.get(), class.renew.timeout, &requirements))];
    shown.push(("advised, covering".into(), advice.covering));
    shown.push(("advised, renewing".into(), advice.renewing));
    for ttl in &args.what_if {
        leasehold::Ttl::new(*ttl).context("--what-if")?;
        shown.push(("what if".into(), Plan::of(*ttl, advice.recommended().timeout, &requirements)));
    }
    let forecasts: Vec<_> =
        shown.into_iter().map(|(name, plan)| (name, Forecast::of(plan, evidence, args.holds))).collect();
    Ok((advice, forecasts))
}

fn plot_marks(advice: &Advice, current: std::time::Duration) -> Vec<plot::PlotMark> {
    [
        (advice.p99, "p99"),
        (advice.covering.ttl, "covering ttl"),
        (advice.renewing.ttl, "renewing ttl"),
        (current, "ttl in force"),
    ]
    .map(|(at, label)| plot::PlotMark { at, label: label.to_owned() })
    .into()
}

fn read_from_file(path: &Path, kind: Option<DataKind>, class: &str) -> anyhow::Result<Evidence> {
    // The argument may be a mistyped URL with a password.
    let shown = leasehold::redact(&path.display().to_string());
    let mut text = String::new();
    if path.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    }
    if let Some(problem) = refusal_text(&text) {
        bail!(
            "{shown} holds no recorded data but a daemon's refusal: {problem}\n\
             read it with a token: `--from http://HOST:PORT`, or `curl -H @FILE`"
        );
    }
    let kind = kind.unwrap_or_else(|| detect_kind(&text));
    let read = match kind {
        DataKind::Durations => source::parse_durations(&text),
        DataKind::Metrics => source::parse_prometheus(&text, class),
        DataKind::History => source::parse_history(&text, class),
    };
    let evidence = read.with_context(|| shown.clone())?;
    if evidence.held.is_empty() && kind != DataKind::Durations {
        bail!(
            "{shown}: nothing is recorded about class {class}\nname the class that was recorded, or record it first"
        );
    }
    Ok(evidence)
}

/// The detail of a problem document, which `curl` passes on like an answer.
fn refusal_text(text: &str) -> Option<String> {
    let problem: serde_json::Value = serde_json::from_str(text).ok()?;
    let (status, detail) = (problem.get("status")?.as_u64()?, problem.get("detail")?.as_str()?);
    Some(format!("{status}: {detail}"))
}

fn detect_kind(text: &str) -> DataKind {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty());
    match first {
        Some(line) if line.starts_with('{') => DataKind::History,
        Some(line)
            if line.starts_with("# HELP") || line.starts_with("# TYPE") || line.starts_with("leasehold_") =>
        {
            DataKind::Metrics
        }
        _ => DataKind::Durations,
    }
}
