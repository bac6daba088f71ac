//! Accesses in a complex ([`super::complex`]): the shared level changes hands, and the packages of the complex are
//! asked before it answers.

use super::Caches;
use super::access::{Kind, PageAccess};
use super::complex::Complexes;
use super::level::{DIRTY, UNIQUE};
use super::memory::Snoop;
use super::package::Package;
use crate::config::MachineConfig;

impl Caches {
    /// The packages of a machine, empty.
    pub(super) fn empty_packages(
        machine: &MachineConfig,
        complexes: &Complexes,
        package: Package,
    ) -> Vec<Package> {
        let count = machine.cpu.packages.value as usize;
        if !complexes.exist() {
            return vec![package; count];
        }
        let without = package.without_last(machine);
        (0..count).map(|i| if complexes.begins_with(i) { package.clone() } else { without.clone() }).collect()
    }

    /// A package is about to access a page of which `others` may hold lines: it gets the shared level of its complex.
    #[cold]
    pub(super) fn enter_complex(&mut self, package: usize, others: u64, skew: u64) -> PageAccess {
        let had = self.complexes.hand_to(package);
        if had != package {
            let [from, to] = self.packages.get_disjoint_mut([had, package]).expect("two packages");
            let last = to.banks.len() - 1;
            std::mem::swap(&mut from.banks[last], &mut to.banks[last]);
            (from.here, to.here) = (last, last + 1);
        }
        let own = self.complexes.mask(package);
        let far = others & !own;
        PageAccess { package, others: far | self.complexes.sharing(far), near: others & own, skew }
    }

    /// Asks the other packages of the complex for a line: for a store they lose it, for a load they keep clean copies.
    fn ask_near(&mut self, near: u64, line: u64, write: bool) -> Snoop {
        match write {
            true => self.ask(near, |other| other.take_away(line)),
            false => self.ask(near, |other| other.share_near(line)),
        }
    }

    /// The shared level gets what a package of the complex had newer: or memory does, if it did not stay there.
    fn shared_has_newest(&mut self, package: usize, line: u64) {
        let package = &mut self.packages[package];
        match package.banks.last_mut().and_then(|bank| bank.level.peek(line)) {
            Some(entry) => *entry |= DIRTY | UNIQUE,
            None => package.counts.memory_writebacks += 1,
        }
    }

    /// As [`Caches::bring`](super::Caches), in a complex, where a hit at the level costs `hit`.
    #[cold]
    pub(super) fn bring_in_complex(
        &mut self,
        page: PageAccess,
        line: u64,
        ((at, flags), hit): ((usize, u32), u32),
        write: bool,
        kind: Kind,
    ) -> u32 {
        let last = self.packages[page.package].banks.len() - 1;
        let costs = self.complexes.costs(kind);
        let (mut more, mut flags) = (0, flags);
        let mut must_ask_far = write && flags & UNIQUE == 0 && page.others != 0;
        let is_upgrade = write && flags & UNIQUE == 0;
        if at == last {
            match self.ask_near(page.near, line, write) {
                Snoop::Absent => {}
                Snoop::Clean => {
                    more = if write { costs.upgrade.saturating_sub(hit) } else { 0 };
                    flags &= !UNIQUE;
                }
                // No other complex has it.
                Snoop::Dirty => {
                    self.packages[page.package].counts.near_transfers += 1;
                    more = costs.transfer.saturating_sub(hit);
                    (flags, must_ask_far) = (0, false);
                    if !write {
                        self.shared_has_newest(page.package, line);
                    }
                }
            }
        } else if is_upgrade {
            let near = self.ask_near(page.near, line, true);
            assert!(near != Snoop::Dirty, "line {line:#x} is dirty in a package while another holds a copy");
            let shared = self.packages[page.package].banks[last].level.peek(line);
            must_ask_far &= shared.is_none_or(|entry| *entry & UNIQUE == 0);
            if !must_ask_far {
                self.packages[page.package].counts.upgrades += 1;
                more = costs.upgrade;
            }
        }
        if must_ask_far {
            more += self.upgrade(page, line, kind);
        }
        let package = &mut self.packages[page.package];
        more + package.bring(&mut self.memory, (line, page.skew), (at, flags), write, kind)
    }

    /// Gets a line that neither a level of the package nor the shared one has from another package of the complex.
    /// `None` where none has it either.
    #[cold]
    pub(super) fn fetch_near(&mut self, page: PageAccess, line: u64, write: bool, kind: Kind) -> Option<u32> {
        let near = self.ask_near(page.near, line, write);
        if near == Snoop::Absent {
            return None;
        }
        // That it is clean may be so because another complex has it, too.
        let is_far = write && near == Snoop::Clean && page.others != 0;
        let asked = if is_far { self.upgrade(page, line, kind) } else { 0 };
        let package = &mut self.packages[page.package];
        package.counts.transfers += 1;
        package.counts.near_transfers += 1;
        let flags = if write { DIRTY | UNIQUE } else { 0 };
        let (from, depth) = (if write { package.first_back } else { 0 }, package.banks.len());
        let filled = package.fill(&mut self.memory, (line, page.skew), (from, depth), flags, kind);
        if !write && near == Snoop::Dirty {
            self.shared_has_newest(page.package, line);
        }
        Some(asked + self.complexes.costs(kind).transfer + filled)
    }
}
