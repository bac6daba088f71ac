//! The cost of invalidations (sf_buf paper, 3): a custom system call repeats one many times.

use crate::error::LabError;
use crate::kit::{Outcome, OutcomeCell};
use crate::run::{Testbed, Workload};
use cpu_time::ThreadTime;
use pageferry_kernel::{Errno, InvalidateKind, Program, User};
use pageferry_model::{MachineConfig, Model};

/// The workload.
pub(crate) struct Invalidate;

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        times: u32 = 1..=1 << 30,
    }
}

impl Workload for Invalidate {
    const NAME: &'static str = "invalidate";

    type Parameters = Parameters;

    fn weight(p: &Parameters, machine: &MachineConfig) -> u64 {
        let cpus = machine.cpus() as u64;
        u64::from(p.times).saturating_mul(1 + 4 * (cpus - 1)) / 4
    }

    /// The program of the experiment's only process. Remote invalidations are measured where there is another CPU.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let times = p.times;
        let cycle_ns = testbed.machine.nanoseconds(1.0);
        let mut kinds = vec![
            ("local_cached", InvalidateKind::LocalCached),
            ("local_uncached", InvalidateKind::LocalUncached),
        ];
        if testbed.machine.config.cpus() > 1 {
            kinds.push(("remote", InvalidateKind::Remote));
        }
        let model = testbed.model.clone();
        Ok(Box::new(move |user: &User<Model>| {
            let (before, began) = (model.snapshot(), ThreadTime::now());
            for (name, kind) in kinds {
                let outcome = &mut *cell.borrow_mut();
                if let Err(errno) = measure(user, name, kind, times, cycle_ns, outcome) {
                    outcome.fail(name, errno);
                }
            }
            let outcome = &mut *cell.borrow_mut();
            outcome.measured_s = began.elapsed().as_secs_f64();
            outcome.measured = Some(model.snapshot().since(&before));
        }))
    }
}

fn measure(
    user: &User<Model>,
    name: &str,
    kind: InvalidateKind,
    times: u32,
    cycle_ns: f64,
    outcome: &mut Outcome,
) -> Result<(), Errno> {
    let cycles = user.invalidate(kind, times)?.0 as f64 / f64::from(times);
    outcome.results.insert(format!("{name}_cycles"), cycles);
    outcome.results.insert(format!("{name}_ns"), cycles * cycle_ns);
    Ok(())
}
