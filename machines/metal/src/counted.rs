//! A run that nobody conducts, and whose events are counted: for whoever asks how many there were.

use crate::metal::Metal;
use pageferry_hal::CpuId;
use pageferry_hal::tap::{Call, Event, Handler, Sink, Tap, Turn};
use pageferry_verify::counts::Counts;

/// What was counted.
pub(crate) static COUNTS: Counts = Counts::new();

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
    fn begins(&self, _: CpuId, _: Call) -> Option<Turn> {
        None
    }

    fn returns(&self, _: CpuId, _: Call, _: u64) {}

    fn finds(&self, _: CpuId, _: Call, _: bool) {}

    fn handles(&self, handler: Handler) -> Handler {
        handler
    }

    fn sets_timer(&self) -> bool {
        true
    }

    fn leaves(&self, _: CpuId) {}

    fn tells(&self, event: Event) {
        COUNTS.note(&event);
    }
}
