//! A run that nobody conducts, and whose events are counted: for whoever asks how many there were.

use crate::cpu;
use crate::metal::Metal;
use core::sync::atomic::{AtomicBool, Ordering};
use pageferry_hal::tap::{Event, Sink, Tap};
use pageferry_hal::{CpuId, CpuSet, Va};
use pageferry_verify::counts::{Counts, Whose, is_own};

/// What was counted.
pub(crate) static COUNTS: Counts = Counts::new();

/// CPUs that work on what only a program in ring 3 has: its image and its stack.
static ARE_ASIDE: [AtomicBool; CpuSet::MAX_CPUS] = [const { AtomicBool::new(false) }; CpuSet::MAX_CPUS];

/// What the thread does is counted apart, until this is dropped or another thread runs.
#[must_use = "it ends when it is dropped"]
pub(crate) struct Aside(());

impl Aside {
    /// What follows is about an image or a stack.
    pub(crate) fn begin() -> Aside {
        ARE_ASIDE[cpu::number().index()].store(true, Ordering::Relaxed);
        Aside(())
    }

    /// A program in ring 3 has a fault at `at`: counts it, and sees whether it is such a place.
    pub(crate) fn fault(at: Va) -> Option<Aside> {
        let whose = if is_own(at) { Whose::Own } else { Whose::Shared };
        COUNTS.note_fault(whose);
        is_own(at).then(Aside::begin)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // On whatever CPU it is by now: another thread has ended it elsewhere.
        ARE_ASIDE[cpu::number().index()].store(false, Ordering::Relaxed);
    }
}

/// The sink of these runs.
#[derive(Clone, Copy)]
pub(crate) struct Counted;

/// What the kernel is booted on.
pub(crate) type Booted = Tap<Metal, Counted>;

/// The machine, tapped.
pub(crate) fn machine() -> Booted {
    Tap::new(Metal, Counted)
}

impl Sink for Counted {
    fn leaves(&self, cpu: CpuId) {
        ARE_ASIDE[cpu.index()].store(false, Ordering::Relaxed);
    }

    fn tells(&self, event: Event) {
        let is_aside = ARE_ASIDE[event.cpu.index()].load(Ordering::Relaxed);
        COUNTS.note(&event, if is_aside { Whose::Own } else { Whose::Shared });
    }
}
