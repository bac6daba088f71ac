//! The accessed bit and what it proves: the rule of the sf_buf paper as it is printed, and the one that holds.
//!
//! The program is the smallest in which they differ: a cache of one address, three pages, two CPUs. It is told under
//! both rules. Under the printed one a CPU reads a page that is not the one it asked for, and the model's oracle says
//! so.

use super::stage::{Counterexample, Mechanism, Stage, contents};
use pageferry_ephemeral::{AllocError, Flags, MappingUser};
use pageferry_hal::{Account, Cause, Instructions, Machine as _, Mode, PAGE_SIZE, Pfn, Prot, Threads as _};
use pageferry_kernel::{Errno, User};
use pageferry_lab::kit::{CallError, named};
use pageferry_model::Model;
use std::cell::Cell;
use std::rc::Rc;

pub(super) const ALL: &[Mechanism] = &[Mechanism {
    name: "accessed-bit",
    title: "when a changed mapping need not be told to anyone: the rule as printed, and the one that holds",
    text: "A processor sets the accessed bit of a page-table entry when it loads the entry into its TLB. So an entry \
           whose bit is clear is in no TLB, and sf_buf may change it without an invalidation. The paper goes on: then \
           the address is valid on all CPUs. That does not follow. The bit speaks of the last mapping of the address; \
           a CPU may still hold the one before, if that was replaced by a private mapping, of which only one CPU was \
           told. The rule that holds leaves the set of CPUs that are up to date as it was, and a CPU that is not in it \
           invalidates.",
    source: "sf_buf paper, 4.2; FreeBSD, sf_buf_alloc of later versions",
    machine: "xeon-mp",
    kernel: "sf_buf",
    set: &["kernel.ephemeral.entries=1"],
    counterexample: Some(Counterexample {
        kernel: "sf_buf-as-printed",
        words: ["As printed", "As it holds"],
    }),
    more: None,
    far_end: false,
    program: accessed_bit,
}];

/// How long a CPU computes between two looks at what the other has done, and how often it looks.
const LOOK: Instructions = Instructions(500);
const LOOKS: u32 = 10_000;

/// How far the story is. The two processes are coroutines of one thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Progress {
    Nothing,
    OtherIsThere,
    FirstHasRead,
    OtherHasTaken,
}

type Story = Rc<Cell<Progress>>;

/// The address of the cache, for `frame` and this CPU alone; with `read`, the first bytes there.
fn map(user: &User<Model>, frame: Pfn, read: bool) -> Result<[u8; 8], Errno> {
    let (ephemeral, m) = (user.kernel().ephemeral(), user.machine());
    user.thread().pin();
    let mapping =
        ephemeral.alloc(user.thread(), frame, MappingUser::Other, Flags::PRIVATE).map_err(|e| match e {
            AllocError::Interrupted => Errno::Interrupted,
            _ => Errno::NoMemory,
        })?;
    let mut bytes = [0; 8];
    if read {
        let _c = m.scope(Cause::Copy);
        m.load(Mode::Kernel, ephemeral.kva(&mapping), &mut bytes).expect("the kernel has it mapped");
    }
    ephemeral.free(user.thread(), mapping);
    user.thread().unpin();
    Ok(bytes)
}

fn accessed_bit(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let at = stage.buffer(user, 3)?;
    let wired = user.space().wire(user.thread(), at, 3 * PAGE_SIZE, Prot::READ);
    let wired = wired.map_err(|e| ("wire", e.into()))?;
    let pages = wired.frames().to_vec();
    let story: Story = Rc::new(Cell::new(Progress::Nothing));
    other_cpu(stage, user, &story, pages[1])?;
    wait_for(stage, user, &story, Progress::OtherIsThere);
    let first = user.machine().cpu();
    stage.step(
        "The first CPU has page A mapped, and reads it. Its TLB holds the translation; the entry's accessed bit is \
         set.",
        || map(user, pages[0], true),
    )?;
    story.set(Progress::FirstHasRead);
    wait_for(stage, user, &story, Progress::OtherHasTaken);
    let read = stage.step(
        "The first CPU has page C mapped. The bit that it finds is clear. Is its own TLB up to date? Then it reads.",
        || map(user, pages[2], true),
    )?;
    stage.promise("the first process stayed on its CPU", user.machine().cpu() == first);
    say_what_was_read(stage, read);
    user.wait().map_err(named("wait"))?;
    user.kernel().vm().unwire(wired);
    Ok(())
}

/// A child on another CPU, which gets the address for `page` when the first CPU has read.
fn other_cpu(stage: &Stage, user: &User<Model>, story: &Story, page: Pfn) -> Result<(), CallError> {
    let (story, first) = (story.clone(), user.machine().cpu());
    let child = move |stage: &Stage, user: &User<Model>| {
        story.set(Progress::OtherIsThere);
        wait_for(stage, user, &story, Progress::FirstHasRead);
        stage.promise("the other process runs on another CPU", user.machine().cpu() != first);
        let done = stage.step(
            "Another CPU has page B mapped there, privately. The bit was set: it invalidates, for itself only. It \
             never touches the page, so the new entry's bit stays clear.",
            || map(user, page, false),
        );
        story.set(Progress::OtherHasTaken);
        done.map(|_| ())
    };
    stage.fork(user, "other CPU", child).map(|_| ())
}

/// Computes until the story has come so far. A process that slept would leave its CPU to the other, and its TLB.
fn wait_for(stage: &Stage, user: &User<Model>, story: &Story, point: Progress) {
    for _ in 0..LOOKS {
        if story.get() >= point {
            return;
        }
        user.compute(LOOK);
    }
    stage.promise("the other process came so far", false);
}

fn say_what_was_read(stage: &Stage, read: [u8; 8]) {
    let pages = contents(3);
    let is = |page: usize| pages[page * PAGE_SIZE..][..8] == read;
    let found = ["A", "B", "C"].into_iter().enumerate().find(|(page, _)| is(*page)).map(|(_, name)| name);
    stage.promise("what is read is one of the pages", found.is_some());
    stage.note(format!("what it read is page {}", found.unwrap_or("?")));
    let stale = stage.model.stale_uses();
    if let Some(stale) = stale.first() {
        stage.note(format!("the oracle: {stale}"));
    }
    stage.promise(
        "the page that is asked for is read, unless a stale translation was used",
        (found == Some("C")) == stale.is_empty(),
    );
}
