//! A program that paints, beside programs that compute (PPC paper: a frame buffer in a block of its process).
//!
//! The painter has the frame buffer in its address space and fills rectangles of it, line by line, while recorded
//! compilers run. Between two rectangles it does what a server does for a request: it executes code and reads data of
//! its own. Where the rectangles lie, and that code and data, are made from a seed: nothing of a real X server is in
//! them. What it has painted is compared at the end, word by word.
//!
//! The measured part is all of it: until the painter has painted, and the compilers have compiled.

use super::recorded::{RecordedProgram, recorded};
use super::stage::{INPUT, Stage, install, make_file, remove, wait_for, with_input};
use crate::error::LabError;
use crate::kit::{CallError, OutcomeCell, Stopwatch, first_process, named};
use crate::record::Metric;
use crate::run::{Testbed, Workload};
use pageferry_hal::{Access, PAGE_SIZE, Prot, Reference, Va};
use pageferry_kernel::{Errno, Program, User};
use pageferry_model::{MachineConfig, Model};
use pageferry_vm::{Inherit, MapAddr};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::sync::Arc;

/// Where the painter has the frame buffer: aligned to any size that one can have.
const FRAME_BUFFER: Va = Va(0x6000_0000);
/// Its own text and data.
const TEXT: Va = Va(0x1000_0000);
const DATA: Va = Va(0x2000_0000);
/// Pages of each.
const TEXT_PAGES: usize = 48;
const DATA_PAGES: usize = 64;
/// Bytes of a line of pixels.
const PITCH: usize = 2048;
/// Lines that are executed and read for one rectangle.
const WORK: usize = 160;
/// Bytes of a line of the cache, which is what one reference is to, and the instructions that fill one.
const LINE: usize = 32;
const FILL_INSTRUCTIONS: u32 = 12;

pub(crate) struct Screen {
    stage: Stage,
    recorded: Arc<RecordedProgram>,
    compilers: usize,
    rectangles: u64,
    seed: u64,
    frame_buffer_bytes: usize,
}

crate::parameters! {
    /// What the file says.
    pub(crate) struct Parameters {
        rectangles: u64 = 1..=1 << 20,
        compilers: usize = 0..=64,
    }
}

impl Workload for Screen {
    const NAME: &'static str = "frame-buffer";

    type Parameters = Parameters;

    fn weight(p: &Parameters, _: &MachineConfig) -> u64 {
        p.rectangles.saturating_mul(3000)
    }

    fn metrics() -> Vec<Metric> {
        super::stage::metrics()
    }

    /// The program of the painter, which is the parent of the others.
    fn program(p: Parameters, testbed: &mut Testbed, cell: OutcomeCell) -> Result<Program<Model>, LabError> {
        let board = testbed.machine.config.board();
        let pages = board.device_memory.map_or(0, |devices| devices.frame_buffer_pages);
        if pages == 0 {
            return Err(testbed.incompatible("expected a machine with a frame buffer ([io] of its file)"));
        }
        let work = Screen {
            stage: Stage::new(testbed, cell.clone()),
            recorded: recorded("runq-cc1")?,
            compilers: p.compilers,
            rectangles: p.rectangles,
            seed: testbed.seed,
            frame_buffer_bytes: pages * PAGE_SIZE,
        };
        Ok(first_process(cell, 0, move |user| work.run(user)))
    }
}

impl Screen {
    fn run(&self, user: &User<Model>) -> Result<(), CallError> {
        let wanted = self.recorded.pages.len() * PAGE_SIZE * (self.compilers + 1);
        if !self.stage.has_room(user, wanted) {
            return Ok(());
        }
        let all = std::slice::from_ref(&self.recorded);
        install(user, all)?;
        make_file(user, INPUT, self.recorded.reads_bytes as usize)?;
        let map = |at, pages: usize, prot| {
            user.map_at(MapAddr::Replace(at), pages * PAGE_SIZE, prot, Inherit::None).map_err(named("map"))
        };
        map(TEXT, TEXT_PAGES, Prot::all())?;
        map(DATA, DATA_PAGES, Prot::RW)?;
        user.map_frame_buffer(MapAddr::Replace(FRAME_BUFFER)).map_err(named("map the frame buffer"))?;
        let watch = Stopwatch::start(&self.stage.model);
        for _ in 0..self.compilers {
            self.stage.fork_program(user, &self.recorded, with_input)?;
        }
        let (painted, own) = self.paint(user)?;
        wait_for(user, self.compilers)?;
        let references = own + self.compilers as u64 * self.recorded.references;
        self.stage.finish(user, references, watch);
        self.compare(user, painted);
        remove(user, &[INPUT], all)
    }

    /// Paints; answers what must be on the screen, and how many references that was.
    fn paint(&self, user: &User<Model>) -> Result<(HashMap<usize, u32>, u64), CallError> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let mut painted: HashMap<usize, u32> = HashMap::new();
        let mut references = 0;
        let mut batch: Vec<Reference> = Vec::new();
        for rectangle in 0..self.rectangles {
            for i in 0..WORK {
                let text = i % 2 == 0;
                let (base, pages) = if text { (TEXT, TEXT_PAGES) } else { (DATA, DATA_PAGES) };
                let at = base + random.random_range(0..pages * PAGE_SIZE / LINE) * LINE;
                let access = if text { Access::Fetch } else { Access::Read };
                batch.push(Reference { instructions: 8, access, at, word: 0 });
            }
            let (width, height) = (random.random_range(1..=16) * LINE, random.random_range(8..=200));
            let left = random.random_range(0..=(PITCH - width) / LINE) * LINE;
            let top = random.random_range(0..=self.frame_buffer_bytes / PITCH - height);
            for y in top..top + height {
                for x in (left..left + width).step_by(LINE) {
                    let (offset, word) = (y * PITCH + x, rectangle as u32 ^ 0x5c5c_5c5c);
                    painted.insert(offset, word);
                    let at = FRAME_BUFFER + offset;
                    batch.push(Reference {
                        instructions: FILL_INSTRUCTIONS,
                        access: Access::Write,
                        at,
                        word,
                    });
                }
            }
            references += batch.len() as u64;
            batch.chunks_mut(256).for_each(|some| user.refer(some));
            batch.clear();
            if user.is_killed() {
                return Err(("paint", Errno::Fault));
            }
        }
        Ok((painted, references))
    }

    /// What is on the screen must be what was painted last.
    fn compare(&self, user: &User<Model>, painted: HashMap<usize, u32>) {
        let mut all: Vec<(usize, u32)> = painted.into_iter().collect();
        all.sort_unstable();
        for (offset, word) in all {
            let mut one =
                [Reference { instructions: 0, access: Access::Read, at: FRAME_BUFFER + offset, word: 0 }];
            user.refer(&mut one);
            if one[0].word != word {
                let found = one[0].word;
                let damage = format!("the screen has {found:#x} at {offset:#x}, painted was {word:#x}");
                self.stage.cell.borrow_mut().damage(damage);
                return;
            }
        }
    }
}
