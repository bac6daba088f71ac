//! The locks of a kernel: `[locks]` of its file.
//!
//! The code that runs is this project's, with its own locks. What a run charges for them is what the kernel that is
//! modelled has in their places: a lock that releases by a store, none at all, or a locked instruction where it counts
//! references. Each is counted in that kernel's source. Nothing of this changes what excludes what.

use super::words::LoanLockingName;
use pageferry_hal::{CodePath, LockClass, LockCosts, LockSet};
use pageferry_kernel::{KernelConfig, NetPaths, lock_classes};
use pageferry_sourced::{Fault, Sourced, nearest};
use pageferry_vm::LoanLocking;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Locks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocksFile {
    /// They are compiled in where there is one CPU, too, and cost their instructions.
    pub on_one_cpu: Sourced<bool>,
    /// Releasing one is a locked instruction, as taking it is; it is if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_is_locked: Option<Sourced<bool>>,
    /// Classes of locks that the kernel does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<Sourced<Vec<String>>>,
    /// How loans between objects and anons are locked: with one lock, in one step, if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loans: Option<Sourced<LoanLockingName>>,
    /// Locked instructions beside those of locks, by the path that they are on: `kernel.soreceive`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub on_path: BTreeMap<String, BTreeMap<String, Sourced<u32>>>,
}

/// The floors whose paths can have locked instructions, as in `[paths]`, and the names of these paths.
const FLOORS: [(&str, &[&str]); 6] = [
    ("kernel", pageferry_kernel::KernelPaths::NAMES),
    ("disk", pageferry_kernel::DiskPaths::NAMES),
    ("vm", pageferry_vm::VmPaths::NAMES),
    ("pmap", pageferry_pmap::PmapPaths::NAMES),
    ("ephemeral", pageferry_ephemeral::EphemeralPaths::NAMES),
    ("net", NetPaths::NAMES),
];

impl LocksFile {
    /// What a file that has this table, or none, says of loans.
    pub(super) fn loans(table: Option<&LocksFile>) -> LoanLocking {
        table.and_then(|locks| locks.loans.as_ref()).map_or(LoanLocking::OneStep, |loans| loans.value.into())
    }

    /// What the kernel's locks are.
    pub(super) fn costs(&self) -> LockCosts {
        let absent = self.absent.iter().flat_map(|absent| &absent.value);
        LockCosts {
            on_one_cpu: self.on_one_cpu.value,
            release_is_locked: self.release_is_locked.as_ref().is_none_or(|is_locked| is_locked.value),
            absent: absent.filter_map(|name| class(name)).fold(LockSet::EMPTY, LockSet::with),
        }
    }

    /// Refuses classes and paths that there are none of.
    pub(super) fn validate(&self) -> Result<(), Fault> {
        for name in self.absent.iter().flat_map(|absent| &absent.value) {
            if class(name).is_none() {
                let classes: Vec<_> = lock_classes().map(LockClass::name).collect();
                return unknown("locks.absent".into(), "class of locks", name, &classes);
            }
        }
        for (floor, paths) in &self.on_path {
            let Some((_, names)) = FLOORS.iter().find(|(name, _)| name == floor) else {
                let floors = FLOORS.map(|(name, _)| name);
                return unknown(format!("locks.on_path.{floor}"), "floor", floor, &floors);
            };
            if let Some(name) = paths.keys().find(|name| !names.contains(&name.as_str())) {
                return unknown(format!("locks.on_path.{floor}.{name}"), "path", name, names);
            }
        }
        Ok(())
    }

    /// Counts the locked instructions in the paths of `config`.
    pub(crate) fn count_in(&self, config: &mut KernelConfig) {
        for (floor, name, locked) in self.on_path.iter().flat_map(|(floor, paths)| {
            paths.iter().map(move |(name, locked)| (floor.as_str(), name.as_str(), locked.value))
        }) {
            let path: Option<&mut CodePath> = match floor {
                "kernel" => config.paths.named_mut(name),
                "disk" => config.disk.paths.named_mut(name),
                "vm" => config.vm.paths.named_mut(name),
                "pmap" => config.pmap.paths.named_mut(name),
                "ephemeral" => config.ephemeral.paths.named_mut(name),
                // A run without a network has none of its paths.
                _ => config.net.as_mut().and_then(|net| net.paths.named_mut(name)),
            };
            if let Some(path) = path {
                path.locked = locked;
            }
        }
    }
}

fn class(name: &str) -> Option<LockClass> {
    lock_classes().find(|class| class.name() == name)
}

fn unknown(key: String, kind: &str, name: &str, valid: &[&'static str]) -> Result<(), Fault> {
    let suggestion = nearest(name, valid.iter().copied()).map(str::to_owned);
    Err(Fault {
        key,
        problem: format!("`{name}` is no {kind}; expected one of {}", valid.join(", ")),
        suggestion,
    })
}

#[cfg(test)]
mod tests {
    use crate::files::KernelChoice;

    fn linux() -> crate::files::KernelFile {
        KernelChoice::find("linux-2.6").expect("built in").file
    }

    #[test]
    fn unknown_classes_and_paths_get_the_nearest() {
        let mut file = linux();
        let locks = file.locks.as_mut().expect("it says what its locks are");
        locks.absent.as_mut().expect("it lacks some").value.push("Mbufs".into());
        let fault = file.validate().expect_err("no such class");
        assert_eq!((fault.key.as_str(), fault.suggestion.as_deref()), ("locks.absent", Some("Mbuf")));

        for (floor, name, key, near) in [
            ("kernal", "soreceive", "locks.on_path.kernal", "kernel"),
            ("kernel", "sorecieve", "locks.on_path.kernel.sorecieve", "soreceive"),
        ] {
            let mut file = linux();
            let locks = file.locks.as_mut().expect("it says what its locks are");
            let one = locks.on_path["net"]["tcp_input"].clone();
            locks.on_path.entry(floor.into()).or_default().insert(name.into(), one);
            let fault = file.validate().expect_err("no such path");
            assert_eq!((fault.key.as_str(), fault.suggestion.as_deref()), (key, Some(near)));
        }
    }

    #[test]
    fn every_path_that_is_named_is_counted() {
        let file = linux();
        let machine = pageferry_model::MachineConfig::named("p4-flip").expect("built in");
        let mut config = file.config(&machine, 0);
        let net = file.net.as_ref().expect("it has one");
        config.net = Some(net.config(2400, std::net::Ipv4Addr::LOCALHOST, 24));
        let locks = file.locks.as_ref().expect("it says what its locks are");
        locks.count_in(&mut config);
        let mut counted = 0;
        let mut visit = |path: &mut pageferry_hal::CodePath| counted += path.locked;
        config.paths.each_mut(&mut visit);
        config.disk.paths.each_mut(&mut visit);
        config.vm.paths.each_mut(&mut visit);
        config.pmap.paths.each_mut(&mut visit);
        config.ephemeral.paths.each_mut(&mut visit);
        config.net.as_mut().expect("just set").paths.each_mut(&mut visit);
        let said: u32 =
            locks.on_path.values().flat_map(|paths| paths.values()).map(|locked| locked.value).sum();
        assert_eq!(counted, said);
    }
}
