//! What is kept for drawings, if that is asked for; and a cache line that a measurement wants out of the way.

use crate::machine::Model;
use pageferry_hal::{Attachment, Flow, FlowStep, Level, Pa, Recorder, Va};

impl Recorder for Model {
    fn trace_flow(&self, flow: Flow, step: FlowStep) {
        let mut hw = self.0.hw.borrow_mut();
        let (cpu, context) = (self.0.cpu.get(), self.0.context.get());
        let at = hw.cpus[cpu].clock;
        if let Some(recorder) = &mut hw.recorder {
            recorder.step(cpu, at, context, flow, step);
        }
    }

    fn trace_level(&self, level: Level, change: i64) {
        let mut hw = self.0.hw.borrow_mut();
        let at = hw.cpus[self.0.cpu.get()].clock;
        if let Some(recorder) = &mut hw.recorder {
            recorder.level(at, level, change);
        }
    }

    fn trace_process(&self, number: u32, name: &str) {
        let mut hw = self.0.hw.borrow_mut();
        let at = hw.cpus[self.0.cpu.get()].clock;
        if let Some(recorder) = &mut hw.recorder {
            recorder.process(at, number, name, self.0.context.get());
        }
    }

    fn trace_attached(&self, process: u32, attachment: Attachment) {
        let mut hw = self.0.hw.borrow_mut();
        let at = hw.cpus[self.0.cpu.get()].clock;
        if let Some(recorder) = &mut hw.recorder {
            recorder.attached(at, process, attachment);
        }
    }

    fn trace_detached(&self, process: u32, at: Va) {
        let mut hw = self.0.hw.borrow_mut();
        let now = hw.cpus[self.0.cpu.get()].clock;
        if let Some(recorder) = &mut hw.recorder {
            recorder.detached(now, process, at);
        }
    }

    fn is_traced(&self) -> bool {
        self.0.hw.borrow().recorder.is_some()
    }

    fn flush_line(&self, at: Pa) {
        self.0.step(|hw, _| hw.flush_line(at));
    }
}
