//! What the caches go through after power-on, done once for all machines that go through the same.
//!
//! A kernel that boots clears thousands of page-table frames, line by line and always the same ones. The caches depend
//! on nothing but the accesses made so far: so the first machine of a kind notes down its accesses, what each cost, and
//! the state after the last one; later ones only compare, as long as they make the same accesses, and then go on from a
//! copy of that state. One that makes another access goes through what it made so far by itself. Costs and states are
//! the same either way.
//!
//! Notes end with the first access that is neither a single one nor a page that is cleared. They are kept for the
//! process, a few at a time, and none of machines with many packages, whose states are large.

use super::{Caches, Kind};
use crate::config::MachineConfig;
use pageferry_hal::PAGE_SIZE;
use std::sync::{Arc, Mutex, PoisonError};

/// An access of the time after power-on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// A dependent access to a line.
    Access { package: u32, pa: u64, colour: u32, write: bool },
    /// All lines of a page are stored to, one after the other.
    ClearPage { package: u32, pa: u64 },
}

/// The notes of one machine.
#[derive(Debug)]
struct Notes {
    /// What its caches and memory are like.
    kind: String,
    /// Its accesses, and what each cost.
    steps: Vec<(Step, u64)>,
    /// The state after the last.
    after: Caches,
}

/// Machines with more packages than this note nothing down.
const MAX_PACKAGES: usize = 4;
/// So many notes are kept, those used last.
const MAX_NOTES: usize = 12;
/// A machine that notes down more than this does not boot as others do.
const MAX_STEPS: usize = 1 << 18;

static NOTES: Mutex<Vec<Arc<Notes>>> = Mutex::new(Vec::new());

/// The caches of a machine that was just switched on.
#[derive(Debug)]
pub(crate) struct PoweredOn {
    kind: Option<String>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The caches do what they are told.
    Live(Box<Caches>),
    /// They do, and it is noted down.
    Noting(Box<Caches>, Vec<(Step, u64)>),
    /// So many steps were the same as these.
    Comparing { notes: Arc<Notes>, done: usize, empty: Box<Caches> },
}

impl Step {
    fn make(self, caches: &mut Caches) -> u64 {
        match self {
            Step::Access { package, pa, colour, write } => {
                u64::from(caches.access_by(package as usize, pa, colour, write, Kind::Latency))
            }
            Step::ClearPage { package, pa } => {
                let page = caches.enter(package as usize, pa);
                caches.stream_in(page, pa, PAGE_SIZE / caches.line_bytes(), true)
            }
        }
    }
}

impl PoweredOn {
    /// The empty caches of a valid machine.
    pub(crate) fn new(machine: &MachineConfig) -> PoweredOn {
        let empty = Box::new(Caches::of_valid(machine));
        if machine.cpu.packages.value as usize > MAX_PACKAGES {
            return PoweredOn { kind: None, state: State::Live(empty) };
        }
        let cpu = (machine.cpu.packages.value, machine.cpu.clock_mhz.value);
        let kind = format!("{:?}", (cpu, &machine.cache, &machine.complex, &machine.icache, &machine.memory));
        let state = match matching(&kind, &[], None) {
            Some(notes) => State::Comparing { notes, done: 0, empty },
            None => State::Noting(empty, Vec::new()),
        };
        PoweredOn { kind: Some(kind), state }
    }

    /// A dependent access of a CPU of `package`, where pages have no colours; its cost.
    #[inline(always)]
    pub(crate) fn access(&mut self, package: usize, pa: u64, write: bool) -> u64 {
        match &mut self.state {
            State::Live(caches) => u64::from(caches.access(package, pa, write, Kind::Latency)),
            _ => self.step(Step::Access { package: package as u32, pa, colour: 0, write }),
        }
    }

    /// As [`PoweredOn::access`], by an address of a colour.
    pub(crate) fn access_by(&mut self, package: usize, pa: u64, colour: u32, write: bool) -> u64 {
        match &mut self.state {
            State::Live(caches) => u64::from(caches.access_by(package, pa, colour, write, Kind::Latency)),
            _ => self.step(Step::Access { package: package as u32, pa, colour, write }),
        }
    }

    /// A CPU of `package` clears the page at `pa`; the cost.
    pub(crate) fn clear_page(&mut self, package: usize, pa: u64) -> u64 {
        self.step(Step::ClearPage { package: package as u32, pa })
    }

    /// The caches, for whatever else is done with them.
    #[inline(always)]
    pub(crate) fn live(&mut self) -> &mut Caches {
        if !matches!(self.state, State::Live(_)) {
            self.go_live();
        }
        let State::Live(caches) = &mut self.state else { unreachable!("they just became so") };
        caches
    }

    /// See [`Caches::check`].
    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.state {
            State::Live(caches) | State::Noting(caches, _) => caches.check(),
            State::Comparing { notes, done, empty } => so_far(notes, *done, empty.clone()).check(),
        }
    }

    #[inline(never)]
    fn step(&mut self, step: Step) -> u64 {
        match &mut self.state {
            State::Live(caches) => step.make(caches),
            State::Noting(caches, steps) => {
                let cost = step.make(caches);
                steps.push((step, cost));
                if steps.len() == MAX_STEPS {
                    self.kind = None;
                    self.go_live();
                }
                cost
            }
            State::Comparing { notes, done, .. } => match notes.steps.get(*done) {
                Some(&(noted, cost)) if noted == step => {
                    *done += 1;
                    cost
                }
                _ => self.depart(step),
            },
        }
    }

    /// Makes a step that the notes do not have: others may, or new ones are begun.
    #[cold]
    fn depart(&mut self, step: Step) -> u64 {
        let State::Comparing { notes, done, empty } = &mut self.state else {
            unreachable!("notes are compared")
        };
        let kind = self.kind.as_deref().expect("a machine that compares has a kind");
        if let Some(other) = matching(kind, &notes.steps[..*done], Some(step)) {
            *notes = other;
        } else {
            let steps = notes.steps[..*done].to_vec();
            self.state = State::Noting(so_far(notes, *done, std::mem::take(empty)), steps);
        }
        self.step(step)
    }

    #[cold]
    fn go_live(&mut self) {
        // Whatever is left for a moment is replaced below.
        let state = std::mem::replace(&mut self.state, State::Live(Box::default()));
        let caches = match state {
            State::Live(caches) => caches,
            State::Noting(caches, steps) => {
                if let Some(kind) = self.kind.take() {
                    keep(Notes { kind, steps, after: (*caches).clone() });
                }
                caches
            }
            State::Comparing { notes, done, empty } => so_far(&notes, done, empty),
        };
        self.state = State::Live(caches);
    }
}

/// The caches after so many steps of `notes`; `empty` is what they began with.
fn so_far(notes: &Notes, done: usize, mut empty: Box<Caches>) -> Box<Caches> {
    if done == notes.steps.len() {
        (*empty).clone_from(&notes.after);
    } else {
        for (step, cost) in &notes.steps[..done] {
            assert_eq!(step.make(&mut empty), *cost, "equal steps cost the same");
        }
    }
    empty
}

/// Notes of machines of this kind that begin with these steps and go on with `next`.
fn matching(kind: &str, begin: &[(Step, u64)], next: Option<Step>) -> Option<Arc<Notes>> {
    let mut all = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    let goes_on = |notes: &Notes| {
        next.is_none_or(|next| notes.steps.get(begin.len()).is_some_and(|(step, _)| *step == next))
    };
    let at = all
        .iter()
        .rposition(|notes| notes.kind == kind && goes_on(notes) && notes.steps.starts_with(begin))?;
    let notes = all.remove(at);
    all.push(notes.clone());
    Some(notes)
}

fn keep(notes: Notes) {
    let mut all = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() == MAX_NOTES {
        all.remove(0);
    }
    all.push(Arc::new(notes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step() -> impl Strategy<Value = Step> {
        // Few of them: programs often begin alike.
        let pa = |page: u64| page << 12;
        prop_oneof![
            (0..2u32, 0..3u64, any::<bool>()).prop_map(move |(package, page, write)| Step::Access {
                package,
                pa: pa(page) + 64,
                colour: 0,
                write
            }),
            (0..2u32, 0..3u64).prop_map(move |(package, page)| Step::ClearPage { package, pa: pa(page) }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn machines_that_compare_do_what_the_first_one_did(
            programs in proptest::collection::vec(proptest::collection::vec(step(), 0..6), 1..20),
            goes_on in any::<bool>(),
        ) {
            let machine = MachineConfig::named("xeon-mp").expect("it is built in");
            for program in programs {
                let (mut plain, mut caches) = (Caches::new(&machine), PoweredOn::new(&machine));
                for step in program {
                    let cost = match step {
                        Step::Access { package, pa, colour, write } => {
                            caches.access_by(package as usize, pa, colour, write)
                        }
                        Step::ClearPage { package, pa } => caches.clear_page(package as usize, pa),
                    };
                    prop_assert_eq!(cost, step.make(&mut plain));
                }
                prop_assert_eq!(caches.check(), Ok(()));
                if goes_on {
                    prop_assert_eq!(caches.live().stats(), plain.stats());
                    let after = |caches: &mut Caches| caches.access(1, 3 << 12, true, Kind::Stream);
                    prop_assert_eq!(after(caches.live()), after(&mut plain));
                }
            }
        }
    }

    #[test]
    fn the_second_machine_compares() {
        let machine = MachineConfig::named("pentium-iii").expect("it is built in");
        let boot =
            |caches: &mut PoweredOn| (0..100).map(|page| caches.clear_page(0, page << 12)).sum::<u64>();
        let mut first = PoweredOn::new(&machine);
        let cost = boot(&mut first);
        first.live();
        let mut second = PoweredOn::new(&machine);
        assert_eq!(boot(&mut second), cost);
        assert!(matches!(second.state, State::Comparing { done: 100, .. }));
        assert_eq!(second.live().stats(), first.live().stats());
    }
}
