//! What the tests in `tests/` need of the parser. No part of the command's interface.

use std::ffi::OsString;
use std::sync::Arc;

use clap::CommandFactory;
use clap::error::ErrorKind;
use leasehold::clock::Moment;
use leasehold::policy::{Class, PolicyBook, duration};
use leasehold::{Holder, Name, StoreUrl};
use leasehold_advise::Evidence;
use leasehold_core::RequestOptions;
use leasehold_drill::proxy::Toxic;
use leasehold_plane::JobSpec;
use leasehold_supervise::effective_grace;

use crate::args::{Cli, Command};
use crate::drill::DrillCommand;
use crate::job::JobCommand;
use crate::plane::PlaneCommand;
use crate::{advise, exit, message, usage};

pub use crate::message::{error_text, escape_control, prefix_lines};
pub use crate::span::{MAX_DURATION, parse as parse_duration};

/// The clap definition of the whole command.
#[must_use]
pub fn definition() -> clap::Command {
    Cli::command()
}

/// The result of parsing a line.
#[derive(Debug)]
pub enum ParseOutcome {
    /// The line is valid.
    Parsed(Box<ParsedLine>),
    /// Help or the version was printed.
    HelpShown,
    /// The line is refused.
    Refused(UsageRefusal),
}

/// A refused line: message and exit code.
#[derive(Debug)]
pub struct UsageRefusal {
    /// Why clap refused it.
    pub kind: ErrorKind,
    /// The text on standard error.
    pub message: String,
    /// The exit code.
    pub code: u8,
}

/// Parses a line as `main` does.
#[must_use]
pub fn parse_line(words: &[OsString]) -> ParseOutcome {
    let error = match crate::parse(words) {
        Ok(cli) => return ParseOutcome::Parsed(Box::new(ParsedLine(cli))),
        Err(error) => error,
    };
    if !error.use_stderr() {
        return ParseOutcome::HelpShown;
    }
    let kind = error.kind();
    ParseOutcome::Refused(UsageRefusal {
        kind,
        message: message::prefix_lines(&usage::usage_error_text(error, words)),
        code: exit::usage_exit_code(words),
    })
}

/// A valid line; its debug text shows every argument.
#[derive(Debug)]
pub struct ParsedLine(Cli);

impl ParsedLine {
    /// The global option `--store`.
    #[must_use]
    pub fn store(&self) -> Option<&str> {
        self.0.place.store.as_deref().map(String::as_str)
    }

    /// Takes the trailing command out of the parsed arguments.
    pub fn take_command(&mut self) -> Option<Vec<OsString>> {
        match &mut self.0.command {
            Command::Run(args) => Some(std::mem::take(&mut args.argv)),
            Command::Elect(args) => Some(std::mem::take(&mut args.argv)),
            Command::Job(args) => match &mut args.command {
                JobCommand::Submit(args) => {
                    let argv = std::mem::take(&mut args.argv);
                    Some(argv.into_iter().map(OsString::from).collect())
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The job that the line submits.
    pub fn job_spec(&self) -> Option<anyhow::Result<JobSpec>> {
        match &self.0.command {
            Command::Job(args) => match &args.command {
                JobCommand::Submit(submit) => Some(submit.to_spec()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Runs the validation that needs no store, file or socket. Returns what was refused.
    #[must_use]
    pub fn validate(&self) -> Vec<anyhow::Error> {
        let mut refused: Vec<anyhow::Error> = Vec::new();
        let mut lease_options = |name: &str, class: &str, options: &dyn Fn(&Class) -> RequestOptions| {
            let class = builtin_class(class)?;
            refused.extend(Name::new(name).err().map(anyhow::Error::from));
            refused.extend(options(&class).apply(&class).err().map(anyhow::Error::from));
            anyhow::Ok(())
        };
        let checked = match &self.0.command {
            Command::Run(args) => lease_options(&args.name, &args.class, &|class| {
                let mut options = RequestOptions::default().ttl(args.ttl).wait(args.wait);
                options.stop_grace = Some(effective_grace(args.stop_grace, args.ttl, class));
                options
            }),
            Command::Elect(args) => lease_options(&args.name, &args.class, &|class| {
                let mut options = RequestOptions::default().ttl(args.ttl);
                options.stop_grace = Some(effective_grace(args.stop_grace, args.ttl, class));
                options
            }),
            Command::Acquire(args) => lease_options(&args.name, &args.class, &|_| {
                RequestOptions::default().ttl(args.ttl).wait(args.wait)
            }),
            Command::Advise(args) => builtin_class(&args.class).and_then(|class| {
                let (advice, forecasts) = advise::compute_advice(args, &class, &Evidence::default())?;
                let plans = forecasts.iter().map(|(_, forecast)| forecast.plan);
                for plan in [advice.covering, advice.renewing].into_iter().chain(plans) {
                    // The figures must be printable.
                    let _shown = [plan.ttl, plan.every, plan.margin, plan.takeover].map(duration::human);
                }
                Ok(())
            }),
            Command::Plane(args) => {
                let PlaneCommand::Replica(args) = &args.command;
                args.settings().check().map_err(Into::into)
            }
            Command::Drill(args) => match &args.command {
                DrillCommand::Plane(args) => {
                    let _sum = args.options().takeover_bound();
                    Ok(())
                }
                DrillCommand::Proxy(args) => {
                    let toxics = args.toxics.iter().map(|words| words.parse::<Toxic>());
                    refused.extend(toxics.filter_map(|toxic| toxic.err().map(Into::into)));
                    Ok(())
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        };
        refused.extend(checked.err());
        refused.extend(self.job_spec().and_then(Result::err));
        refused.extend(self.store().and_then(|url| StoreUrl::parse(url).err()).map(Into::into));
        let holder = self.0.place.holder.as_ref().map(|holder| Holder::new(holder));
        refused.extend(holder.and_then(Result::err).map(anyhow::Error::from));
        refused
    }
}

/// The built-in class of this name, or of the default name: the policies of a user are not read here.
fn builtin_class(name: &str) -> anyhow::Result<Arc<Class>> {
    let book = PolicyBook::builtin();
    let class = book.class(name, Moment::ZERO);
    Ok(class.or_else(|_| book.class("scheduler", Moment::ZERO))?)
}
