//! What no real machine holds fixed from one run to the next.
//!
//! A model gives the same numbers to the last digit for the same configuration. So a result may hang on what nobody
//! chose: which set of a cache a structure of the kernel falls into, or where in a tick of the clock a program began.
//! Repeats of a run have seeds of their own, and differ in five
//! such things, which are drawn from the seed:
//!
//! * the *layout*: how far the kernel's structures are from where they are otherwise, as after another link;
//! * the *frames*: which of them the program gets, and in which order, after another process has had and freed some;
//! * the *start*: how far the clock's tick, and the quantum of the first process, are when the program begins;
//! * the *interrupts*: how long each waits for its bus, up to a clock of one of 100 MHz;
//! * the *numbers* of address spaces, where a hash table of translations goes by them: as many as 2^19 were before.
//!
//! A setting that the run does not use is worth no more than these: what moves a result less than they do is not
//! measured. (Mytkowicz, Diwan, Hauswirth, Sweeney: Producing Wrong Data Without Doing Anything Obviously Wrong!,
//! ASPLOS 2009.)

use super::choices::Choices;
use pageferry_hal::{Cycles, Instructions, Mmu, PAGE_SIZE, Prot};
use pageferry_kernel::{Errno, Program, User};
use pageferry_model::{Jitter, MachineConfig, Model};
use pageferry_vm::Inherit;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// A bus whose next clock an interrupt waits for: that of the first processors with an APIC on the system bus.
const BUS_MHZ: u64 = 100;
/// Structures are moved by whole lines, through all sets of a cache of 1 MB without ways.
const SKEW_LINES: u64 = 16384;
const LINE_BYTES: u64 = 64;
/// What the process that ran before has of memory: some regions, of some pages each.
const MAX_REGIONS: u64 = 8;
const MAX_REGION_PAGES: u64 = 64;

/// Of the 20 bits of a number, those that are drawn.
const NUMBER_BITS: u32 = 19;

/// What one run has different from others.
#[derive(Clone, Debug)]
pub(crate) struct Perturbation {
    /// What lies before the kernel's structures.
    pub(crate) skew_bytes: usize,
    pub(crate) jitter: Jitter,
    /// Pages of each region that the process before has, in the order in which it takes them; and that in which it
    /// gives them back.
    regions: Vec<usize>,
    given_back: Vec<usize>,
    /// How much of a tick is over when the program begins, of 2^32 parts.
    of_tick: u32,
    cpi_milli: u64,
    /// Where a hash table goes by numbers of address spaces: the first of them.
    pub(crate) first_number: Option<u32>,
}

impl Perturbation {
    /// That of the run which `choices` ask for on `machine`.
    pub(crate) fn of(machine: &MachineConfig, choices: Choices) -> Option<Perturbation> {
        if !choices.perturbed {
            return None;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(choices.seed);
        // Payloads, and what is asked for, are drawn from the first.
        rng.set_stream(1);
        let mut below = |n: u64| rng.next_u64() % n;
        let skew_bytes = (below(SKEW_LINES) * LINE_BYTES) as usize;
        let of_tick = below(1 << 32) as u32;
        let jitter_seed = below(u64::MAX);
        let regions: Vec<usize> =
            (0..1 + below(MAX_REGIONS)).map(|_| 1 + below(MAX_REGION_PAGES) as usize).collect();
        let mut given_back: Vec<usize> = (0..regions.len()).collect();
        given_back.shuffle(&mut rng);
        let hashes = matches!(machine.board().mmu, Mmu::Hash | Mmu::Soft { hashes: true, .. });
        let first_number = hashes.then(|| 1 + (rng.next_u64() >> (64 - NUMBER_BITS)) as u32);
        let max = Cycles(machine.cpu.clock_mhz.value / BUS_MHZ);
        Some(Perturbation {
            skew_bytes,
            jitter: Jitter { seed: jitter_seed, max },
            regions,
            given_back,
            of_tick,
            cpi_milli: machine.cpu.cpi_milli.value,
            first_number,
        })
    }

    /// `program`, with what comes before it.
    pub(crate) fn before(&self, program: Program<Model>, tick: Cycles) -> Program<Model> {
        let (regions, given_back) = (self.regions.clone(), self.given_back.clone());
        let late_cycles = tick.0.saturating_mul(u64::from(self.of_tick)) >> 32;
        let late = late_cycles.saturating_mul(1000) / self.cpi_milli.max(1);
        Box::new(move |user: &User<Model>| {
            let past: Program<Model> = Box::new(move |user| {
                // Of a machine without room for it nothing else is asked.
                let _ = had_and_freed(user, &regions, &given_back);
            });
            if user.fork("before", past).is_ok() {
                let _ = user.wait();
            }
            user.compute(Instructions(u32::try_from(late).unwrap_or(u32::MAX)));
            program(user);
        })
    }
}

/// Takes and touches regions of so many pages, and gives them back in that order.
fn had_and_freed(user: &User<Model>, regions: &[usize], order: &[usize]) -> Result<(), Errno> {
    let mut taken = Vec::new();
    for pages in regions {
        let at = user.map(pages * PAGE_SIZE, Prot::RW, Inherit::Copy)?;
        (0..*pages).for_each(|page| user.store(at + page * PAGE_SIZE, &[1]));
        taken.push((at, pages * PAGE_SIZE));
    }
    order.iter().try_for_each(|&n| user.unmap(taken[n].0, taken[n].1))
}
