//! The examples run and print what they show.

/// Runs an example, which cargo has built beside the tests, and returns what it printed.
fn run_example(name: &str) -> String {
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    let output = std::process::Command::new(&example).output();
    let output =
        output.unwrap_or_else(|error| panic!("{}: {error}; build it with --examples", example.display()));
    assert!(output.status.success(), "{name}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_examples_work() {
    for (name, printed) in [
        ("short", "done"),
        ("long", "write\nReleased"),
        ("outage", "workflow: LocalOnly"),
        ("leader", "second leads"),
        ("policy_file", "held under the class report\n"),
        ("own_store", "fence Ok("),
    ] {
        let output = run_example(name);
        assert!(output.contains(printed), "{name} printed:\n{output}");
    }
}
