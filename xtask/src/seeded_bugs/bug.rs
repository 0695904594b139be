//! The patches in `proof/bugs` and their headers.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

pub(crate) const FOLDER: &str = "proof/bugs";

/// Crates with bugs, those that more crates use behind those that fewer use.
const BY_USERS: [&str; 9] =
    ["server", "drill", "fence", "plane", "leasehold", "http", "redis", "sqlite", "core"];

/// A mistake as a patch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bug {
    /// Two digits.
    pub(crate) number: String,
    pub(crate) title: String,
    /// The layers that must catch it.
    pub(crate) layers: Vec<BugLayer>,
    /// The crates that it changes: folders in crates/.
    pub(crate) crates: Vec<String>,
    pub(crate) path: PathBuf,
}

/// Tests that must catch a bug.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BugLayer {
    pub(crate) name: String,
    pub(crate) command: String,
}

impl Bug {
    /// The header ends where the patch begins; a line of the patch may look like a field.
    fn parse(path: &Path, text: &str) -> anyhow::Result<Self> {
        let header: Vec<_> = text.lines().take_while(|line| !line.starts_with("diff --git ")).collect();
        let field = |name: &'static str| {
            header.iter().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        let (number, title) = field("Bug")
            .next()
            .and_then(|bug| bug.split_once(' '))
            .context("it has no line `Bug: NN title`")?;
        ensure!(
            number.len() == 2 && number.bytes().all(|digit| digit.is_ascii_digit()),
            "the bug's number is not two digits: {number}"
        );
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        ensure!(
            name.starts_with(&format!("{number}-")),
            "the file's name does not begin with the bug's number {number}"
        );
        let layer = |line: &str| {
            let (name, command) =
                line.split_once(" | ").with_context(|| format!("`Layer: {line}` has no command"))?;
            ensure!(
                command.starts_with("cargo nextest run ") || command.contains(" cargo nextest run "),
                "not run by nextest: {command}"
            );
            Ok(BugLayer { name: name.to_owned(), command: command.to_owned() })
        };
        let layers: Vec<_> = field("Layer").map(layer).collect::<anyhow::Result<_>>()?;
        ensure!(!layers.is_empty(), "it names no layer that must catch it");
        ensure!(header.len() < text.lines().count(), "it has no patch");
        let mut crates: Vec<_> = text
            .lines()
            .filter_map(|line| Some(line.strip_prefix("diff --git a/crates/")?.split_once('/')?.0.to_owned()))
            .collect();
        crates.dedup();
        Ok(Self { number: number.to_owned(), title: title.to_owned(), layers, crates, path: path.to_owned() })
    }

    /// How many crates cargo builds again because of it: the higher, the more.
    pub(crate) fn build_rank(&self) -> Option<usize> {
        self.crates.iter().map(|name| BY_USERS.iter().position(|one| one == name)).max().flatten()
    }
}

/// Every bug, by number.
pub(crate) fn read_all() -> anyhow::Result<Vec<Bug>> {
    let mut bugs = Vec::new();
    for file in std::fs::read_dir(FOLDER).context(FOLDER)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            bugs.push(Bug::parse(&path, &text).with_context(|| path.display().to_string())?);
        }
    }
    bugs.sort_unstable_by(|one, other| one.number.cmp(&other.number));
    Ok(bugs)
}

/// A mistake whose patch waits for a part that does not exist yet: number, title, part.
pub(crate) fn read_waiting() -> anyhow::Result<Vec<[String; 3]>> {
    let path = Path::new(FOLDER).join("waiting.tsv");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let fields = |line: &str| {
        let fields: Vec<_> = line.split('\t').map(str::to_owned).collect();
        <[String; 3]>::try_from(fields)
            .map_err(|_| anyhow::anyhow!("{}: not three fields: {line}", path.display()))
    };
    lines.map(fields).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Bug: 05 release without comparing\nMistake: It deletes.\n\
        Layer: conformance (Redis) | cargo nextest run -p leasehold-redis -E 'test(release | x)'\n\
        Layer: simulation | PROPTEST_CASES=9 cargo nextest run -p leasehold-core --test sim\n\n\
        diff --git a/crates/redis/src/a.rs b/crates/redis/src/a.rs\nLayer: not a field | cargo nextest run\n";

    fn refusal(name: &str, text: &str) -> String {
        format!("{:#}", Bug::parse(Path::new(name), text).unwrap_err())
    }

    #[test]
    fn the_header_is_read() {
        let bug = Bug::parse(Path::new("proof/bugs/05-release.patch"), TEXT).unwrap();
        assert_eq!((&*bug.number, &*bug.title), ("05", "release without comparing"));
        let names: Vec<_> = bug.layers.iter().map(|layer| &*layer.name).collect();
        assert_eq!(names, ["conformance (Redis)", "simulation"]);
        assert_eq!(bug.layers[0].command, "cargo nextest run -p leasehold-redis -E 'test(release | x)'");
    }

    #[test]
    fn a_bug_in_core_ranks_above_one_in_a_store_and_that_above_one_in_the_daemon() {
        let rank = |name: &str| {
            let text = TEXT.replace("crates/redis/", &format!("crates/{name}/"));
            Bug::parse(Path::new("05-x.patch"), &text).unwrap().build_rank()
        };
        assert!(
            rank("cli") < rank("server") && rank("server") < rank("redis") && rank("redis") < rank("core")
        );
        let both = TEXT.to_owned() + "diff --git a/crates/core/src/b.rs b/crates/core/src/b.rs\n";
        assert_eq!(Bug::parse(Path::new("05-x.patch"), &both).unwrap().build_rank(), rank("core"));
    }

    #[test]
    fn a_header_that_is_not_complete_is_refused() {
        assert!(refusal("06-release.patch", TEXT).contains("does not begin with"));
        assert!(refusal("05-x.patch", &TEXT.replace("Bug: 05", "Bug: 5")).contains("two digits"));
        assert!(refusal("05-x.patch", &TEXT.replace("Layer: ", "Layers: ")).contains("names no layer"));
        assert!(refusal("05-x.patch", &TEXT.replace(" | PROPTEST", ", PROPTEST")).contains("has no command"));
        assert!(
            refusal("05-x.patch", &TEXT.replace("cargo nextest run -p", "cargo test -p")).contains("nextest")
        );
        assert!(refusal("05-x.patch", TEXT.split("diff").next().unwrap()).contains("no patch"));
    }
}
