//! A run of the modelled machine that nobody is conducted by, and whose events are counted.

use crate::record::{FRAMES, machine};
use pageferry_hal::Devices;
use pageferry_hal::tap::{Event, Sink, Tap};
use pageferry_kernel::{Kernel, PipeKind};
use pageferry_model::{Model, Options, Schedule};
use pageferry_verify::counts::{Counts, Whose};
use pageferry_verify::{Selection, Verdict, kernel, programs};
use pageferry_workloads::checked::Checked;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Counts what it is told.
#[derive(Clone)]
struct Counting(Arc<Counts>);

impl Sink for Counting {
    fn tells(&self, event: Event) {
        self.0.note(&event, Whose::Shared);
    }
}

/// Runs one of the small programs, and prints what is counted of its measured part, a line each: `count NAME VALUE`.
pub(crate) fn count(line: &str, selection: &Selection) -> Result<(), String> {
    let (cpus, frames) = (selection.cpus.unwrap_or(1), selection.frames.unwrap_or(FRAMES));
    let program = Checked::parse(line, cpus).map_err(|bad| bad.to_string())?;
    let kind = if program.pipes_are_sockets() { PipeKind::Socket } else { PipeKind::Fifo };
    let selection = Selection { pipes: Some(kind), preempts: false, ..*selection };
    let model = Model::new(&machine(cpus, frames)?, Options::new(Schedule::Timed).tolerate_stale())
        .map_err(|fault| fault.to_string())?;
    let (counts, verdict) = (Arc::new(Counts::new()), Arc::new(Verdict::default()));
    let failed: Rc<RefCell<Option<String>>> = Rc::default();
    let (told, judged, failure) = (counts.clone(), verdict.clone(), failed.clone());
    let ran = model.run(Box::new(move |model| {
        let tap = Tap::new(model.clone(), Counting(told.clone()));
        let config = kernel::config(frames, &selection);
        let kernel = match Kernel::boot(tap, Devices::default(), config) {
            Ok(kernel) => kernel,
            Err(error) => {
                *failure.borrow_mut() = Some(error.to_string());
                return None;
            }
        };
        kernel.spawn("init", programs::counted(program, &told, &judged)).expect("the first process");
        kernel.run()
    }));
    ran.map_err(|error| error.to_string())?;
    if let Some(problem) = failed.take() {
        return Err(format!("the kernel on the model: {problem}"));
    }
    if !verdict.is_well() {
        return Err(format!("the program on the model has failed: {verdict:?}"));
    }
    for (name, value) in counts.measured(Whose::Shared) {
        if value > 0 {
            println!("count {name} {value}");
        }
    }
    Ok(())
}
