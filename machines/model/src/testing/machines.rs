//! Machines of tests, by name.
//!
//! A name is that of a machine file, then what the kernel chooses, then how many packages of CPUs there are, of which
//! the last two may be left out: `ppc603`, `mini-soft:4`, `ppc603+renew:2`. What the choices mean is the kernel's
//! business.

use crate::config::MachineConfig;
use crate::machine::Model;
use pageferry_sourced::Sourced;
use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    /// Machines that were read already, by name: many small machines are booted.
    static READ: RefCell<BTreeMap<String, MachineConfig>> = const { RefCell::new(BTreeMap::new()) };
}

/// The machine called `name`, with little memory: booting is most of a short test's time.
///
/// # Panics
/// When there is no such machine, or the number of CPUs is none.
pub fn small(name: &str, memory_mb: u64) -> MachineConfig {
    let known = READ.with_borrow(|read| read.get(name).cloned());
    let mut config = known.unwrap_or_else(|| {
        let config = read(name);
        READ.with_borrow_mut(|read| read.insert(name.into(), config.clone()));
        config
    });
    config.memory.size_mb =
        Sourced::assumed(memory_mb, "a small machine is checked sooner, and exhausted sooner");
    config
}

fn read(name: &str) -> MachineConfig {
    let (kind, cpus) = split(name);
    let file = kind.split('+').next().unwrap_or_default();
    let mut config = MachineConfig::named(file).unwrap_or_else(|e| panic!("{e}"));
    if let Some(cpus) = cpus {
        let cpus =
            cpus.parse().unwrap_or_else(|_| panic!("{name}: expected a number of CPUs behind the colon"));
        config.cpu.packages = Sourced::assumed(cpus, "as many as its name says");
        if cpus > 1 {
            // No machine with several CPUs has pages with colours.
            (config.cache[0].virtual_index, config.cache[0].purge_line_cycles) = (None, None);
        }
    }
    config
}

/// What is before the number of CPUs, and that number.
fn split(name: &str) -> (&str, Option<&str>) {
    name.split_once(':').map_or((name, None), |(kind, cpus)| (kind, Some(cpus)))
}

/// What the kernel on the machine called `name` chooses.
pub fn choices(name: &str) -> impl Iterator<Item = &str> {
    split(name).0.split('+').skip(1)
}

/// `PAGEFERRY_MACHINE`: the kind of machine that tests are to run on instead of those that they name.
pub fn other_kind() -> Option<String> {
    std::env::var("PAGEFERRY_MACHINE").ok()
}

/// The machine called `name`; or, where tests are to run on another kind, that one with as many CPUs.
///
/// # Panics
/// As [`small`].
pub fn or_other_kind(name: &str) -> String {
    match other_kind() {
        Some(kind) => format!("{kind}:{}", small(name, 1).cpus()),
        None => name.into(),
    }
}

/// Ends a test of a machine that has come to its end.
///
/// # Panics
/// When a law of the machine does not hold, when its accounts do not balance, or when a stale translation was used.
#[track_caller]
pub fn assert_sound(m: &Model, what: &str) {
    m.check().unwrap_or_else(|law| panic!("{what}: a law of the machine does not hold: {law}"));
    m.snapshot().check().unwrap_or_else(|law| panic!("{what}: the accounts do not balance: {law}"));
    assert_eq!(m.stale_uses(), [], "{what}: a stale translation was used");
}
