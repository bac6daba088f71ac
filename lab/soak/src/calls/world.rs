//! The machine with its kernel, a volume, and the processes, which take turns: a process waits until the next step is
//! its own.

use super::process::Actor;
use super::reference::{Holdings, Reference};
use super::steps::{CallStep, Calls, NAMES, PROCESSES};
use crate::failure::Failure;
use crate::planted::Planted;
use crate::rig::config;
use crate::whole::{self, MEMORY_MB};
use pageferry_hal::{Machine as _, PAGE_SIZE, Prot};
use pageferry_kernel::{OpenFlags, Program, User};
use pageferry_model::{Model, Options, Schedule};
use pageferry_vm::Inherit;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

type U = User<Model>;

const SPIN_LIMIT: u64 = 1_000_000;
/// The volume's disk.
const DISK_BYTES: u64 = 4 << 20;
/// Steps between two looks at all laws.
const CHECK_EVERY: usize = 16;
/// Pages of the longest file.
const FILE_PAGES: usize = 16;

/// What all processes know.
struct World {
    reference: RefCell<Reference>,
    steps: Vec<CallStep>,
    /// The step that is to be made next; behind the last, each process has a turn to end.
    turn: Rc<Cell<usize>>,
}

impl Calls {
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
        let options = Options::new(schedule).spin_limit(SPIN_LIMIT);
        let m = Model::new(&config(machine, MEMORY_MB), options).expect("a valid machine");
        let config = whole::kernel(machine, &m, defect.and_then(Planted::in_net), self.seed);
        let at = Rc::new(Cell::new(0));
        let world = Rc::new(World {
            reference: RefCell::new(Reference {
                processes: (0..PROCESSES).map(|_| None).collect(),
                ..Reference::default()
            }),
            steps: self.steps.clone(),
            turn: at.clone(),
        });
        let block_bytes = [512, 1024, 2048, 4096][(self.seed / 7 % 4) as usize];
        whole::run(&m, config, &at, move |u| {
            u.kernel().vm().plant(defect.and_then(Planted::in_vm));
            world.first(u, block_bytes);
        })
    }
}

impl World {
    /// The first process: makes the volume and another process, and looks at the files in the end.
    fn first(self: &Rc<World>, u: &U, block_bytes: u32) {
        u.attach_memory_disk(DISK_BYTES).expect("a disk");
        u.make_volume(block_bytes).expect("a volume");
        self.reference.borrow_mut().processes[0] = Some(Holdings::default());
        u.fork("caller", self.life(0)).expect("a process");
        while u.wait().is_ok() {}
        // Whose parents have ended are nobody's children.
        while self.reference.borrow().processes.iter().any(Option::is_some) {
            _ = u.yield_now();
        }
        assert!(self.turn.get() >= self.steps.len(), "all steps were made");
        u.unmount().expect("nobody uses it");
        u.mount().expect("it was whole");
        self.compare_files(u);
        u.unmount().expect("nobody uses it");
        u.detach_memory_disk().expect("nobody uses it");
    }

    /// The process whose turn it is: that of the step if it is there, else the next that is.
    fn actor(&self) -> Option<usize> {
        let turn = self.turn.get();
        let reference = self.reference.borrow();
        let is_there = |process: usize| reference.processes[process].is_some();
        match self.steps.get(turn) {
            Some(step) => (0..PROCESSES).map(|i| (step.process + i) % PROCESSES).find(|p| is_there(*p)),
            None => {
                Some(turn - self.steps.len()).filter(|process| *process < PROCESSES && is_there(*process))
            }
        }
    }

    /// What process number `me` does.
    fn life(self: &Rc<World>, me: usize) -> Program<Model> {
        let world = self.clone();
        Box::new(move |u: &U| World::live(&world, u, me))
    }

    fn live(world: &Rc<World>, u: &U, me: usize) {
        let life = |child| world.life(child);
        let actor = Actor { u, reference: &world.reference, me, life: &life };
        loop {
            let turn = world.turn.get();
            match world.actor() {
                Some(process) if process == me => {}
                None if turn < world.steps.len() + PROCESSES => {
                    // Nobody is there to end.
                    world.turn.set(turn + 1);
                    continue;
                }
                _ => {
                    _ = u.yield_now();
                    continue;
                }
            }
            let goes_on = match world.steps.get(turn) {
                Some(step) => actor.step(step.op),
                None => {
                    actor.end();
                    false
                }
            };
            // On several CPUs others may be in the middle of their end.
            if turn.is_multiple_of(CHECK_EVERY) && u.machine().cpus().len() == 1 {
                u.kernel().check().unwrap_or_else(|law| panic!("a law is broken: {law}"));
            }
            if !goes_on {
                break;
            }
            world.turn.set(turn + 1);
        }
        world.turn.set(world.turn.get() + 1);
        while u.wait().is_ok() {}
    }

    /// All files hold what they should, those of the volume behind a mount.
    fn compare_files(&self, u: &U) {
        let buffer = u.map(FILE_PAGES * PAGE_SIZE, Prot::RW, Inherit::Copy).expect("memory");
        let reference = self.reference.borrow();
        for (name, node) in &reference.names {
            let (name, expected) = (NAMES[*name], &reference.nodes[*node].bytes);
            let fd = u.open(name, OpenFlags::READ).unwrap_or_else(|e| panic!("{name}: {e}"));
            let len = u.read(fd, buffer, FILE_PAGES * PAGE_SIZE).unwrap_or_else(|e| panic!("{name}: {e}"));
            let mut found = vec![0; len];
            u.load(buffer, &mut found);
            assert!(found == *expected, "{name} holds other bytes than it should, in the end");
            u.close(fd).expect("it is open");
        }
        for name in reference.names.keys() {
            u.unlink(NAMES[*name]).expect("it is there");
        }
    }
}
