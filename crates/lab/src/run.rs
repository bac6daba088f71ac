//! One run: a machine is built, a kernel booted on it, a workload run in it, and the laws are checked.
//!
//! This file and [`crate::workload`] are the only ones that know the model and the kernel. A run is single-threaded;
//! the model is built where it runs and never leaves its thread.
//!
//! A run that ends has one of two bad ends: the configuration does not fit (no memory for a buffer: the input is to
//! blame), or a law is broken. The laws are checked in every run and told in its record; whoever asked for the run
//! decides what to do about a broken one, see [`Record::broken`].

use crate::error::LabError;
use crate::experiments::Workload;
use crate::kernels::KernelChoice;
use crate::machines::MachineChoice;
use crate::plan::{RunSpec, Schedule};
use crate::result::{CpuCycles, Cycles, Host, Law, Record, RunResult};
use crate::workload::{self, Outcome};
use pageferry_hal::{Cause, ContextId, Counter, Machine as _};
use pageferry_kernel::{BootError, Errno, Kernel, Program};
use pageferry_model::trace::Trace;
use pageferry_model::{Fault, Model, Options, RunError, Snapshot};
use pageferry_vm::VmConfig;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic;
use std::rc::Rc;
use std::sync::Once;
use std::time::Instant;

/// Runs `spec`.
///
/// # Errors
/// When machine, kernel and experiment do not fit each other. A broken law is not an error here.
pub fn run(spec: &RunSpec) -> Result<RunResult, LabError> {
    Ok(run_on(spec, |_| ())?.0)
}

/// Runs `spec`, and records where the time goes and what moves.
///
/// # Errors
/// As [`run`].
pub fn run_traced(spec: &RunSpec) -> Result<(RunResult, Trace), LabError> {
    let (result, model) = run_on(spec, |model| model.record(crate::trace::ROOM))?;
    Ok((result, model.take_trace().expect("it was recorded")))
}

fn run_on(spec: &RunSpec, prepare: impl FnOnce(&Model)) -> Result<(RunResult, Model), LabError> {
    let began = Instant::now();
    let site = Site::new(&spec.machine, &spec.kernel, spec.choices.schedule, spec.choices.seed)?;
    prepare(&site.model);
    let cell = OutcomeCell::default();
    let program: Program<Model> = match spec.experiment.file.workload {
        Workload::Invalidate => workload::invalidate::program(&site, spec, cell.clone()),
        Workload::BwPipe => workload::bw_pipe::program(&site, spec, cell.clone()),
        Workload::EphemeralHit => workload::ephemeral_hit::program(&site, spec, cell.clone()),
        Workload::NullWrite => workload::null_write::program(&site, spec, cell.clone()),
        Workload::NullRead => workload::null_read::program(&site, spec, cell.clone()),
        Workload::UvmPipe => workload::uvm_pipe::program(&site, spec, cell.clone()),
        Workload::CostGrowth => workload::cost_growth::program(&site, spec, cell.clone()),
        Workload::PingPong => workload::ping_pong::program(&site, spec, cell.clone()),
        Workload::Mixed => workload::mixed::program(&site, spec, cell.clone()),
        Workload::Pipeline => workload::pipeline::program(&site, spec, cell.clone()),
    };
    let finish = site.execute(&spec.experiment.name, program)?;
    let outcome = cell.take();
    // A call that failed in a sound run was asked for too much; in a broken one it is a consequence.
    if let Some(problem) = outcome.failed.as_ref().filter(|_| finish.laws.iter().all(|law| law.held)) {
        return Err(site.misfit(problem));
    }
    let record = record(spec, &outcome, &finish);
    let accesses = record.hardware.get("accesses").copied().unwrap_or(0) as f64;
    let host = Host {
        wall_ms: began.elapsed().as_secs_f64() * 1e3,
        measured_ms: outcome.measured_s * 1e3,
        accesses_per_s: if outcome.measured_s > 0.0 { (accesses / outcome.measured_s).round() } else { 0.0 },
    };
    Ok((RunResult { record, host }, site.model))
}

/// Where a workload leaves what it found: shared by its processes, which are coroutines of one thread.
pub type OutcomeCell = Rc<RefCell<Outcome>>;

/// A machine with a kernel configuration, ready to boot once.
pub(crate) struct Site {
    pub(crate) model: Model,
    pub(crate) machine: MachineChoice,
    pub(crate) kernel: KernelChoice,
}

/// What is known when everything has stopped.
pub(crate) struct Finish {
    /// Laws, in the order of checking.
    pub(crate) laws: Vec<Law>,
    /// Uses of stale translations.
    pub(crate) stale: Vec<String>,
}

impl Site {
    pub(crate) fn new(
        machine: &MachineChoice,
        kernel: &KernelChoice,
        schedule: Schedule,
        seed: u64,
    ) -> Result<Site, LabError> {
        let schedule = match schedule {
            Schedule::Timed => pageferry_model::Schedule::Timed,
            Schedule::Seeded => pageferry_model::Schedule::Seeded(seed),
        };
        let refuse = |fault: Fault| LabError::Misfit {
            machine: machine.name.clone(),
            kernel: kernel.name.clone(),
            problem: fault.to_string(),
        };
        let model = Model::new(&machine.config, Options { schedule }).map_err(refuse)?;
        Ok(Site { model, machine: machine.clone(), kernel: kernel.clone() })
    }

    /// Boots the kernel with `program` as its only process, and runs until no process is left.
    ///
    /// # Errors
    /// When the kernel cannot boot on this machine.
    pub(crate) fn execute(&self, name: &str, program: Program<Model>) -> Result<Finish, LabError> {
        let config = self.kernel.file.config(&self.machine.config, self.arena_bytes());
        let end: Rc<RefCell<End>> = Rc::default();
        let (name, cell) = (name.to_owned(), end.clone());
        let boot = move |m: &Model| -> Option<ContextId> {
            let kernel = match Kernel::boot(m.clone(), config) {
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
        let ran = quietly(|| self.model.run(Box::new(boot)));
        let end = end.take();
        if let Some(error) = end.boot {
            return Err(self.misfit(error));
        }
        if let Some(errno) = end.spawn {
            return Err(self.misfit(errno));
        }
        let stale: Vec<String> = self.model.stale_uses().iter().map(ToString::to_string).collect();
        let mut laws = vec![law("every process ran to its end", ran)];
        if let Some(quiescent) = end.quiescent {
            laws.push(law("at rest, nothing is held", quiescent));
        }
        let killed = if end.killed.is_empty() { Ok(()) } else { Err(end.killed.join(", ")) };
        laws.push(law("no process was killed", killed));
        laws.push(law(
            "the causes of cycles sum to the clocks, and the machine is consistent",
            self.model.check(),
        ));
        laws.push(law(
            "no use of a stale translation",
            stale.first().map_or(Ok(()), |first| Err(format!("{} uses, the first: {first}", stale.len()))),
        ));
        Ok(Finish { laws, stale })
    }

    /// Room for the kernel's structures: the VM system's, the mapping cache's, and some for processes and queues. Reverse
    /// mappings take a quarter of the whole.
    fn arena_bytes(&self) -> usize {
        let paging = self.kernel.file.paging();
        let vm = VmConfig::arena_bytes_with(self.model.topology(), paging.as_ref());
        let entries = self.kernel.file.ephemeral.entries.value as usize;
        let cache = entries.saturating_mul(64);
        (vm.saturating_add(cache).saturating_add(2 << 20)).saturating_mul(3) / 2
    }

    /// The error for a configuration that does not fit.
    pub(crate) fn misfit(&self, problem: impl ToString) -> LabError {
        LabError::Misfit {
            machine: self.machine.name.clone(),
            kernel: self.kernel.name.clone(),
            problem: problem.to_string(),
        }
    }
}

thread_local! {
    /// In a run: where the panic was that ended it.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Runs a machine. A panic within is an outcome like others: it is told once, with its place, and not also by the
/// handler that panics have by default.
fn quietly(run: impl FnOnce() -> Result<(), RunError>) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if RUNNING.get() {
                PANICKED_AT.set(info.location().map(ToString::to_string));
            } else {
                before(info);
            }
        }));
    });
    RUNNING.set(true);
    let ran = run();
    RUNNING.set(false);
    let at = PANICKED_AT.take();
    ran.map_err(|error| match (&error, at) {
        (RunError::Panicked(_), Some(at)) => format!("{error} ({at})"),
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

pub(crate) fn law(name: &str, checked: Result<(), String>) -> Law {
    Law { name: name.to_owned(), held: checked.is_ok(), fault: checked.err() }
}

fn record(spec: &RunSpec, outcome: &Outcome, finish: &Finish) -> Record {
    let measured = outcome.measured.as_ref();
    let mut laws = finish.laws.clone();
    laws.push(law("the payload arrived as it was sent", outcome.payload.clone()));
    if let Some(snapshot) = measured {
        laws.extend(conservation(snapshot));
    }
    let counters = measured.map(counters).unwrap_or_default();
    let mut results = outcome.results.clone();
    derive(&counters, &mut results);
    Record {
        experiment: spec.experiment.name.clone(),
        machine: spec.machine.name.clone(),
        kernel: spec.kernel.name.clone(),
        seed: spec.choices.seed,
        settings: spec.settings(),
        results,
        counters,
        cycles: measured.map(cycles).unwrap_or_default(),
        hardware: measured.map(hardware).unwrap_or_default(),
        payload_ok: outcome.payload.is_ok(),
        stale_translations: finish.stale.len() as u64,
        laws,
    }
}

/// Results that every workload has.
fn derive(counters: &BTreeMap<String, u64>, results: &mut BTreeMap<String, f64>) {
    let count = |counter: Counter| counters.get(counter.name()).copied().unwrap_or(0) as f64;
    let (hits, misses) = (count(Counter::EphemeralHits), count(Counter::EphemeralMisses));
    if hits + misses > 0.0 {
        results.insert("ephemeral_hit_rate_percent".into(), 100.0 * hits / (hits + misses));
    }
    let invalidations = count(Counter::TlbInvalidationsLocal) + count(Counter::TlbInvalidationsRemoteIssued);
    results.insert("tlb_invalidations".into(), invalidations);
}

pub(crate) fn counters(measured: &Snapshot) -> BTreeMap<String, u64> {
    let mut counters: BTreeMap<String, u64> =
        Counter::ALL.iter().map(|c| (c.name().to_owned(), measured.counters[c.index()])).collect();
    counters.insert("tlb_misses".into(), measured.hardware.tlb_misses);
    counters
}

pub(crate) fn cycles(measured: &Snapshot) -> Cycles {
    let mut stack = Cycles { total: measured.clocks.iter().sum(), ..Cycles::default() };
    for cause in Cause::ALL {
        let sum = measured.cycles.iter().map(|cpu| cpu[cause.index()]).sum();
        stack.by_cause.insert(cause.name().to_owned(), sum);
    }
    for (cpu, (clock, causes)) in measured.clocks.iter().zip(&measured.cycles).enumerate() {
        let spent = Cause::ALL.iter().filter(|c| causes[c.index()] > 0);
        let by_cause = spent.map(|c| (c.name().to_owned(), causes[c.index()])).collect();
        stack.per_cpu.push(CpuCycles { cpu, total: *clock, by_cause });
    }
    stack
}

fn hardware(measured: &Snapshot) -> BTreeMap<String, u64> {
    let h = &measured.hardware;
    [
        ("tlb_lookups", h.tlb_lookups),
        ("tlb_hits", h.tlb_hits),
        ("tlb_second_level_hits", h.tlb_second_level_hits),
        ("tlb_misses", h.tlb_misses),
        ("walks", h.walks),
        ("accesses", h.accesses),
        ("page_invalidations", h.page_invalidations),
        ("ipis_sent", h.ipis_sent),
        ("interrupts", h.interrupts),
        ("bytes_copied_by_hardware", h.bytes_copied),
        ("context_switches", h.switches),
        ("stale_uses_in_window", h.stale_uses_in_window),
        ("stale_uses", h.stale_uses),
    ]
    .into_iter()
    .map(|(name, count)| (name.to_owned(), count))
    .collect()
}

/// The laws of the measured part.
fn conservation(measured: &Snapshot) -> Vec<Law> {
    let h = &measured.hardware;
    let lookups = (h.tlb_hits + h.tlb_misses == h.tlb_lookups)
        .then_some(())
        .ok_or_else(|| format!("{} + {} is not {}", h.tlb_hits, h.tlb_misses, h.tlb_lookups));
    let counter = |c: Counter| measured.counter(c);
    // Where the measured part begins and ends, each other CPU may have counted what it is about to send to all.
    let cpus = measured.clocks.len() as u64;
    let under_way = (cpus - 1) * (cpus - 1);
    let (sent, ipis) = (counter(Counter::ShootdownIpis) + counter(Counter::ReschedIpis), h.ipis_sent);
    vec![
        law("the causes of measured cycles sum to the measured time", measured.check()),
        law("TLB hits and misses sum to look-ups", lookups),
        law(
            "interprocessor interrupts sent are those that the kernel counted",
            (sent.abs_diff(ipis) <= under_way)
                .then_some(())
                .ok_or_else(|| format!("{ipis} sent, {sent} counted")),
        ),
    ]
}
