//! Streams of a package through the caches of a machine, run by run ([`super::run`]): the other packages are asked
//! before each.

use super::Caches;
use super::access::{Kind, PageAccess};
use super::level::SnoopMask;
use super::run::all_of;

impl Caches {
    /// As [`Caches::access_in`], to so many lines from that of `pa` on, one after the other. Gives the cost of all.
    pub fn stream_in(&mut self, page: PageAccess, pa: u64, lines: usize, write: bool) -> u64 {
        if page.near != 0 {
            let access =
                |i| u64::from(self.access_in(page, pa + (i << self.line_shift), write, Kind::Stream));
            return (0..lines as u64).map(access).sum();
        }
        let (mut line, mut left, mut cycles) = (pa >> self.line_shift, lines, 0);
        while left > 0 {
            let count = left.min(self.run_lines - (line as usize & (self.run_lines - 1)));
            let elsewhere = self.ask_run(page, line, count, write);
            let package = &mut self.packages[page.package];
            cycles +=
                package.run(&self.memory, &mut self.runs[0], (line, page.skew), count, (write, elsewhere));
            cycles += self.memory.serve(&[(&self.runs[0], line)], count);
            (line, left) = (line + count as u64, left - count);
        }
        cycles
    }

    /// A copy of so many lines, from that of `from` on to that of `to` on, each loaded and then stored. Gives the cost
    /// of all.
    pub fn copy_in(
        &mut self,
        (source, from): (PageAccess, u64),
        (target, to): (PageAccess, u64),
        lines: usize,
    ) -> u64 {
        let line_bytes = self.line_bytes() as u64;
        let (mut load, mut store) = (from >> self.line_shift, to >> self.line_shift);
        let apart = (load ^ store) as usize & (self.run_lines - 1) != 0;
        if apart || source.package != target.package || source.near | target.near != 0 {
            let access = |i| {
                let load = self.access_in(source, from + i * line_bytes, false, Kind::Stream);
                u64::from(load) + u64::from(self.access_in(target, to + i * line_bytes, true, Kind::Stream))
            };
            return (0..lines as u64).map(access).sum();
        }
        let (mut left, mut cycles) = (lines, 0);
        while left > 0 {
            let count = left.min(self.run_lines - (load as usize & (self.run_lines - 1)));
            let elsewhere = self.ask_run(source, load, count, false);
            let package = &mut self.packages[source.package];
            cycles +=
                package.run(&self.memory, &mut self.runs[0], (load, source.skew), count, (false, elsewhere));
            let elsewhere = self.ask_run(target, store, count, true);
            let package = &mut self.packages[source.package];
            cycles +=
                package.run(&self.memory, &mut self.runs[1], (store, target.skew), count, (true, elsewhere));
            let [loads, stores] = &*self.runs;
            cycles += self.memory.serve(&[(loads, load), (stores, store)], count);
            (load, store, left) = (load + count as u64, store + count as u64, left - count);
        }
        cycles
    }

    /// So many lines of a stream cost no more than this.
    #[inline]
    pub fn at_most(&self, page: PageAccess, lines: usize) -> u64 {
        let asking = if page.others == 0 { 0 } else { self.memory.max_asking_cycles() };
        let asking = asking + if page.near == 0 { 0 } else { self.complexes.max_asking_cycles() };
        (self.max_cycles + asking) * lines as u64
    }

    /// Asks the other packages that may hold some of `count` lines from `line` on: for stores they lose them, for loads
    /// they keep clean copies. Gives what they had.
    #[inline]
    fn ask_run(&mut self, page: PageAccess, line: u64, count: usize, write: bool) -> SnoopMask {
        let mut had = SnoopMask::default();
        let mut left = page.others;
        while left != 0 {
            let other = &mut self.packages[left.trailing_zeros() as usize];
            left &= left - 1;
            let SnoopMask { any, dirty } = other.give(line, all_of(count), write);
            had = SnoopMask { any: had.any | any, dirty: had.dirty | dirty };
        }
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MachineConfig;
    use pageferry_hal::PAGE_SIZE;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Stream { package: usize, page: u64, skip: usize, lines: usize, write: bool },
        Copy { package: usize, from: (u64, usize), to: (u64, usize), lines: usize },
        Single { package: usize, page: u64, line: usize, write: bool },
        Fetch { package: usize, page: u64, line: usize, lines: usize },
        Flush { page: u64, line: usize },
    }

    /// Pages a multiple of all ways apart, so that they compete for sets, and some neighbours.
    fn page() -> impl Strategy<Value = u64> {
        (0..20u64, 0..2u64).prop_map(|(far, near)| far * 512 + near)
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let package = || prop_oneof![3 => Just(0usize), 1 => Just(1)];
        let step = prop_oneof![
            6 => (package(), page(), 0..256usize, 1..257usize, any::<bool>()).prop_map(
                |(package, page, skip, lines, write)| Step::Stream { package, page, skip, lines, write }
            ),
            6 => (package(), (page(), 0..256usize), (page(), 0..256usize), any::<bool>(), 1..257usize).prop_map(
                |(package, from, to, aligned, lines)| {
                    Step::Copy { package, from, to: if aligned { (to.0, from.1) } else { to }, lines }
                }
            ),
            1 => (package(), page(), 0..256usize, any::<bool>())
                .prop_map(|(package, page, line, write)| Step::Single { package, page, line, write }),
            1 => (package(), page(), 0..256usize, 1..40usize)
                .prop_map(|(package, page, line, lines)| Step::Fetch { package, page, line, lines }),
            1 => (page(), 0..256usize).prop_map(|(page, line)| Step::Flush { page, line }),
        ];
        proptest::collection::vec(step, 1..120)
    }

    impl Step {
        /// Makes the step, by runs or line by line. Gives the cost, after checking that it is no more than was said.
        fn make(self, caches: &mut Caches, by_runs: bool) -> u64 {
            let line_bytes = caches.line_bytes();
            let in_page = PAGE_SIZE / line_bytes;
            let at = |page: u64, line: usize| page * PAGE_SIZE as u64 + (line % in_page * line_bytes) as u64;
            let packages = caches.packages.len();
            // Whatever it is: the same on both sides, and any with any page.
            let colour =
                |page: u64, line: usize| (page as usize / 512 + line) as u32 % caches.colours.count();
            match self {
                Step::Stream { package, page, skip, lines, write } => {
                    let (pa, lines) = (at(page, skip), lines.min(in_page - skip % in_page));
                    let page = caches.enter_by(package % packages, pa, colour(page, skip));
                    if !by_runs {
                        let access =
                            |i| caches.access_in(page, pa + (i * line_bytes) as u64, write, Kind::Stream);
                        return (0..lines).map(access).map(u64::from).sum();
                    }
                    let max = caches.at_most(page, lines);
                    let cost = caches.stream_in(page, pa, lines, write);
                    assert!(cost <= max, "{cost} is more than {max}");
                    cost
                }
                Step::Copy { package, from, to, lines } => {
                    let lines = lines.min(in_page - from.1 % in_page).min(in_page - to.1 % in_page);
                    let colours = (colour(from.0, to.1), colour(to.0, from.1));
                    let (from, to) = (at(from.0, from.1), at(to.0, to.1));
                    let source = caches.enter_by(package % packages, from, colours.0);
                    let target = caches.enter_by(package % packages, to, colours.1);
                    if by_runs {
                        return caches.copy_in((source, from), (target, to), lines);
                    }
                    let copy = |i| {
                        let on = (i * line_bytes) as u64;
                        let load = caches.access_in(source, from + on, false, Kind::Stream);
                        u64::from(load) + u64::from(caches.access_in(target, to + on, true, Kind::Stream))
                    };
                    (0..lines).map(copy).sum()
                }
                Step::Single { package, page, line, write } => {
                    let (pa, colour) = (at(page, line), colour(page, line));
                    u64::from(caches.access_by(package % packages, pa, colour, write, Kind::Latency))
                }
                Step::Fetch { package, page, line, lines } => {
                    let (mut left, mut pa) = (lines.min(in_page - line % in_page), at(page, line));
                    let mut cost = 0;
                    while left > 0 {
                        let asked = if by_runs { left } else { 1 };
                        let Some(got) = caches.fetch_lines(package % packages, pa, pa, asked) else { break };
                        let through = got.hits + usize::from(got.missed.is_some());
                        cost += u64::from(got.missed.unwrap_or(0));
                        (left, pa) = (left - through, pa + (through * line_bytes) as u64);
                    }
                    cost
                }
                Step::Flush { page, line } => {
                    caches.flush_line(at(page, line));
                    0
                }
            }
        }
    }

    /// The machine, with a first level that writes through to a second one.
    fn through(mut machine: MachineConfig) -> MachineConfig {
        let mut second = machine.cache[0].clone();
        machine.cache[0].write_policy.value = crate::config::WritePolicy::Through;
        (second.name, second.virtual_index, second.purge_line_cycles) = ("L2".into(), None, None);
        second.size_bytes.value *= 4;
        second.stream_load_cycles.value += 7;
        machine.cache.push(second);
        machine
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn by_the_colour_of_its_frame_a_line_is_where_physical_addresses_have_it(steps in steps()) {
            let machine = MachineConfig::named("sh7751r").expect("it is built in");
            let mut physical = machine.clone();
            (physical.cache[0].virtual_index, physical.cache[0].purge_line_cycles) = (None, None);
            let (mut one, mut other) = (Caches::new(&physical), Caches::new(&machine));
            for step in steps {
                if let Step::Single { page, line, write, .. } = step {
                    let pa = page * PAGE_SIZE as u64 + line as u64 % 128 * 32;
                    let look = |caches: &mut Caches| caches.access(0, pa, write, Kind::Latency);
                    prop_assert_eq!(look(&mut one), look(&mut other));
                }
            }
            prop_assert_eq!(one.stats(), other.stats());
        }

        #[test]
        fn runs_do_what_line_by_line_is_done(steps in steps()) {
            let names = [
                "486", "pentium", "pentium-pro", "pentium-iii", "xeon-mp", "opteron-mp", "today", "sh7751r",
                "ultrasparc-iie", "alpha-21264", "itanium2",
            ];
            let named = |name| MachineConfig::named(name).expect("it is built in");
            for machine in names.map(named).into_iter().chain([through(named("sh7751r"))]) {
                let name = &machine.name;
                let (mut lines, mut runs) = (Caches::new(&machine), Caches::new(&machine));
                for (i, step) in steps.iter().enumerate() {
                    prop_assert_eq!(step.make(&mut lines, false), step.make(&mut runs, true), "step {} on {}", i, name);
                }
                prop_assert_eq!(lines.stats(), runs.stats());
                prop_assert_eq!(runs.check(), Ok(()));
                for page in steps.iter().enumerate().map(|(i, _)| i as u64 * 512) {
                    let look = |caches: &mut Caches| caches.access(0, page, true, Kind::Stream);
                    prop_assert_eq!(look(&mut lines), look(&mut runs));
                }
            }
        }
    }
}
