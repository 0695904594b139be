//! Starting other programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

/// A program to start, without the variables that `cargo run` has set for xtask itself.
///
/// The build scripts of some crates (ring) run again when `CARGO_MANIFEST_DIR` or `CARGO_PKG_NAME` changes. With these variables
/// left in place, every cargo command started here would rebuild half of the dependencies.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_set_by_cargo_run) {
            command.env_remove(name);
        }
    }
    command
}

fn is_set_by_cargo_run(name: &str) -> bool {
    name.starts_with("CARGO_PKG_")
        || matches!(
            name,
            "CARGO_MANIFEST_DIR"
                | "CARGO_MANIFEST_PATH"
                | "CARGO_BIN_NAME"
                | "CARGO_CRATE_NAME"
                | "CARGO_PRIMARY_PACKAGE"
                | "OUT_DIR"
        )
}

/// A program and its arguments, separated by blanks.
pub(crate) fn words(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut made = command(words.next().unwrap_or_default());
    made.args(words);
    made
}

/// A line for bash.
pub(crate) fn bash(line: &str) -> Command {
    let mut made = command("bash");
    made.args(["-c", line]);
    made
}

/// How a program ended, and what it printed.
#[derive(Debug)]
pub(crate) struct CommandResult {
    /// The exit code; 128 if a signal ended the program.
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl CommandResult {
    pub(crate) fn success(&self) -> bool {
        self.code == 0
    }

    /// The last lines of the output, for a report of a failure.
    pub(crate) fn tail(&self, lines: usize) -> String {
        let all: Vec<_> = self.text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// The last line of the output.
    pub(crate) fn last_line(&self) -> &str {
        self.text.lines().next_back().unwrap_or_default()
    }
}

/// Runs it with the terminal's output; an error unless it succeeds.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{} failed: {status}", shown(command));
    Ok(())
}

/// Runs it and captures stdout; stderr goes to the terminal, because it shows progress.
pub(crate) fn capture(command: &mut Command) -> anyhow::Result<CommandResult> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    Ok(CommandResult {
        code: output.status.code().unwrap_or(128),
        text: String::from_utf8_lossy(&output.stdout).into_owned(),
    })
}

/// Runs it and captures stdout and stderr.
pub(crate) fn capture_all(command: &mut Command) -> anyhow::Result<CommandResult> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(CommandResult { code: output.status.code().unwrap_or(128), text })
}

/// What git prints, without the line breaks at the end. Blanks stay: they may be the last line of a patch.
pub(crate) fn git(args: &[&str]) -> anyhow::Result<String> {
    let output = command("git").args(args).output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

/// Installs what is missing: `COMMAND:PACKAGE` or `cargo-NAME`.
pub(crate) fn need(tools: &[&str]) -> anyhow::Result<()> {
    run(command("scripts/need").args(tools))
}

/// Where cargo builds, as an absolute path.
pub(crate) fn target_dir() -> anyhow::Result<PathBuf> {
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    std::path::absolute(folder).context("the working folder has no path")
}

/// Builds a program of the workspace with the features of the tests, so that both share their builds, and returns its path.
pub(crate) fn build_program(name: &str) -> anyhow::Result<PathBuf> {
    run(words("cargo build --quiet --locked --workspace --all-features --bin").arg(name))?;
    Ok(target_dir()?.join("debug").join(name))
}

/// A folder under target/ that is removed at the end.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// The process id in its name keeps two runs of one task apart.
    pub(crate) fn new(name: &str) -> anyhow::Result<Self> {
        Self::named(&format!("{name}.{}", std::process::id()))
    }

    /// A folder that each run of a task uses again, so that a run that was killed does not leave gigabytes behind.
    pub(crate) fn named(name: &str) -> anyhow::Result<Self> {
        let path = target_dir()?.join(name);
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it: `cargo clean` removes what is left.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

/// The number that stands before `words` in a line such as `300 drills in 12 s, … 0 violations`.
pub(crate) fn number_before(line: &str, words: &str) -> Option<u64> {
    let (before, _) = line.split_once(&format!(" {words}"))?;
    let digits = before.rsplit(|at: char| !at.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_by_the_words_behind_it() {
        let line = "300 drills in 187 s, seeds 0 to 299: 0 violations, 2 late once, 12 writes applied";
        assert_eq!(number_before(line, "drills in"), Some(300));
        assert_eq!(number_before(line, "violations"), Some(0));
        assert_eq!(number_before(line, "writes applied"), Some(12));
        assert_eq!(number_before(line, "stale ones refused"), None);
        assert_eq!(number_before("no drills in it", "drills in"), None);
    }

    #[test]
    fn child_processes_do_not_see_the_variables_of_xtask() {
        assert!(is_set_by_cargo_run("CARGO_MANIFEST_DIR"));
        assert!(is_set_by_cargo_run("CARGO_PKG_VERSION_MAJOR"));
        assert!(!is_set_by_cargo_run("CARGO_TARGET_DIR"));
        assert!(!is_set_by_cargo_run("CARGO_PROFILE_DEV_DEBUG"));
    }
}
