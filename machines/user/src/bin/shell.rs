//! A shell on the console: begins programs, and says what the machine does meanwhile.
//!
//! What is typed is echoed here, for the console echoes nothing. A line is a command and its words; `&` at its end lets
//! it go on beside the shell.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use pageferry_abi::call::Report;
use pageferry_abi::{Errno, Pid};
use pageferry_user::{input, kill, main, report, say, sleep, spawn, wait};

main!(run);

/// Commands, and what they do.
const HELP: &str = "\
help            says this
ls              names of programs
run NAME WORDS  begins a program, and waits for it; with & at the end it does not wait
ps              processes: number, parent, state, name
kill NUMBER     kills a process
vmstat          what was counted since the last time
top SECONDS     invalidations in each second
scheme          how ephemeral mappings are made, and on how many CPUs
exit            ends the shell; the machine ends with its last process
";

/// Counters that are shown even where nothing else is.
const INVALIDATIONS: [&str; 3] = ["page_invalidations", "space_invalidations", "shootdowns_sent"];

fn run(_: &str) -> u64 {
    let mut shell =
        Shell { typed: Typed { line: String::new(), skips_newline: false }, last: BTreeMap::new() };
    let _ = shell.changes();
    say!("pageferry: type help for the commands\n");
    loop {
        say!("> ");
        let Ok(line) = shell.typed.line() else { return 1 };
        let mut words = line.split_ascii_whitespace();
        let Some(command) = words.next() else { continue };
        let rest = line.trim_start()[command.len()..].trim();
        let done = match command {
            "exit" => return 0,
            "help" => {
                say!("{HELP}");
                Ok(())
            }
            "ls" => show(Report::Programs),
            "ps" => show(Report::Processes),
            "scheme" => show(Report::Machine),
            "run" => shell.begin(rest),
            "kill" => match rest.parse() {
                Ok(pid) => kill(Pid(pid)),
                Err(_) => Err(Errno::Invalid),
            },
            "vmstat" => shell.vmstat(),
            "top" => shell.top(rest.parse().unwrap_or(5)),
            _ => {
                say!("{command}: expected one of the commands that help shows\n");
                Ok(())
            }
        };
        if let Err(why) = done {
            say!("{command}: {why}\n");
        }
    }
}

fn show(which: Report) -> Result<(), Errno> {
    say!("{}", report(which)?);
    Ok(())
}

/// What is typed.
struct Typed {
    line: String,
    /// The last was a return: a newline behind it is part of it.
    skips_newline: bool,
}

impl Typed {
    /// Waits for a line.
    fn line(&mut self) -> Result<String, Errno> {
        const BACKSPACE: [u8; 2] = [8, 127];
        self.line.clear();
        loop {
            let mut byte = [0];
            if input(&mut byte)? == 0 {
                continue;
            }
            match byte[0] {
                b'\n' if self.skips_newline => self.skips_newline = false,
                end @ (b'\r' | b'\n') => {
                    self.skips_newline = end == b'\r';
                    say!("\n");
                    return Ok(core::mem::take(&mut self.line));
                }
                byte if BACKSPACE.contains(&byte) => {
                    say!("{}", self.line.pop().map_or("", |_| "\x08 \x08"));
                }
                byte @ b' '..=b'~' if self.line.len() < 256 => {
                    self.line.push(byte.into());
                    say!("{}", char::from(byte));
                }
                _ => {}
            }
        }
    }
}

struct Shell {
    typed: Typed,
    /// Counters when they were shown last.
    last: BTreeMap<String, u64>,
}

impl Shell {
    fn begin(&mut self, rest: &str) -> Result<(), Errno> {
        let (rest, waits) = match rest.strip_suffix('&') {
            Some(rest) => (rest.trim_end(), false),
            None => (rest, true),
        };
        let (name, line) = rest.split_once(' ').unwrap_or((rest, ""));
        // The small programs are one image.
        let programs = report(Report::Programs)?;
        let has = |name: &str| programs.lines().any(|other| other == name);
        let pid = if has(name) { spawn(name, line) } else { spawn("micro", rest) }?;
        // Those that were begun before may end first.
        while waits && wait()? != pid {}
        Ok(())
    }

    /// What was counted since the last time.
    fn changes(&mut self) -> Result<BTreeMap<String, u64>, Errno> {
        let text = report(Report::Counters)?;
        let counters: BTreeMap<String, u64> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, value)| Some((name.to_string(), value.parse().ok()?)))
            .collect();
        let last = core::mem::replace(&mut self.last, counters);
        let change = |(name, now): (&String, &u64)| {
            let before = last.get(name).copied().unwrap_or(0);
            (name.clone(), now - before)
        };
        Ok(self.last.iter().map(change).collect())
    }

    fn vmstat(&mut self) -> Result<(), Errno> {
        for (name, count) in self.changes()?.iter().filter(|(_, count)| **count > 0) {
            say!("{name:<24} {count:>10}\n");
        }
        Ok(())
    }

    fn top(&mut self, seconds: u64) -> Result<(), Errno> {
        self.changes()?;
        say!("{:>8} {:>8} {:>12}   a second\n", "pages", "spaces", "shootdowns");
        for _ in 0..seconds.min(3600) {
            sleep(1000)?;
            let changes = self.changes()?;
            let [pages, spaces, shootdowns] =
                INVALIDATIONS.map(|name| changes.get(name).copied().unwrap_or(0));
            say!("{pages:>8} {spaces:>8} {shootdowns:>12}\n");
        }
        Ok(())
    }
}
