//! The processes, which take turns: a process waits until the next step is its own.

use super::judge::Judge;
use super::process::Actor;
use super::reference::{Holdings, Reference};
use super::steps::{CallStep, Calls, NAMES, ON_VOLUME, PROCESSES};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use pageferry_hal::{Machine, PAGE_SIZE, Prot};
use pageferry_kernel::{OpenFlags, Program, User, VolumeFormat};
use pageferry_vm::Inherit;

/// The volume's disk.
const DISK_BYTES: u64 = 4 << 20;
/// Steps between two looks at the kernel.
const LOOK_EVERY: usize = 16;
/// Pages of the longest file.
const FILE_PAGES: usize = 16;

/// What all processes know.
struct World<M: Machine> {
    reference: RefCell<Reference>,
    steps: Vec<CallStep>,
    /// The step that is to be made next; behind the last, each process has a turn to end.
    turn: Rc<Cell<usize>>,
    /// The process that makes it, which is chosen before: another comes, and this one goes, while the step is made.
    actor: Cell<Option<usize>>,
    judge: Box<dyn Judge<M>>,
}

impl Calls {
    /// What a process does that has these steps made, by itself and by others, and looks at the files in the end. It
    /// makes a memory disk and a volume, and leaves nothing behind. `at` is the step at which they are, for whoever
    /// has to say where one of them panicked.
    ///
    /// The processes panic where the kernel answers wrongly.
    pub fn program<M: Machine>(
        &self,
        at: Rc<Cell<usize>>,
        judge: impl Judge<M> + 'static,
    ) -> impl FnOnce(&User<M>) + 'static {
        at.set(0);
        let world = Rc::new(World {
            reference: RefCell::new(Reference {
                processes: (0..PROCESSES).map(|_| None).collect(),
                ..Reference::default()
            }),
            steps: self.steps.clone(),
            turn: at,
            actor: Cell::new(Some(0)),
            judge: Box::new(judge),
        });
        let format = match self.seed / 7 % 8 {
            n @ 0..4 => VolumeFormat::of_blocks(512 << n),
            4 => VolumeFormat { block_bytes: 1024, fragment_bytes: 512 },
            5 => VolumeFormat { block_bytes: 4096, fragment_bytes: 512 },
            6 => VolumeFormat { block_bytes: 8192, fragment_bytes: 4096 },
            _ => VolumeFormat::default(),
        };
        move |user: &User<M>| world.first(user, format)
    }
}

impl<M: Machine> World<M> {
    /// The first process: makes the volume and another process, and looks at the files in the end.
    fn first(self: &Rc<World<M>>, u: &User<M>, format: VolumeFormat) {
        u.attach_memory_disk(DISK_BYTES).expect("a disk");
        u.make_volume(format).expect("a volume");
        self.reference.borrow_mut().processes[0] = Some(Holdings::new(u.pid(), u.pid()));
        u.fork("caller", self.life(0)).expect("a process");
        while u.wait().is_ok() {}
        // Whose parents have ended are nobody's children.
        while self.reference.borrow().processes.iter().any(Option::is_some) {
            _ = u.yield_now();
        }
        assert!(self.turn.get() >= self.steps.len(), "all steps were made");
        self.judge.played(u, &self.reference.borrow().played);
        u.unmount().expect("nobody uses it");
        u.mount().expect("it was whole");
        self.compare_files(u);
        u.unmount().expect("nobody uses it");
        u.detach_memory_disk().expect("nobody uses it");
    }

    /// Whose turn the next step is: of the process that it names if that is there, else of the next that is. Behind
    /// the last step each process that is there has a turn.
    fn pass_on(&self) {
        let turn = self.turn.get() + 1;
        let reference = self.reference.borrow();
        let is_there = |process: &usize| reference.processes[*process].is_some();
        let (turn, actor) = match self.steps.get(turn) {
            Some(step) => (turn, (0..PROCESSES).map(|i| (step.process + i) % PROCESSES).find(is_there)),
            None => {
                let actor = (turn - self.steps.len()..PROCESSES).find(is_there);
                (self.steps.len() + actor.unwrap_or(PROCESSES), actor)
            }
        };
        self.turn.set(turn);
        self.actor.set(actor);
    }

    /// What process number `me` does.
    fn life(self: &Rc<World<M>>, me: usize) -> Program<M> {
        let world = self.clone();
        Box::new(move |u: &User<M>| World::live(&world, u, me))
    }

    fn live(world: &Rc<World<M>>, u: &User<M>, me: usize) {
        let life = |child| world.life(child);
        // Files in memory go to a disk of the machine's, and need one.
        let first_name = if u.kernel().free_file_blocks() > 0 { 0 } else { ON_VOLUME };
        let (reference, judge) = (&world.reference, &*world.judge);
        let fail = Cell::new(None);
        let actor = Actor { u, reference, me, life: &life, first_name, judge, fail };
        if let Some(holdings) = reference.borrow_mut().processes[me].as_mut().filter(|_| !u.is_killed()) {
            holdings.pid = u.pid();
        }
        loop {
            // Whoever has killed it goes on with the next step.
            if u.is_killed() {
                return;
            }
            if world.actor.get() != Some(me) {
                _ = u.yield_now();
                continue;
            }
            let turn = world.turn.get();
            let goes_on = match world.steps.get(turn) {
                Some(step) => actor.step(step.op, step.fail),
                None => {
                    actor.end();
                    false
                }
            };
            if turn.is_multiple_of(LOOK_EVERY) {
                world.judge.between_steps(u);
            }
            world.pass_on();
            if !goes_on {
                break;
            }
        }
        while u.wait().is_ok() {}
    }

    /// All files hold what they should, those of the volume behind a mount.
    fn compare_files(&self, u: &User<M>) {
        let buffer = u.map(FILE_PAGES * PAGE_SIZE, Prot::RW, Inherit::Copy).expect("memory");
        let reference = self.reference.borrow();
        for (name, node) in &reference.names {
            let (name, expected) = (NAMES[*name], &reference.nodes[*node].bytes);
            let fd = u.open(name, OpenFlags::READ).unwrap_or_else(|e| panic!("{name}: {e}"));
            let len = u.read(fd, buffer, FILE_PAGES * PAGE_SIZE).unwrap_or_else(|e| panic!("{name}: {e}"));
            let mut found = vec![0; len];
            u.load(buffer, &mut found);
            assert!(found == *expected, "{name} holds other bytes than it should, in the end");
            self.judge.compared(&found);
            u.close(fd).expect("it is open");
        }
        for name in reference.names.keys() {
            u.unlink(NAMES[*name]).expect("it is there");
        }
        u.unmap(buffer, FILE_PAGES * PAGE_SIZE).expect("it is mapped");
    }
}
