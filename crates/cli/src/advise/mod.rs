//! `leasehold advise`: a TTL from recorded data.

mod args;
mod daemon;
mod print;

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use leasehold::clock::{BootClock, Clock};
use leasehold::policy::Class;
use leasehold_advise::{Advice, Evidence, Forecast, Lever, Plan, Wishes, change, plot, source};

pub(crate) use self::args::AdviseArgs;
use self::args::{Form, Kind};
use crate::args::Place;

/// The policy file that a change is written for if there is none.
const FRESH: &str = "leasehold.toml";

/// Reads, does the sums and prints them; yes means that the takeover target can be met.
pub(crate) fn main(place: &Place, args: &AdviseArgs) -> anyhow::Result<bool> {
    if args.from.is_none() && args.p99.is_none() {
        bail!(
            "nothing to advise from\nname recorded data with --from FILE or --from http://HOST:PORT, or say the 99th percentile with --p99"
        );
    }
    let class = place.book()?.class(&args.class, BootClock.now())?;
    let evidence = match &args.from {
        Some(path) => match path
            .to_str()
            .filter(|text| text.starts_with("http://") || text.starts_with("https://"))
        {
            Some(url) => daemon::read(place, url, &args.class)?,
            None => read(path, args.kind, &args.class)?,
        },
        None => Evidence::default(),
    };
    let (advice, forecasts) = sums(args, &class, &evidence)?;
    let marks = marks(&advice, class.ttl.get());
    let title = format!("How long {} locks were held", args.class);
    if let Some(path) = &args.svg {
        let svg = plot::svg(&evidence.held, &marks, &title);
        std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.html {
        let page = print::page(&args.class, &advice, &forecasts, &evidence, &marks, &title)?;
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = std::io::stdout().lock();
    if args.write {
        let file = place.policy_file()?.unwrap_or_else(|| FRESH.into());
        let before = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        let after = change::apply(&before, &args.class, &advice.recommended()).map_err(anyhow::Error::msg)?;
        // What is advised must be a policy that loads.
        leasehold::policy::PolicyBook::from_text(&after, &file.display().to_string())?;
        write!(
            out,
            "{}",
            change::diff(&file.display().to_string(), &before, &after)
        )?;
    } else if args.output == Form::Json {
        writeln!(
            out,
            "{:#}",
            print::document(&args.class, &advice, &forecasts, &evidence)
        )?;
    } else {
        print::text(
            &mut out,
            &args.class,
            &advice,
            &forecasts,
            &evidence,
            Some(&marks),
        )?;
    }
    out.flush()?;
    Ok(advice.slo.is_none_or(|slo| slo.lever != Lever::FastFail))
}

/// The plan that is advised, and what it, the one in force and those asked about would have done.
pub(crate) fn sums(
    args: &AdviseArgs,
    class: &Class,
    evidence: &Evidence,
) -> anyhow::Result<(Advice, Vec<(String, Forecast)>)> {
    let wishes = Wishes {
        p99: args.p99,
        jitter: args.jitter,
        guard: args.guard,
        stop_grace: args
            .stop_grace
            .or(Some(class.stop_grace).filter(|grace| !grace.is_zero())),
        lock_delay: class.release.lock_delay,
        takeover_slo: args.slo,
        current: Some(class.ttl.get()),
    };
    let advice = Advice::from(evidence, &wishes)?;
    let mut shown = vec![(
        "in force".to_owned(),
        Plan::of(class.ttl.get(), class.renew.timeout, &wishes),
    )];
    shown.push(("advised, covering".into(), advice.covering));
    shown.push(("advised, renewing".into(), advice.renewing));
    for ttl in &args.what_if {
        leasehold::Ttl::new(*ttl).context("--what-if")?;
        shown.push((
            "what if".into(),
            Plan::of(*ttl, advice.recommended().timeout, &wishes),
        ));
    }
    let forecasts: Vec<_> = shown
        .into_iter()
        .map(|(name, plan)| (name, Forecast::of(plan, evidence, args.holds)))
        .collect();
    Ok((advice, forecasts))
}

fn marks(advice: &Advice, current: std::time::Duration) -> Vec<plot::Mark> {
    [
        (advice.p99, "p99"),
        (advice.covering.ttl, "covering ttl"),
        (advice.renewing.ttl, "renewing ttl"),
        (current, "ttl in force"),
    ]
    .map(|(at, label)| plot::Mark {
        at,
        label: label.to_owned(),
    })
    .into()
}

fn read(path: &Path, kind: Option<Kind>, class: &str) -> anyhow::Result<Evidence> {
    // Where a URL may stand, one with a password in it may too.
    let shown = leasehold::redact(&path.display().to_string());
    let mut text = String::new();
    if path.as_os_str() == "-" {
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    }
    let kind = kind.unwrap_or_else(|| guess(&text));
    let read = match kind {
        Kind::Durations => source::durations(&text),
        Kind::Metrics => source::prometheus(&text, class),
        Kind::History => source::history(&text, class),
    };
    let evidence = read.with_context(|| shown.clone())?;
    if evidence.held.is_empty() && kind != Kind::Durations {
        bail!(
            "{shown}: nothing is recorded about class {class}\nname the class that was recorded, or record it first"
        );
    }
    Ok(evidence)
}

fn guess(text: &str) -> Kind {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty());
    match first {
        Some(line) if line.starts_with('{') => Kind::History,
        Some(line)
            if line.starts_with("# HELP") || line.starts_with("# TYPE") || line.starts_with("leasehold_") =>
        {
            Kind::Metrics
        }
        _ => Kind::Durations,
    }
}
