//! A run of the modelled machine, with its turns and events written down.

use pageferry_hal::tap::{Call, Event, Handler, Sink, Tap, Turn};
use pageferry_hal::{CpuId, CpuSet, Devices, Machine as _};
use pageferry_kernel::Kernel;
use pageferry_model::panics::quietly;
use pageferry_model::{MachineConfig, Model, Options, Schedule, Sourced};
use pageferry_verify::programs::Experiment;
use pageferry_verify::{Selection, Verdict, kernel, schedule};
use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Frames, if nobody says how many.
pub(crate) const FRAMES: usize = 65536;

#[derive(Default)]
struct Notes {
    turns: Vec<Turn>,
    events: Vec<Event>,
    /// What comes after this is nobody's: the kernel is looked at from outside.
    is_over: bool,
}

/// Writes down what it is told.
#[derive(Clone)]
struct Recorder {
    model: Model,
    written: Rc<RefCell<Notes>>,
}

impl Recorder {
    fn turn(&self, turn: Turn) {
        let mut written = self.written.borrow_mut();
        if !written.is_over {
            written.turns.push(turn);
        }
    }
}

impl Sink for Recorder {
    fn returns(&self, cpu: CpuId, call: Call, value: u64) {
        self.turn(Turn { cpu, call, value });
    }

    fn handles(&self, handler: Handler) -> Handler {
        let recorder = self.clone();
        Box::new(move |interrupt| {
            let call = Call::handler(interrupt).expect("no device is in these runs");
            recorder.turn(Turn { cpu: recorder.model.cpu(), call, value: 0 });
            handler(interrupt);
        })
    }

    fn tells(&self, event: Event) {
        let mut written = self.written.borrow_mut();
        if !written.is_over {
            written.events.push(event);
        }
    }
}

fn order(seed: &str) -> Result<Schedule, String> {
    match seed {
        "timed" => Ok(Schedule::Timed),
        seed => {
            let seed = seed.parse().map_err(|_| format!("seed {seed}: expected a number or `timed`"))?;
            Ok(Schedule::Seeded(seed))
        }
    }
}

/// The modelled machine that is like metal.
pub(crate) fn machine(cpus: usize, frames: usize) -> Result<MachineConfig, String> {
    let mut machine = MachineConfig::named("opteron-mp").map_err(|e| e.to_string())?;
    machine.cpu.packages = Sourced::assumed(cpus as u64, "as many as are asked for");
    machine.memory.size_mb = Sourced::assumed(frames as u64 >> 8, "as much as is asked for");
    machine.io = None;
    Ok(machine)
}

/// Runs the model, and leaves `turns.bin` and `model.bin` in the folder.
pub(crate) fn record(folder: &Path, seed: &str, selection: &Selection) -> Result<(), String> {
    let (cpus, frames) = (selection.cpus.unwrap_or(1), selection.frames.unwrap_or(FRAMES));
    let machine = machine(cpus, frames)?;
    let options = Options::new(order(seed)?).tolerate_stale().walks_again();
    let model = Model::new(&machine, options).map_err(|fault| fault.to_string())?;
    let board = model.board();
    if board != kernel::board(cpus, frames) {
        return Err(format!("the model has another board than metal: {board:?}"));
    }
    assert!(cpus <= CpuSet::MAX_CPUS);

    let written: Rc<RefCell<Notes>> = Rc::default();
    let verdict = Arc::new(Verdict::default());
    let recorder = Recorder { model: model.clone(), written: written.clone() };
    let (selection, judged) = (*selection, verdict.clone());
    let failed: Rc<RefCell<Option<String>>> = Rc::default();
    let failure = failed.clone();
    // What panics is told in the end, in a line.
    let (ran, _) = quietly(|| {
        model.run(Box::new(move |model| {
            let over = recorder.written.clone();
            let tap = Tap::new(model.clone(), recorder);
            let config = kernel::config(frames, &selection);
            let kernel = match Kernel::boot(tap, Devices::default(), config) {
                Ok(kernel) => kernel,
                Err(error) => {
                    *failure.borrow_mut() = Some(error.to_string());
                    return None;
                }
            };
            kernel
                .spawn("init", selection.experiment.program(cpus, selection.programs, &judged))
                .expect("the first process");
            let next = kernel.run();
            over.borrow_mut().is_over = true;
            let state = kernel.check_quiescent();
            if let Err(problem) = state {
                *failure.borrow_mut() = Some(problem);
            }
            next
        }))
    });
    ran.map_err(|error| match selection.experiment {
        Experiment::Random => format!("program {}: {error}", verdict.program()),
        _ => error.to_string(),
    })?;
    if let Some(problem) = failed.take() {
        return Err(format!("the kernel on the model: {problem}"));
    }
    let is_sound = selection.defect.defect().is_none() && selection.pmap_defect.defect().is_none();
    if is_sound && !verdict.is_well() {
        return Err(format!("the program on the model has failed: {verdict:?}"));
    }
    let Notes { turns, events, .. } = written.take();
    let events: Vec<u8> = events.iter().flat_map(Event::encode).flat_map(u64::to_le_bytes).collect();
    let file = schedule::encode(selection.fingerprint(cpus, frames), &turns);
    for (name, bytes) in [("turns.bin", file), ("model.bin", events)] {
        fs::write(folder.join(name), bytes).map_err(|e| format!("{}: {e}", folder.join(name).display()))?;
    }
    let ((right, wrong), (ended, failed)) = (verdict.bytes(), verdict.processes());
    println!(
        "model: {} turns; {right} bytes right, {wrong} wrong; {ended} processes ended, {failed} failed; {} uses of a \
         stale translation",
        turns.len(),
        model.stale_uses().len()
    );
    Ok(())
}
