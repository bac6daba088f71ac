//! A machine with a kernel: built, booted with one program, run until no process is left, and its laws checked.
//!
//! A testbed is single-threaded: the model is built on the thread that runs it, and never leaves it.

use super::choices::{Choices, Schedule};
use super::perturbation::Perturbation;
use crate::error::LabError;
use crate::files::{KernelChoice, MachineChoice};
use crate::record::Law;
use pageferry_hal::{ContextId, Machine as _, Nic, PAGE_SIZE};
use pageferry_kernel::{
    BootError, Errno, Kernel, Killed, MAX_MBUFS, NetConfig, Program, clusters_for_card, mbufs_for_card,
};
use pageferry_model::panics::quietly;
use pageferry_model::{Model, Options, RunError};
use pageferry_vm::VmConfig;
use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;

/// The machine's address on its modelled wire.
pub const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// That of the host at the far end.
pub const FAR_END: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Bits of both that are those of the network.
pub const PREFIX_BITS: u8 = 24;

/// A machine with a kernel configuration, ready to boot once.
pub struct Testbed {
    pub(crate) model: Model,
    pub(crate) machine: MachineChoice,
    pub(crate) kernel: KernelChoice,
    /// The Internet protocols, where the kernel is to have them.
    pub(crate) net: Option<NetConfig>,
    /// Files that the kernel is to have room for.
    pub(crate) files: usize,
    /// What payloads are made from.
    pub(crate) seed: u64,
    /// What this run has different from others.
    perturbation: Option<Perturbation>,
}

/// What is known when everything has stopped.
pub struct Finish {
    /// Laws, in the order of checking.
    pub laws: Vec<Law>,
    /// Uses of stale translations.
    pub stale: Vec<String>,
}

impl Testbed {
    /// A machine and a kernel that fit each other.
    ///
    /// # Errors
    /// They do not.
    pub fn new(
        machine: &MachineChoice,
        kernel: &KernelChoice,
        choices: Choices,
    ) -> Result<Testbed, LabError> {
        let Choices { seed, .. } = choices;
        let schedule = match choices.schedule {
            Schedule::Timed => pageferry_model::Schedule::Timed,
            Schedule::Seeded => pageferry_model::Schedule::Seeded(seed),
            Schedule::Pct(depth) => pageferry_model::Schedule::pct(depth).with_seed(seed),
        };
        let refuse = |problem: String| LabError::Incompatible {
            machine: machine.name.clone(),
            kernel: kernel.name.clone(),
            problem,
        };
        kernel.file.fits(&machine.config).map_err(refuse)?;
        // A use of a stale translation is the result of some experiments: it is a law of its own, and ends no run.
        // Programs may wait for the host, as for what a pipe of its gives them: that is not timed.
        let perturbation = Perturbation::of(&machine.config, choices);
        let jitter = perturbation.as_ref().map(|p| p.jitter);
        let options = Options::new(schedule).tolerate_stale().host_limit(None).jitter(jitter);
        let model = Model::new(&machine.config, options).map_err(|fault| refuse(fault.to_string()))?;
        Ok(Testbed {
            model,
            machine: machine.clone(),
            kernel: kernel.clone(),
            net: None,
            files: 0,
            seed,
            perturbation,
        })
    }

    /// Boots the kernel with `program` as its only process, and runs until no process is left.
    ///
    /// # Errors
    /// When the kernel cannot boot on this machine.
    pub fn execute(&self, name: &str, program: Program<Model>) -> Result<Finish, LabError> {
        let mut config = self.kernel.file.config(&self.machine.config, self.arena_bytes());
        config.net = self.net;
        if let Some(locks) = &self.kernel.file.locks {
            locks.count_in(&mut config);
        }
        config.files = self.files;
        config.vm.objects = self.files;
        config.skew_bytes = self.skew_bytes();
        if let Some(number) = self.perturbation.as_ref().and_then(|p| p.first_number) {
            config.pmap.first_number = number;
        }
        let program = match &self.perturbation {
            Some(perturbation) => perturbation.before(program, config.sched.tick_cycles),
            None => program,
        };
        let end: Rc<RefCell<End>> = Rc::default();
        let (name, cell) = (name.to_owned(), end.clone());
        let boot = move |m: &Model| -> Option<ContextId> {
            let kernel = match pageferry_servers::boot(m.clone(), m.devices(), config) {
                Ok(kernel) => kernel,
                Err(error) => {
                    cell.borrow_mut().boot = Some(error);
                    return None;
                }
            };
            cell.borrow_mut().kernel = Some(kernel.clone());
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
            let killed = |k: &Killed| format!("{} (process {}): {}", k.name, k.pid.0, k.trap);
            end.killed = kernel.killed().iter().map(killed).collect();
            next
        };
        let ran = run_quietly(|| self.model.run(Box::new(boot)));
        let end = end.take();
        // Where a kernel waits, its source says; which process waits for what, it knows.
        let ran = ran.map_err(|error| {
            let sleepers = end.kernel.as_ref().map_or_else(String::new, |kernel| kernel.sleepers());
            let asleep: Vec<&str> = sleepers.lines().collect();
            if asleep.is_empty() { error } else { format!("{error}; asleep: {}", asleep.join("; ")) }
        });
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
        let (board, file) = (self.model.board(), &self.kernel.file);
        let (paging, structures) = (file.paging(), file.structures(board.pointer));
        let vm = VmConfig::arena_bytes_with(board, paging.as_ref(), structures.as_ref());
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
            + self.skew_bytes()
    }

    fn skew_bytes(&self) -> usize {
        self.perturbation.as_ref().map_or(0, |p| p.skew_bytes)
    }

    /// The machine, as it runs.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The machine, as its file describes it.
    pub fn machine(&self) -> &MachineChoice {
        &self.machine
    }

    /// The kernel, as its file describes it.
    pub fn kernel(&self) -> &KernelChoice {
        &self.kernel
    }

    /// What payloads are made from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Cycles of the machine's clock in a microsecond.
    pub fn clock_mhz(&self) -> f64 {
        self.machine.config.cpu.clock_mhz.value as f64
    }

    /// Gives the kernel room for so many files.
    pub fn make_room_for_files(&mut self, files: usize) {
        self.files = files;
    }

    /// Has the kernel boot with the Internet protocols, at [`MACHINE`].
    ///
    /// # Errors
    /// A kernel without them, or a machine without a card where one is needed.
    pub fn give_address(&mut self, through_card: bool) -> Result<(), LabError> {
        let Some(net) = &self.kernel.file.net else {
            return Err(
                self.incompatible("expected a kernel with the Internet protocols ([net] of its file)")
            );
        };
        if through_card {
            let (info, received) = (self.card()?.info(), net.receive_buffer_bytes.value as usize);
            let mbufs = mbufs_for_card(&info, received);
            if mbufs > MAX_MBUFS {
                let (all, at) = match info.flow_slots {
                    0 => (info.receive_slots, "nic.receive_slots"),
                    more => (info.receive_slots + more, "nic.receive_slots and nic.flow_slots"),
                };
                let max = all.saturating_sub(mbufs - MAX_MBUFS);
                return Err(self.incompatible(format!(
                    "{at} = {all}: expected at most {max}: each takes one of the kernel's {MAX_MBUFS} mbufs, \
                     and a connection's receive buffer others"
                )));
            }
            let needed = clusters_for_card(&info, received);
            let clusters = &self.kernel.file.socket.clusters;
            if clusters.value < needed as u64 {
                return Err(self.incompatible(format!(
                    "socket.clusters = {}: expected at least {needed}: the network card takes some, a connection's \
                     receive buffer others",
                    clusters.value
                )));
            }
        }
        let clock_mhz = self.machine.config.cpu.clock_mhz.value;
        self.net = Some(net.config(clock_mhz, MACHINE, PREFIX_BITS));
        Ok(())
    }

    /// The network card.
    ///
    /// # Errors
    /// A machine without one.
    pub fn card(&self) -> Result<Box<dyn Nic>, LabError> {
        let none = || self.incompatible("expected a machine with a network card ([nic] of its file)");
        self.model.devices().nic.ok_or_else(none)
    }

    /// Refuses a kernel whose servers are no processes.
    ///
    /// # Errors
    /// It is such a kernel.
    pub fn needs_servers(&self) -> Result<(), LabError> {
        let expected = "expected a kernel whose servers are processes ([ispc] of its file)";
        self.kernel.file.ispc.as_ref().map(|_| ()).ok_or_else(|| self.incompatible(expected))
    }

    /// Refuses a number of bytes that is no number of pages.
    ///
    /// # Errors
    /// That one, with its key.
    pub fn needs_whole_pages(&self, key: &str, bytes: usize) -> Result<(), LabError> {
        match bytes.is_multiple_of(PAGE_SIZE) {
            true => Ok(()),
            false => {
                Err(self.incompatible(format!("{key} = {bytes}: expected whole pages of {PAGE_SIZE} bytes")))
            }
        }
    }

    /// Refuses a kernel with fewer clusters than a read of `bytes` from the null protocol brings.
    ///
    /// # Errors
    /// How many it has, and how many are needed.
    pub fn needs_clusters_for(&self, bytes: usize) -> Result<(), LabError> {
        let (clusters, needed) = (self.kernel.file.socket.clusters.value, bytes.div_ceil(PAGE_SIZE));
        match clusters >= needed as u64 {
            true => Ok(()),
            false => Err(self.incompatible(format!(
                "socket.clusters = {clusters}: expected at least {needed}, as many as a read brings"
            ))),
        }
    }

    /// The error for a configuration that does not fit.
    pub fn incompatible(&self, problem: impl ToString) -> LabError {
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
    kernel: Option<Arc<Kernel<Model>>>,
    boot: Option<BootError>,
    spawn: Option<Errno>,
    quiescent: Option<Result<(), String>>,
    killed: Vec<String>,
}
