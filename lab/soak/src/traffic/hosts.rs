//! The machine with its kernel, on a wire to the far end.

use super::far_end::far_end;
use super::steps::{CONNECTIONS, Call, SocketOp, Traffic};
use super::talk::Talks;
use crate::failure::Failure;
use crate::planted::Planted;
use crate::whole::{self, MEMORY_MB};
use pageferry_hal::Machine as _;
use pageferry_kernel::User;
use pageferry_model::net::Wire;
use pageferry_model::testing::small;
use pageferry_model::{MachineConfig, Model, Options, Schedule};
use std::cell::Cell;
use std::rc::Rc;

/// Frames and timers of the far end that nothing here has any use for, before the machine is taken to be stuck.
const SPIN_LIMIT: u64 = 1_000_000;
/// Steps between two looks at all laws, which take locks, and with them time.
const CHECK_EVERY: usize = 16;
/// Said for each connection that is left at the end.
const LAST_BYTES: usize = 3000;

/// A small machine with a card, whatever else it is.
fn with_card(name: &str, schedule: Schedule, wire: Wire) -> Model {
    let MachineConfig { nic, sources, .. } = small("xeon-up", MEMORY_MB);
    let mut config = MachineConfig { nic, ..small(name, MEMORY_MB) };
    // The card's constants cite documents of their own.
    config.sources.extend(sources);
    let m = Model::new(&config, Options::new(schedule).spin_limit(SPIN_LIMIT)).expect("a valid machine");
    m.attach_over(wire, Box::new(far_end(wire.seed)));
    m
}

impl Traffic {
    /// Runs it on a machine, and looks at what is left behind.
    ///
    /// # Errors
    /// At which step what was wrong.
    pub(crate) fn run(
        &self,
        machine: &str,
        schedule: Schedule,
        defect: Option<Planted>,
    ) -> Result<(), Failure> {
        let m = with_card(machine, schedule, self.wire());
        let config = whole::kernel(machine, &m, defect.and_then(Planted::in_net), self.seed);
        // Where a seed decides whose turn it is, time goes by as fast as it likes: a host with timers of its own gives
        // up then.
        let is_timed = schedule == Schedule::Timed;
        let at = Rc::new(Cell::new(0));
        let (steps, seen) = (self.steps.clone(), at.clone());
        whole::run(&m, config, &at, move |u| talk(u, &steps, is_timed, &seen))
    }
}

fn talk(u: &User<Model>, steps: &[Call], wired: bool, at: &Cell<usize>) {
    let mut talks = Talks::new(u, wired);
    let mut has_forked = false;
    for (i, call) in steps.iter().enumerate() {
        at.set(i);
        talks.step(call);
        has_forked |= matches!(call.op, SocketOp::Drain { .. });
        // On another CPU a process that was waited for may be in the middle of its end.
        let is_still = !has_forked || u.machine().cpus().len() == 1;
        if i % CHECK_EVERY == 0 && is_still {
            u.kernel().check().unwrap_or_else(|law| panic!("a law is broken: {law}"));
        }
    }
    for connection in 0..CONNECTIONS {
        talks.step(&Call { connection, other_end: false, op: SocketOp::Drain { len: LAST_BYTES } });
    }
    talks.end();
}
