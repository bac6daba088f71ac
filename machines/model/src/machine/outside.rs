//! What happens outside of the CPUs has its turn among them; and what of it is at the hands of those who use the
//! machine: the wire, and the card that can be pulled out.
//!
//! Events that are due before any CPU can go on take place first. So a machine that waits for a frame goes on with it,
//! and one that waits while nothing is due is deadlocked. A CPU that runs stops for the next event as for another CPU.

use crate::hw::{CpuState, Hw};
use crate::machine::Model;
use crate::machine::inner::Inner;
use crate::machine::run_error::RunError;
use crate::net::far_end::FarEnd;
use crate::net::pcap::Pcap;
use crate::net::wire::Wire;
use crate::turns::NEVER;
use pageferry_hal::{Cycles, NicStatistics};
use std::io::{self, Write};

impl Inner {
    /// Lets take place what is due outside before the next CPU goes on.
    pub(super) fn let_outside_happen(&self, hw: &mut Hw) -> Result<(), RunError> {
        loop {
            let cpu_at = hw.turns.first().map_or(NEVER, |(_, at, _)| at);
            if cpu_at == NEVER && hw.cpus.iter().all(|c| c.state == CpuState::Off) {
                // The run is over, whatever would have come.
                return Ok(());
            }
            let changed = self.wait_for_the_world(hw, cpu_at.min(hw.outside_at));
            let at = hw.outside_at;
            if at == NEVER || at > cpu_at {
                if changed && at.min(cpu_at) == NEVER {
                    continue;
                }
                return Ok(());
            }
            self.may_happen(cpu_at, at)?;
            hw.outside_happens();
            self.something_happened();
            self.acted();
        }
    }

    /// Lets the far end wait, if no CPU runs and nothing happens until then. True when that has changed something.
    fn wait_for_the_world(&self, hw: &mut Hw, until: u64) -> bool {
        if !hw.has_far_end || hw.cpus.iter().any(|c| c.state == CpuState::Running) {
            return false;
        }
        let now = hw.cpus.iter().map(|c| c.clock).max().unwrap_or(0);
        hw.at_outside(|outside| outside.wait(now, until))
    }

    /// Refuses an event that is past the end of all time; and one more when so many have taken place that no CPU can
    /// have use for.
    fn may_happen(&self, cpu_at: u64, at: u64) -> Result<(), RunError> {
        let schedule = self.options.schedule;
        if let Some(limit) = self.options.cycle_limit.filter(|limit| at > limit.0) {
            let (waits, left) = (self.waits(), self.describe_contexts());
            return Err(RunError::OutOfTime { limit, waits, left, schedule });
        }
        if cpu_at == NEVER {
            let tests = self.in_vain.get() + 1;
            self.in_vain.set(tests);
            if tests >= self.options.spin_limit {
                return Err(RunError::Spinning { waits: self.waits(), tests, alone: false, schedule });
            }
        }
        Ok(())
    }

    /// Something was done that may make an event due: the CPU that did it stops for that.
    pub(crate) fn outside_changed(&self) {
        let at = self.hw.borrow().outside_at;
        self.others_at.set(self.others_at.get().min(at));
    }
}

impl Model {
    /// The clock of the executing CPU; of a machine that does not run, the latest.
    fn outside_now(&self) -> u64 {
        let hw = self.0.hw.borrow();
        if self.0.running.get() {
            hw.cpus[self.0.cpu.get()].clock
        } else {
            hw.cpus.iter().map(|c| c.clock).max().unwrap_or(0)
        }
    }

    /// Connects the network card to `far_end`, by a wire that does nothing to frames. Without a far end the cable is
    /// unplugged there: what is sent goes nowhere. Before a run, or in it; another one takes the place of the last.
    ///
    /// # Panics
    /// When the machine has no network card.
    pub fn attach(&self, far_end: Box<dyn FarEnd>) {
        self.attach_over(Wire::default(), far_end);
    }

    /// As [`Model::attach`], by a wire that may lose frames, or worse.
    ///
    /// # Panics
    /// When the machine has no network card.
    pub fn attach_over(&self, wire: Wire, far_end: Box<dyn FarEnd>) {
        let now = self.outside_now();
        self.0.hw.borrow_mut().at_outside(|outside| outside.attach(now, wire, far_end));
        self.0.outside_changed();
    }

    /// Begins to write what goes over the wire to `to`, as a pcap file with times in nanoseconds. The card is where it
    /// is looked at: there is every frame that it has sent, lost later or not, and every one that has reached it,
    /// received or not.
    ///
    /// # Panics
    /// When the machine has no network card.
    pub fn record_frames(&self, to: impl Write + 'static) {
        let pcap = Pcap::new(Box::new(to));
        self.0.hw.borrow_mut().at_outside(|outside| outside.card.record(pcap));
    }

    /// Ends what [`Model::record_frames`] began; how many frames there were.
    ///
    /// # Errors
    /// What went wrong when they were written.
    ///
    /// # Panics
    /// When the machine has no network card.
    pub fn end_record_frames(&self) -> io::Result<u64> {
        let pcap = self.0.hw.borrow_mut().at_outside(|outside| outside.card.take_recorder());
        pcap.map_or(Ok(0), Pcap::finish)
    }

    /// For tests: the network card is taken out now, on the clock of the executing CPU.
    ///
    /// # Panics
    /// When the machine has no network card.
    pub fn remove_nic(&self) {
        self.remove_nic_at(Cycles(self.outside_now()));
    }

    /// For tests: the network card is taken out when the CPUs are at this time.
    ///
    /// # Panics
    /// When the machine has no network card.
    pub fn remove_nic_at(&self, at: Cycles) {
        self.0.hw.borrow_mut().at_outside(|outside| outside.remove_at(at.0));
        self.0.outside_changed();
    }

    /// What the network card has moved and lost, looked at from outside.
    ///
    /// # Panics
    /// When the machine has no network card.
    pub fn nic_statistics(&self) -> NicStatistics {
        self.0.hw.borrow_mut().at_outside(|outside| outside.card.statistics())
    }
}
