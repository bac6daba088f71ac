//! The small programs that measure a kernel, in ring 3: the same source as on a modelled machine.
//!
//! The line is a program's name and its parameters. What lies in memory is looked at by loads of the process itself.
//! The status is 0 if no byte was wrong; what a child finds wrong it says itself.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::rc::Rc;
use core::cell::Cell;
use pageferry_abi::call::Report;
use pageferry_hal::Va;
use pageferry_user::{Ring3, exit, main, mark, report, say};
use pageferry_workloads::Os as _;
use pageferry_workloads::checked::{Checked, Onlooker};

main!(run);

fn run(line: &str) -> u64 {
    let program = match Checked::parse(line, cpus()) {
        Ok(program) => program,
        Err(bad) => {
            say!("micro: {bad}\n");
            return 2;
        }
    };
    let wrong = Rc::new(Cell::new(0));
    let right = Rc::new(Cell::new(0));
    let ended = program.run(&Ring3, Looker { right: right.clone(), wrong: wrong.clone() });
    if let Err((what, errno)) = ended {
        say!("micro: {what}: {errno}\n");
        return 1;
    }
    say!("micro: {} bytes right, {} wrong\n", right.get(), wrong.get());
    u64::from(wrong.get() > 0)
}

/// How many CPUs there are.
fn cpus() -> usize {
    let text = report(Report::Machine).unwrap_or_default();
    let cpus = text.lines().find_map(|line| line.strip_prefix("cpus "));
    cpus.and_then(|cpus| cpus.parse().ok()).unwrap_or(1)
}

/// Looks by loads and stores. A child has a copy: what it finds wrong ends it, and its peer falls short.
struct Looker {
    right: Rc<Cell<u64>>,
    wrong: Rc<Cell<u64>>,
}

impl Onlooker for Looker {
    fn load(&self, from: Va, bytes: &mut [u8]) -> bool {
        Ring3.load(from, bytes);
        true
    }

    fn store(&self, at: Va, bytes: &[u8]) -> bool {
        Ring3.store(at, bytes);
        true
    }

    fn compares(&self, found: &[u8], expected: &[u8]) {
        let wrong = found.iter().zip(expected).filter(|(found, expected)| found != expected).count() as u64;
        self.right.set(self.right.get() + found.len() as u64 - wrong);
        self.wrong.set(self.wrong.get() + wrong);
        if wrong > 0 {
            say!("micro: {wrong} of {} bytes are wrong\n", found.len());
            exit(1);
        }
    }

    fn falls_short(&self) {
        say!("micro: less came than was sent\n");
        exit(1);
    }

    fn begins(&self) {
        mark(false);
    }

    fn ends(&self) {
        mark(true);
    }
}
