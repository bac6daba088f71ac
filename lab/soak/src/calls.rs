//! Random programs of system calls on a modelled machine with a whole kernel. What they are, and what they compare, is
//! in `pageferry_calls`.

use crate::failure::Failure;
use crate::planted::Planted;
use crate::rig::config;
use crate::whole::{self, MEMORY_MB};
use pageferry_calls::{Calls, Judge};
use pageferry_hal::{Cycles, Machine as _};
use pageferry_kernel::User;
use pageferry_model::{Jitter, LateSleep, Model, Options, Schedule};
use std::cell::Cell;
use std::rc::Rc;

const SPIN_LIMIT: u64 = 1_000_000;
/// A program takes less than a hundredth of that.
const CYCLE_LIMIT: Cycles = Cycles(100_000_000_000);

/// Runs them on a machine, and looks at what is left behind.
///
/// # Errors
/// At which step what was wrong.
pub(crate) fn run(
    calls: &Calls,
    machine: &str,
    schedule: Schedule,
    defect: Option<Planted>,
) -> Result<(), Failure> {
    let options = late(Options::new(schedule).spin_limit(SPIN_LIMIT).cycle_limit(CYCLE_LIMIT), calls.seed);
    let m = Model::new(&config(machine, MEMORY_MB), options).expect("a valid machine");
    let config = whole::kernel(machine, &m, defect.and_then(Planted::in_net), calls.seed);
    let at = Rc::new(Cell::new(0));
    let program = calls.program(at.clone(), Laws);
    whole::run(&m, config, &at, move |u| {
        u.kernel().vm().plant(defect.and_then(Planted::in_vm));
        program(u);
    })
}

/// Of timed runs three in four have what no other schedule finds: CPUs that stand still before they read their clocks,
/// for up to a few ticks; a thread that is late to sleep; or both.
fn late(options: Options, seed: u64) -> Options {
    if options.schedule != Schedule::Timed {
        return options;
    }
    let stalls = Jitter { seed, max: Cycles(1 << (10 + seed / 4 % 12)) };
    let late = LateSleep { sleep: seed / 4 % 64, by: Cycles(1 << (8 + seed / 256 % 14)) };
    options
        .stalls(matches!(seed % 4, 1 | 3).then_some(stalls))
        .late_sleep(matches!(seed % 4, 2 | 3).then_some(late))
}

/// Looks at all laws between steps, where nobody else can be in the middle of anything.
struct Laws;

impl Judge<Model> for Laws {
    fn compared(&self, _: &[u8]) {}

    fn between_steps(&self, user: &User<Model>) {
        if user.machine().cpus().len() == 1 {
            user.kernel().check().unwrap_or_else(|law| panic!("a law is broken: {law}"));
        }
    }

    fn played(&self, user: &User<Model>, expected: &[u8]) {
        assert!(user.machine().played() == expected, "it has played something else");
    }

    fn fail_after(&self, user: &User<Model>, succeed: Option<u32>) -> bool {
        let vm = user.kernel().vm();
        let had_come = !vm.failure_pending();
        vm.fail_after(succeed);
        had_come
    }
}
