//! What the kernel declares of mappings, and when it has invalidated what it changed.

use crate::hw::Hw;
use crate::machine::Model;
use crate::machine::event::EventKind;
use pageferry_hal::{Oracle, SpaceId, Tte, Va};
use std::panic::Location;

/// A window that the oracle holds open for a flush.
#[derive(Debug)]
pub struct FlushWindow(u32);

impl Oracle for Model {
    type FlushWindow = FlushWindow;

    #[track_caller]
    fn mapping_changed(
        &self,
        space: SpaceId,
        va: Va,
        old: Option<Tte>,
        new: Option<Tte>,
        window: Option<&FlushWindow>,
    ) {
        let by = Location::caller();
        self.0.note(EventKind::Maps { space, va, old, new }, Some(by));
        self.0.step(|hw, cpu| hw.mapping_changed(cpu, (space, va), old, new, window.map(|w| w.0), by));
    }

    fn sleeps_next(&self) {
        self.0.step(Hw::sleeps_next);
    }

    fn open_flush_window(&self) -> FlushWindow {
        FlushWindow(self.0.step(|hw, _| hw.oracle.open()))
    }

    #[track_caller]
    fn close_flush_window(&self, window: FlushWindow) {
        self.0.note(EventKind::ClosesWindow, Some(Location::caller()));
        self.0.step(|hw, _| hw.oracle.close(window.0));
    }
}
