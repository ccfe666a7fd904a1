//! This program, started again for another part.

use std::fs;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Starts this program with `arguments`, killed with the value, and returns its first line.
pub(crate) async fn start(arguments: &[&str]) -> (Child, String) {
    run(Command::new(program()).args(arguments)).await
}

/// The same, but of all programs that want to run it comes last. Linux weighs sessions against each other, and niceness
/// only within one: so it has a session of its own, of the least weight.
pub(crate) async fn start_nice(arguments: &[&str]) -> (Child, String) {
    let nice = ["nice", "-n", "19"];
    let mut command = Command::new("setsid");
    command.args(nice).arg(program()).args(arguments);
    let started = run(&mut command).await;
    if let Some(id) = started.0.id() {
        // A kernel without such groups weighs processes, and there this one is nice already.
        let _ = fs::write(format!("/proc/{id}/autogroup"), "19");
    }
    started
}

fn program() -> std::path::PathBuf {
    std::env::current_exe().expect("this program has a path")
}

async fn run(command: &mut Command) -> (Child, String) {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("this program starts again");
    let output = child.stdout.take().expect("the output is a pipe");
    let mut lines = BufReader::new(output).lines();
    let line = lines.next_line().await.expect("it writes text");
    (child, line.expect("it says something"))
}
