//! A machine with a kernel: built, booted with one program, run until no process is left, and its laws checked.
//!
//! A testbed is single-threaded: the model is built on the thread that runs it, and never leaves it.

use super::plan::Schedule;
use super::result::Law;
use crate::error::LabError;
use crate::files::{KernelChoice, MachineChoice};
use crate::workload::net::web::Site;
use pageferry_hal::{ContextId, Machine as _};
use pageferry_kernel::{BootError, Errno, Kernel, NetConfig, Program};
use pageferry_model::panics::quietly;
use pageferry_model::{Model, Options, RunError};
use pageferry_vm::VmConfig;
use std::cell::RefCell;
use std::rc::Rc;

/// A machine with a kernel configuration, ready to boot once.
pub(crate) struct Testbed {
    pub(crate) model: Model,
    pub(crate) machine: MachineChoice,
    pub(crate) kernel: KernelChoice,
    /// The Internet protocols, where the kernel is to have them.
    pub(crate) net: Option<NetConfig>,
    /// Files that the kernel is to have room for.
    pub(crate) files: usize,
    /// What is asked of the machine, where it serves files.
    pub(crate) site: Option<Rc<Site>>,
}

/// What is known when everything has stopped.
pub(crate) struct Finish {
    /// Laws, in the order of checking.
    pub(crate) laws: Vec<Law>,
    /// Uses of stale translations.
    pub(crate) stale: Vec<String>,
}

impl Testbed {
    pub(crate) fn new(
        machine: &MachineChoice,
        kernel: &KernelChoice,
        schedule: Schedule,
        seed: u64,
    ) -> Result<Testbed, LabError> {
        let schedule = match schedule {
            Schedule::Timed => pageferry_model::Schedule::Timed,
            Schedule::Seeded => pageferry_model::Schedule::Seeded(seed),
        };
        let refuse = |problem: String| LabError::Incompatible {
            machine: machine.name.clone(),
            kernel: kernel.name.clone(),
            problem,
        };
        kernel.file.fits(&machine.config).map_err(refuse)?;
        // A use of a stale translation is the result of some experiments: it is a law of its own, and ends no run.
        let options = Options::new(schedule).tolerate_stale();
        let model = Model::new(&machine.config, options).map_err(|fault| refuse(fault.to_string()))?;
        Ok(Testbed {
            model,
            machine: machine.clone(),
            kernel: kernel.clone(),
            net: None,
            files: 0,
            site: None,
        })
    }

    /// Boots the kernel with `program` as its only process, and runs until no process is left.
    ///
    /// # Errors
    /// When the kernel cannot boot on this machine.
    pub(crate) fn execute(&self, name: &str, program: Program<Model>) -> Result<Finish, LabError> {
        let mut config = self.kernel.file.config(&self.machine.config, self.arena_bytes());
        config.net = self.net;
        config.files = self.files;
        config.vm.objects = self.files;
        let end: Rc<RefCell<End>> = Rc::default();
        let (name, cell) = (name.to_owned(), end.clone());
        let boot = move |m: &Model| -> Option<ContextId> {
            let kernel = match Kernel::boot(m.clone(), m.devices(), config) {
                Ok(kernel) => kernel,
                Err(error) => {
                    cell.borrow_mut().boot = Some(error);
                    return None;
                }
            };
            match kernel.spawn(&name, program) {
                Ok(_) => {}
                Err(errno) => {
                    cell.borrow_mut().spawn = Some(errno);
                    return None;
                }
            }
            let next = kernel.run();
            let mut end = cell.borrow_mut();
            end.quiescent = Some(kernel.check_quiescent());
            end.killed = kernel.killed().iter().map(|k| format!("{k:?}")).collect();
            next
        };
        let ran = run_quietly(|| self.model.run(Box::new(boot)));
        let end = end.take();
        if let Some(error) = end.boot {
            return Err(self.incompatible(error));
        }
        if let Some(errno) = end.spawn {
            return Err(self.incompatible(errno));
        }
        let stale: Vec<String> = self.model.stale_uses().iter().map(ToString::to_string).collect();
        let mut laws = vec![Law::new("every process ran to its end", ran)];
        if let Some(quiescent) = end.quiescent {
            laws.push(Law::new("at rest, nothing is held", quiescent));
        }
        let killed = if end.killed.is_empty() { Ok(()) } else { Err(end.killed.join(", ")) };
        laws.push(Law::new("no process was killed", killed));
        laws.push(Law::new(
            "the causes of cycles sum to the clocks, and the machine is consistent",
            self.model.check(),
        ));
        laws.push(Law::new(
            "no use of a stale translation",
            stale.first().map_or(Ok(()), |first| Err(format!("{} uses, the first: {first}", stale.len()))),
        ));
        Ok(Finish { laws, stale })
    }

    /// Room for the kernel's structures: the VM system's, the mapping cache's, the network's, and some for processes
    /// and queues. Reverse mappings take a quarter of the whole.
    fn arena_bytes(&self) -> usize {
        let paging = self.kernel.file.paging();
        let vm = VmConfig::arena_bytes_with(self.model.board(), paging.as_ref());
        let entries = self.kernel.file.ephemeral.entries.value as usize;
        let cache = entries.saturating_mul(64);
        let net = self.net.map_or(0, |net| net.sockets.saturating_mul(256));
        // The area is aligned to the largest page.
        let area =
            self.kernel.file.ispc.as_ref().map_or(0, |ispc| ispc.area_bytes.value as usize + (1 << 20));
        (vm.saturating_add(cache)
            .saturating_add(net)
            .saturating_add(area)
            .saturating_add(self.files * 512)
            .saturating_add(2 << 20))
        .saturating_mul(3)
            / 2
    }

    /// The error for a configuration that does not fit.
    pub(crate) fn incompatible(&self, problem: impl ToString) -> LabError {
        LabError::Incompatible {
            machine: self.machine.name.clone(),
            kernel: self.kernel.name.clone(),
            problem: problem.to_string(),
        }
    }
}

/// Runs a machine. A panic within is an outcome like others, told once, with its place.
fn run_quietly(run: impl FnOnce() -> Result<(), RunError>) -> Result<(), String> {
    let (ran, panicked) = quietly(run);
    ran.map_err(|error| match (&error, panicked) {
        (RunError::Panicked(_), Some(place)) => format!("{error} ({})", place.at),
        _ => error.to_string(),
    })
}

#[derive(Default)]
struct End {
    boot: Option<BootError>,
    spawn: Option<Errno>,
    quiescent: Option<Result<(), String>>,
    killed: Vec<String>,
}
