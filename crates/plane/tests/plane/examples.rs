//! The example runs and prints what it shows.

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
fn the_example_works() {
    let output = run_example("worker");
    assert!(output.contains("SUCCEEDED"), "it printed:\n{output}");
}
