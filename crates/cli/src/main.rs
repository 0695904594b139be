//! The `leasehold` command. All of it is in the library, so that a program can add a store of its own.

fn main() -> std::process::ExitCode {
    leasehold_cli::main()
}
