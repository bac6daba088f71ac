//! Runs this program again, in a role: a process whose descriptors, mappings, limits and defects are its own.

use pageferry::verify::{self, Defect};
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "PAGEFERRY_TEST_ROLE";
const INPUT: &str = "PAGEFERRY_TEST_INPUT";
/// Names the defect that a role has.
const PLANT: &str = "PAGEFERRY_TEST_PLANT";
/// What a role writes when it has come to its end.
const THROUGH: &str = "\nthe role is played\n";

/// How a role has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It came to its end.
    Through(String),
    /// It panicked, or a signal ended it; with what it wrote.
    Failed(String),
    /// It did not end in time, and was killed.
    Hung(String),
}

impl Ended {
    /// What it wrote, if it came to its end.
    #[track_caller]
    pub fn through(self) -> String {
        match self {
            Ended::Through(output) => output,
            other => panic!("{other:?}"),
        }
    }
}

/// A process that plays a role.
pub struct Player {
    child: Child,
    output: File,
}

/// The command for a role; the caller may give it descriptors.
pub fn command(role: &str, input: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    prepare(&mut command, role, input);
    command
}

/// The same for a command that starts this program by another path.
pub fn prepare(command: &mut Command, role: &str, input: &str) {
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(INPUT, input).env("RUST_BACKTRACE", "0");
}

impl Player {
    pub fn start(command: Command) -> Player {
        Player::try_start(command).unwrap()
    }

    /// The same, where it may be that the process cannot be started.
    pub fn try_start(mut command: Command) -> std::io::Result<Player> {
        let output = tempfile::tempfile().unwrap();
        let to = || Stdio::from(output.try_clone().unwrap());
        let child = command.stdout(to()).stderr(to()).spawn()?;
        Ok(Player { child, output })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub fn output(&mut self) -> String {
        let mut bytes = Vec::new();
        self.output.rewind().unwrap();
        self.output.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How it ends, within so long.
    pub fn end(mut self, within: Duration) -> Ended {
        let until = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let output = self.output();
                return match status.success() && output.contains(THROUGH) {
                    true => Ended::Through(output.replace(THROUGH, "")),
                    false => Ended::Failed(format!("{status}\n{output}")),
                };
            }
            if Instant::now() > until {
                self.kill();
                return Ended::Hung(self.output());
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Plays a role to its end.
pub fn run(role: &str, input: &str, within: Duration) -> Ended {
    Player::start(command(role, input)).end(within)
}

/// The same, with a defect.
pub fn run_planted(role: &str, input: &str, defect: Defect, within: Duration) -> Ended {
    let mut command = command(role, input);
    command.env(PLANT, format!("{defect:?}"));
    Player::start(command).end(within)
}

/// Plays the role that this process was started for, if it was started for one.
pub fn play(play: fn(&str, &str)) {
    if let Ok(role) = std::env::var(ROLE) {
        if let Ok(name) = std::env::var(PLANT) {
            let named = |defect: &&Defect| format!("{defect:?}") == name;
            verify::plant(*Defect::ALL.iter().find(named).expect("a defect has that name"));
        }
        play(&role, &std::env::var(INPUT).unwrap_or_default());
        println!("{THROUGH}");
    }
}
